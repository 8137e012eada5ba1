//! The schema, and the migration of older formats.
//! The format is SQLite's `user_version`. A database of format N has the first N steps; a migration runs the others and writes the number in
//! one transaction. Released steps never change: `tests/golden` has a database of each format.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error_map::map_sqlite_error;
use crate::error::JournalError;

/// SQLite's `application_id`: "CnjJ".
const APPLICATION: i64 = 0x436e_6a4a;

/// The steps, in order.
pub(crate) const STEPS: [&str; 4] = [FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4];

/// `sessions.id` is never reused, because the events of a deleted session are removed later. Exactly one of `body` and `blob` is set; `blob`
/// is the digest of a body in the store. `rows.rs` defines `checksum`.
const FORMAT_1: &str = "
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL,
        session BLOB NOT NULL CHECK (length(session) = 16),
        events INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        owner TEXT,
        lease_until INTEGER NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        UNIQUE (tenant, session)
    ) STRICT;
    CREATE INDEX sessions_in_order ON sessions (tenant, id);
    CREATE TABLE events (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        kind TEXT NOT NULL,
        version INTEGER NOT NULL,
        body BLOB,
        blob BLOB,
        checksum INTEGER NOT NULL,
        PRIMARY KEY (session, seq),
        CHECK ((body IS NULL) <> (blob IS NULL))
    ) STRICT;
    CREATE INDEX events_blob ON events (session, blob) WHERE blob IS NOT NULL;
    CREATE TABLE snapshots (
        session INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        version INTEGER NOT NULL,
        body BLOB,
        blob BLOB,
        checksum INTEGER NOT NULL,
        CHECK ((body IS NULL) <> (blob IS NULL))
    ) STRICT;
    CREATE TABLE garbage_sessions (session INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE garbage_blobs (tenant TEXT PRIMARY KEY) STRICT;
";

/// Counters are deleted with their tenant.
const FORMAT_2: &str = "
    CREATE TABLE counters (
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        count INTEGER NOT NULL CHECK (count >= 0),
        PRIMARY KEY (tenant, name)
    ) STRICT, WITHOUT ROWID;
";

/// `sessions.bytes` is the size of a session's events in the database: 64 bytes for each, its kind, and an inline body.
const FORMAT_3: &str = "
    ALTER TABLE sessions ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0);
    UPDATE sessions SET bytes = counted.bytes FROM (
        SELECT session, sum(64 + octet_length(kind) + coalesce(octet_length(body), 0)) AS bytes
        FROM events GROUP BY session
    ) AS counted WHERE counted.session = sessions.id;
";

/// `records.tenant` is empty for records of no tenant. `records.number` is never reused, because cursors name it. `record_indexes` has a
/// row for each value of `records.indexes`; a value is an integer or a text.
///
/// `sessions.status` and `sessions.row` are the row that the last append stored. They are null for a session that was last written
/// in an earlier format. Of a tenant's sessions, a later one never has an earlier creation time.
const FORMAT_4: &str = "
    CREATE TABLE records (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        id TEXT NOT NULL,
        version INTEGER NOT NULL CHECK (version > 0),
        name TEXT,
        indexes TEXT NOT NULL,
        body BLOB NOT NULL,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        UNIQUE (tenant, kind, id)
    ) STRICT;
    CREATE UNIQUE INDEX records_by_name ON records (tenant, kind, name) WHERE name IS NOT NULL;
    CREATE INDEX records_by_time ON records (tenant, kind, created, number);
    CREATE TABLE record_indexes (
        tenant TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        value ANY NOT NULL,
        created INTEGER NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (tenant, kind, name, value, created, number)
    ) STRICT, WITHOUT ROWID;
    ALTER TABLE sessions ADD COLUMN status INTEGER;
    ALTER TABLE sessions ADD COLUMN row_version INTEGER;
    ALTER TABLE sessions ADD COLUMN row BLOB;
    ALTER TABLE sessions ADD COLUMN row_checksum INTEGER;
    UPDATE sessions SET created = ordered.created FROM (
        SELECT id, max(created) OVER (PARTITION BY tenant ORDER BY id) AS created FROM sessions
    ) AS ordered WHERE ordered.id = sessions.id AND ordered.created > sessions.created;
    CREATE INDEX sessions_by_time ON sessions (tenant, created, id);
    CREATE INDEX sessions_by_status ON sessions (tenant, status, id) WHERE status IS NOT NULL;
    CREATE INDEX sessions_at_work ON sessions (id) WHERE status = 1;
";

/// Migrates the database to the current format.
pub(crate) fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), JournalError> {
    let failed = |error: rusqlite::Error| map_sqlite_error(&error, path);
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    // Checked again under the lock: another process may migrate it at the same time.
    if version(connection, path, known)? == known {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction, path, known)?;
    for step in steps.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
    transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// The format of the database, 0 for an empty one.
fn version(connection: &Connection, path: &Path, known: i64) -> Result<i64, JournalError> {
    let failed = |error: rusqlite::Error| map_sqlite_error(&error, path);
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    let application = number("SELECT application_id FROM pragma_application_id")?;
    let found = number("SELECT user_version FROM pragma_user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    let is_new = application == 0 && found == 0 && tables == 0;
    if !is_new && (application != APPLICATION || found < 1) {
        let reason = "it is a database of another program".to_owned();
        return Err(JournalError::NotAJournal { path: path.to_owned(), reason });
    }
    if found > known {
        return Err(JournalError::NewerFormat { path: path.to_owned(), found, known });
    }
    Ok(found)
}
