//! Files: one row for each. Its bytes are stored under the file's id among the tenant's files.
//!
//! The bytes are stored before the row, so a crash may leave bytes without a row. A client's deletion removes the row first. The server's own
//! deletions (of expired files, and of a deleted session) remove the row last, because they find what is left by the rows.

use conjure_api::{ById, FileId, FileListQuery, FileMetadata, FilePage, IdPage};
use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_journal::{Direction, IndexName, NewRecord, Record, RecordKind, RecordQuery, Records};

use crate::http::ApiError;
use crate::objects::rows::{CURSOR_PREFIX, Rows, cursor, decode, encode};

static FILE: RecordKind = RecordKind::from_static("file");

/// The session that a file belongs to; empty for an upload.
const SCOPE: IndexName = IndexName::from_static("scope");

/// Whether a file expires: 1 or 0.
const EXPIRES: IndexName = IndexName::from_static("expires");

/// How many files are read at once in the search for expired ones.
const PAGE: u32 = 200;

/// The files of a tenant.
#[derive(Clone, Copy)]
pub(crate) struct Files<'r> {
    rows: Rows<'r>,
}

impl<'r> Files<'r> {
    pub(crate) const fn new(records: &'r dyn Records, tenant: &'r TenantId) -> Self {
        Self { rows: Rows { records, tenant, kind: &FILE } }
    }

    /// Stores the metadata of a file. Its bytes must be stored already.
    pub(crate) async fn insert(&self, file: &FileMetadata) -> Result<FileMetadata, ApiError> {
        let scope = file.scope.as_ref().map(|scope| scope.id.clone()).unwrap_or_default();
        let expires = i64::from(file.expires_at.is_some());
        let content = encode(file)?.with_index(SCOPE, scope).with_index(EXPIRES, expires);
        let record = self.rows.records.insert(NewRecord::new(self.rows.key(file.id)?, content)).await?;
        read(&record)
    }

    /// The metadata of a file.
    pub(crate) async fn get(&self, id: FileId) -> Result<FileMetadata, ApiError> {
        read(&self.rows.get(id).await?)
    }

    /// The metadata of a file whose content is needed. Fails if the file has expired.
    pub(crate) async fn available(&self, id: FileId) -> Result<FileMetadata, ApiError> {
        let file = self.get(id).await?;
        if is_expired(&file) {
            return Err(
                ApiError::not_found(format!("the file {id} has expired")).with_code(Some("file_expired"))
            );
        }
        Ok(file)
    }

    /// The ids of the files that have expired.
    pub(crate) async fn expired(&self) -> Result<Vec<FileId>, ApiError> {
        let query = self.rows.query().with_filter(EXPIRES, 1_i64).with_limit(PAGE);
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self.rows.records.query(query.clone().with_after(after)).await?;
            for record in &page.records {
                let file = read(record)?;
                if is_expired(&file) {
                    ids.push(file.id);
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(ids);
            }
        }
    }

    /// The id of one of the files that belong to a session; `None` if there are none.
    pub(crate) async fn first_of_session(&self, session: SessionId) -> Result<Option<FileId>, ApiError> {
        let query = self.rows.query().with_filter(SCOPE, session.to_string()).with_limit(1);
        let page = self.rows.records.query(query).await?;
        page.records.first().map(|record| read(record).map(|file| file.id)).transpose()
    }

    /// Deletes the row of a file.
    pub(crate) async fn delete(&self, id: FileId) -> Result<(), ApiError> {
        self.rows.delete(id).await
    }

    /// Deletes the row of a file. Returns whether it existed.
    pub(crate) async fn remove(&self, id: FileId) -> Result<bool, ApiError> {
        self.rows.remove(id).await
    }

    /// A page of files, the newest first.
    pub(crate) async fn list(&self, query: &FileListQuery) -> Result<FilePage<FileMetadata>, ApiError> {
        if let Some(ids) = &query.ids {
            return self.with_ids(ids).await;
        }
        let mut wanted = self.rows.query().with_limit(u32::try_from(query.page.limit).unwrap_or(u32::MAX));
        if let Some(scope) = &query.scope_id {
            wanted = wanted.with_filter(SCOPE, scope.as_str());
        }
        match &query.by_id {
            ById { before_id: Some(before), .. } => self.page_before(wanted, before).await,
            ById { after_id: Some(after), .. } => {
                let record = self.element("after_id", after).await?;
                let cursor = wanted.cursor_at(&record);
                self.page_after(wanted.with_after(cursor)).await
            }
            ById { .. } => self.page_after(wanted.with_after(cursor(&query.page)?)).await,
        }
    }

