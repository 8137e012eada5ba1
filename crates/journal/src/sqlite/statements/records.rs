//! Records in the same database as the journal. The writer runs their writes among the appends, fairly by tenant.
//!
//! A record is a row of `records`, and a row of `record_indexes` for each of its indexes. A query reads along one index and looks the
//! other filters up, so it never sorts.

use conjure_base::{DigestHasher, Timestamp};
use futures_util::FutureExt as _;
use rusqlite::{OptionalExtension as _, Row, named_params, params};

use super::record_query::{COLUMNS, QuerySql, scope_text, to_sql};
use super::rows::{read_u64, to_i64};
use crate::journal::JournalFuture;
use crate::record::{
    IndexName, IndexValue, Indexes, MAX_PAGE_BYTES, NewRecord, Record, RecordContent, RecordError,
    RecordFuture, RecordKey, RecordKind, RecordPage, RecordQuery, RecordScope, RecordWrite, Records,
    check_writes,
};
use crate::session::MAX_LIST_ENTRIES;
use crate::sqlite::database::error_map::TxError;
use crate::sqlite::journal::SqliteJournal;
use crate::sqlite::statements::transaction::{NOW, Tx};

/// Why a call on records failed.
type RecordTxError = TxError<RecordError>;

impl Tx<'_> {
    fn write_records(&self, writes: &[RecordWrite]) -> Result<Vec<Option<Record>>, RecordTxError> {
        let now = format!("SELECT {NOW}");
        let now = self.connection.prepare_cached(&now)?.query_row([], |row| read_u64(row, 0))?;
        let now = Timestamp::from_millis(now);
        if let [write] = writes {
            // A single write changes nothing when it is rejected.
            return Ok(vec![self.write_record(write, now)?]);
        }
        self.connection.execute_batch("SAVEPOINT records")?;
        let written = writes.iter().map(|write| self.write_record(write, now));
        let written = written.collect::<Result<Vec<_>, _>>();
        if let Err(RecordTxError::Rejected(_)) = &written {
            self.connection.execute_batch("ROLLBACK TO records")?;
        }
        self.connection.execute_batch("RELEASE records")?;
        written
    }

    fn write_record(&self, write: &RecordWrite, now: Timestamp) -> Result<Option<Record>, RecordTxError> {
        match write {
            RecordWrite::Insert(record) => self.insert_record(record, now).map(Some),
            RecordWrite::Replace { key, expected_version, content } => {
                self.replace_record(key, *expected_version, content, now).map(Some)
            }
            RecordWrite::Delete { key, expected_version } => self.delete_record(key, *expected_version),
        }
    }

    fn insert_record(&self, new: &NewRecord, now: Timestamp) -> Result<Record, RecordTxError> {
        const SQL: &str = "
            INSERT INTO records (tenant, kind, id, version, name, indexes, body, created, updated, checksum)
            VALUES (:tenant, :kind, :id, 1, :name, :indexes, :body, :now, :now, :checksum)";
        let NewRecord { key, content } = new;
        if self.record(key)?.is_some() {
            return Err(RecordError::Exists { key: key.clone() }.into());
        }
        self.check_record_name(key, content)?;
        let mut record = Record {
            key: key.clone(),
            version: 1,
            content: content.clone(),
            created_at: now,
            updated_at: now,
            number: 0,
        };
        self.connection.prepare_cached(SQL)?.execute(named_params! {
            ":tenant": scope_text(key.scope()),
            ":kind": key.kind().as_str(),
            ":id": key.id(),
            ":name": content.unique_name,
            ":indexes": encode_indexes(&content.indexes),
            ":body": content.body,
            ":now": to_i64(now.millis()),
            ":checksum": checksum(&record),
        })?;
        record.number = u64::try_from(self.connection.last_insert_rowid()).unwrap_or_default();
        self.insert_indexes(&record)?;
        Ok(record)
    }

    fn replace_record(
        &self,
        key: &RecordKey,
        expected: u64,
        content: &RecordContent,
        now: Timestamp,
    ) -> Result<Record, RecordTxError> {
        const SQL: &str = "
            UPDATE records SET version = :version, name = :name, indexes = :indexes, body = :body, updated = :now,
                checksum = :checksum
            WHERE number = :number";
        let Some(mut record) = self.record(key)? else {
            return Err(RecordError::NotFound { key: key.clone() }.into());
        };
        check_version(&record, expected)?;
        self.check_record_name(key, content)?;
        let has_other_indexes = record.content.indexes != content.indexes;
        if has_other_indexes {
            self.delete_indexes(&record)?;
        }
        record.version += 1;
        record.content = content.clone();
        record.updated_at = now.max(record.created_at);
        self.connection.prepare_cached(SQL)?.execute(named_params! {
            ":version": to_i64(record.version),
            ":name": content.unique_name,
            ":indexes": encode_indexes(&content.indexes),
            ":body": content.body,
            ":now": to_i64(record.updated_at.millis()),
            ":checksum": checksum(&record),
            ":number": to_i64(record.number),
        })?;
        if has_other_indexes {
            self.insert_indexes(&record)?;
        }
        Ok(record)
    }

    fn delete_record(&self, key: &RecordKey, expected: Option<u64>) -> Result<Option<Record>, RecordTxError> {
        const SQL: &str = "DELETE FROM records WHERE number = ?";
        let Some(record) = self.record(key)? else { return Ok(None) };
        if let Some(expected) = expected {
            check_version(&record, expected)?;
        }
        self.delete_indexes(&record)?;
        self.connection.prepare_cached(SQL)?.execute(params![to_i64(record.number)])?;
        Ok(Some(record))
    }

    fn insert_indexes(&self, record: &Record) -> Result<(), RecordTxError> {
        const SQL: &str = "INSERT INTO record_indexes (tenant, kind, name, value, created, number) VALUES (?, ?, ?, ?, ?, ?)";
        self.for_each_index(SQL, record)
    }

    fn delete_indexes(&self, record: &Record) -> Result<(), RecordTxError> {
        const SQL: &str = "
            DELETE FROM record_indexes
            WHERE tenant = ? AND kind = ? AND name = ? AND value = ? AND created = ? AND number = ?";
        self.for_each_index(SQL, record)
    }

    fn for_each_index(&self, sql: &str, record: &Record) -> Result<(), RecordTxError> {
        let (tenant, kind) = (scope_text(record.key.scope()), record.key.kind().as_str());
        let (created, number) = (to_i64(record.created_at.millis()), to_i64(record.number));
        let mut statement = self.connection.prepare_cached(sql)?;
        for (name, value) in &record.content.indexes {
            statement.execute(params![tenant, kind, name.as_str(), to_sql(value), created, number])?;
        }
        Ok(())
    }

    /// Checks that no other record has the content's name.
    fn check_record_name(&self, key: &RecordKey, content: &RecordContent) -> Result<(), RecordTxError> {
        const SQL: &str = "SELECT id FROM records WHERE tenant = ? AND kind = ? AND name = ?";
        let Some(name) = &content.unique_name else { return Ok(()) };
        let mut statement = self.connection.prepare_cached(SQL)?;
        let (scope, kind) = (key.scope(), key.kind());
        let owner = statement.query_row(params![scope_text(scope), kind.as_str(), name], |row| row.get(0));
        let owner: Option<String> = owner.optional()?;
        if owner.is_some_and(|owner| owner != key.id()) {
            let (scope, kind, name) = (scope.clone(), kind.clone(), name.clone());
            return Err(RecordError::NameTaken { scope, kind, name }.into());
        }
        Ok(())
    }

    fn record(&self, key: &RecordKey) -> Result<Option<Record>, RecordTxError> {
        let sql = format!("SELECT {COLUMNS} FROM records AS r WHERE tenant = ? AND kind = ? AND id = ?");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let (scope, kind) = (key.scope(), key.kind());
        let mut found = statement.query(params![scope_text(scope), kind.as_str(), key.id()])?;
        found.next()?.map(|row| read(scope, kind, row)).transpose()
    }

    fn record_by_name(
        &self,
        scope: &RecordScope,
        kind: &RecordKind,
        name: &str,
    ) -> Result<Option<Record>, RecordTxError> {
        let sql = format!("SELECT {COLUMNS} FROM records AS r WHERE tenant = ? AND kind = ? AND name = ?");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(params![scope_text(scope), kind.as_str(), name])?;
        found.next()?.map(|row| read(scope, kind, row)).transpose()
    }

    fn query_records(&self, query: &RecordQuery) -> Result<RecordPage, RecordTxError> {
        let limit = query.limit.clamp(1, MAX_LIST_ENTRIES) as usize;
        let QuerySql { sql, parameters } = QuerySql::new(query, limit + 1);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut found = statement.query(rusqlite::params_from_iter(parameters))?;
        let mut page = RecordPage { records: Vec::new(), next: None };
        let mut bytes = 0;
        while let Some(row) = found.next()? {
            let record = read(&query.scope, &query.kind, row)?;
            bytes += record.content.body.len();
            if page.records.len() == limit || (bytes > MAX_PAGE_BYTES && !page.records.is_empty()) {
                page.next = page.records.last().and_then(|last| query.cursor_at(last));
                break;
            }
            page.records.push(record);
        }
        Ok(page)
    }
}