    async fn page_after(&self, query: RecordQuery) -> Result<FilePage<FileMetadata>, ApiError> {
        let found = self.rows.records.query(query).await?;
        let next_page = found.next.map(|cursor| format!("{CURSOR_PREFIX}{cursor}"));
        let data = found.records.iter().map(read).collect::<Result<_, _>>()?;
        Ok(FilePage { by_id: page(data, next_page.is_some()), next_page })
    }

    async fn page_before(
        &self,
        query: RecordQuery,
        before: &str,
    ) -> Result<FilePage<FileMetadata>, ApiError> {
        let record = self.element("before_id", before).await?;
        let query = RecordQuery { direction: Direction::Ascending, ..query };
        let cursor = query.cursor_at(&record);
        let found = self.rows.records.query(query.with_after(cursor)).await?;
        let data = found.records.iter().rev().map(read).collect::<Result<_, _>>()?;
        Ok(FilePage { by_id: page(data, found.next.is_some()), next_page: None })
    }

    /// The file at which a page begins or ends, for older clients.
    async fn element(&self, parameter: &str, id: &str) -> Result<Record, ApiError> {
        let record = match id.parse::<FileId>() {
            Ok(id) => self.rows.find(id).await?,
            Err(_) => None,
        };
        record.ok_or_else(|| {
            ApiError::invalid(format!("{parameter}: there is no file `{id}`; start without it"))
        })
    }

    /// The existing files among these ids, on one page.
    async fn with_ids(&self, ids: &[String]) -> Result<FilePage<FileMetadata>, ApiError> {
        let mut data: Vec<FileMetadata> = Vec::new();
        for id in ids.iter().filter_map(|id| id.parse::<FileId>().ok()) {
            if data.iter().all(|file| file.id != id)
                && let Some(record) = self.rows.find(id).await?
            {
                data.push(read(&record)?);
            }
        }
        Ok(FilePage { by_id: page(data, false), next_page: None })
    }
}

fn page(data: Vec<FileMetadata>, has_more: bool) -> IdPage<FileMetadata> {
    let id = |file: Option<&FileMetadata>| file.map(|file| file.id.to_string());
    IdPage { has_more, first_id: id(data.first()), last_id: id(data.last()), data }
}

fn is_expired(file: &FileMetadata) -> bool {
    file.expires_at.is_some_and(|time| time.0 <= SystemClock.timestamp())
}

/// Decodes a file from its row. Its creation time is that of the row, which orders lists.
fn read(record: &Record) -> Result<FileMetadata, ApiError> {
    let file: FileMetadata = decode(record)?;
    Ok(FileMetadata { created_at: record.created_at.into(), ..file })
}

#[cfg(test)]
mod tests {
    use conjure_api::Time;
    use conjure_base::Timestamp;
    use conjure_journal::MemoryRecords;

    use super::*;

    #[tokio::test]
    async fn only_files_whose_time_is_over_have_expired() {
        let (records, tenant) = (MemoryRecords::new(), TenantId::new("acme").unwrap());
        let files = Files::new(&records, &tenant);
        let mut ids = Vec::new();
        for expires_at in [None, Some(Timestamp::from_millis(1)), Some(Timestamp::from_millis(u64::MAX / 2))]
        {
            let file = FileMetadata {
                id: FileId::random().unwrap(),
                created_at: Time::default(),
                downloadable: None,
                expires_at: expires_at.map(Time),
                filename: "a.txt".to_owned(),
                mime_type: "text/plain".to_owned(),
                scope: None,
                size_bytes: 1,
            };
            ids.push(files.insert(&file).await.unwrap().id);
        }
        let over = ids[1];
        assert_eq!(files.expired().await.unwrap(), [over]);
        files.available(over).await.unwrap_err();
        assert_eq!(files.get(over).await.unwrap().id, over, "its metadata is there until it is deleted");
        assert!(files.remove(over).await.unwrap());
        assert_eq!(files.expired().await.unwrap(), []);
        files.available(ids[2]).await.unwrap();
    }
}