fn check_version(record: &Record, expected: u64) -> Result<(), RecordError> {
    if record.version == expected {
        return Ok(());
    }
    Err(RecordError::VersionConflict { key: record.key.clone(), expected, current: record.version })
}

/// Encodes the column `indexes`, with one line for each index. Names have no `=`, and texts have no control characters.
fn encode_indexes(indexes: &Indexes) -> String {
    let lines = indexes.iter().map(|(name, value)| match value {
        IndexValue::Number(number) => format!("{name}=n{number}\n"),
        IndexValue::Text(text) => format!("{name}=t{text}\n"),
    });
    lines.collect()
}

fn decode_indexes(lines: &str) -> Option<Indexes> {
    let line = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let value = match value.strip_prefix('t') {
            Some(text) => IndexValue::Text(text.to_owned()),
            None => IndexValue::Number(value.strip_prefix('n')?.parse().ok()?),
        };
        Some((IndexName::new(name.to_owned()).ok()?, value))
    };
    lines.split_terminator('\n').map(line).collect()
}

/// The checksum of a record: all of its columns except its number, each preceded by its length.
fn checksum(record: &Record) -> i64 {
    let Record { key, version, content, created_at, updated_at, number: _ } = record;
    let mut hasher = DigestHasher::new();
    let numbers =
        [*version, created_at.millis(), updated_at.millis(), u64::from(content.unique_name.is_some())];
    numbers.iter().for_each(|number| hasher.update(&number.to_le_bytes()));
    let indexes = encode_indexes(&content.indexes);
    let name = content.unique_name.as_deref().unwrap_or_default();
    let (scope, kind) = (scope_text(key.scope()), key.kind().as_str());
    for part in
        [scope, kind, key.id(), name, &indexes].map(str::as_bytes).into_iter().chain([&content.body[..]])
    {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finish();
    let (first, _) = digest.as_bytes().split_at(8);
    i64::from_le_bytes(first.try_into().unwrap_or_default())
}

/// Reads the [`COLUMNS`] of a record of this scope and kind.
fn read(scope: &RecordScope, kind: &RecordKind, row: &Row<'_>) -> Result<Record, RecordTxError> {
    let key =
        RecordKey::new(scope.clone(), kind.clone(), row.get::<_, String>(1)?).map_err(RecordError::from)?;
    let corrupt = |reason: &str| RecordError::Corrupt { key: key.clone(), reason: reason.to_owned() };
    let indexes: String = row.get(4)?;
    let content = RecordContent {
        unique_name: row.get(3)?,
        indexes: decode_indexes(&indexes).ok_or_else(|| corrupt("its indexes cannot be read"))?,
        body: row.get(5)?,
    };
    let record = Record {
        key: key.clone(),
        version: read_u64(row, 2)?,
        content,
        created_at: Timestamp::from_millis(read_u64(row, 6)?),
        updated_at: Timestamp::from_millis(read_u64(row, 7)?),
        number: read_u64(row, 0)?,
    };
    if checksum(&record) == row.get::<_, i64>(8)? {
        Ok(record)
    } else {
        Err(corrupt("its checksum does not fit").into())
    }
}

/// The result of a queued call.
fn outcome<T>(result: Result<T, RecordTxError>) -> Result<Result<T, RecordError>, TxError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(RecordTxError::Rejected(error)) => Ok(Err(error)),
        Err(RecordTxError::Database(error)) => Err(TxError::Database(error)),
    }
}

fn flatten<T: Send + 'static>(result: JournalFuture<Result<T, RecordError>>) -> RecordFuture<T> {
    async move { result.await? }.boxed()
}

fn rejected<T: Send + 'static>(error: RecordError) -> RecordFuture<T> {
    std::future::ready(Err(error)).boxed()
}

impl Records for SqliteJournal {
    fn transact(&self, writes: Vec<RecordWrite>) -> RecordFuture<Vec<Option<Record>>> {
        let scope = match check_writes(&writes) {
            Ok(Some(scope)) => scope,
            Ok(None) => return std::future::ready(Ok(Vec::new())).boxed(),
            Err(error) => return rejected(error),
        };
        let bytes = writes.iter().filter_map(RecordWrite::content).map(|content| content.body.len()).sum();
        flatten(self.submit_write(scope.tenant(), bytes, move |tx| outcome(tx.write_records(&writes))))
    }

    fn get(&self, key: &RecordKey) -> RecordFuture<Option<Record>> {
        let owned = key.clone();
        flatten(self.submit_read(key.scope().tenant(), move |tx| outcome(tx.record(&owned))))
    }

    fn get_by_name(
        &self,
        scope: &RecordScope,
        kind: &RecordKind,
        name: &str,
    ) -> RecordFuture<Option<Record>> {
        let (scope_key, kind, name) = (scope.clone(), kind.clone(), name.to_owned());
        flatten(
            self.submit_read(scope.tenant(), move |tx| outcome(tx.record_by_name(&scope_key, &kind, &name))),
        )
    }

    fn query(&self, query: RecordQuery) -> RecordFuture<RecordPage> {
        if let Err(error) = query.check() {
            return rejected(error);
        }
        let scope = query.scope.clone();
        flatten(self.submit_read(scope.tenant(), move |tx| outcome(tx.query_records(&query))))
    }
}
