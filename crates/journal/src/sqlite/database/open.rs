//! Opens the directory and the database in it.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_base::FileId;
use conjure_fs::{FileLock, ensure_dir};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::database_files::DatabaseFiles;
use super::error_map::{map_io_error, map_sqlite_error};
use super::schema::{STEPS, migrate};
use crate::error::JournalError;
use crate::sqlite::options::SqliteOptions;

/// The name of the database in its directory.
const DATABASE: &str = "journal.sqlite";

/// The size of each connection's statement cache: it fits all statements but rare queries of records.
const STATEMENTS: usize = 128;

/// The pages of the WAL before a checkpoint. Pages that are written repeatedly, like those of indexes, are then merged only once.
const WAL_PAGES: i64 = 8_192;

/// The page cache of the writer, in KiB.
const CACHE_KIB: i64 = 16_384;

/// The WAL is truncated to this size after a checkpoint.
const MAX_WAL_BYTES: i64 = 64 << 20;

/// Creates the directory if it is missing, and returns the database's path in it.
pub(crate) fn prepare_dir(dir: &Path) -> Result<PathBuf, JournalError> {
    let is_new = !dir.is_dir();
    ensure_dir(dir).map_err(|error| map_io_error(&error, "create the directory", dir))?;
    // SQLite takes a path that begins with `file:` for a URI, so the path is made absolute.
    let dir = dir.canonicalize().map_err(|error| map_io_error(&error, "open", dir))?;
    if is_new && let Some(parent) = dir.parent() {
        sync_dir(parent)?;
    }
    Ok(dir.join(DATABASE))
}

/// A connection whose closing is serialised with the others of the same database.
pub(crate) struct ConnectionGuard {
    /// `None` only while it is closed on drop.
    connection: Option<Connection>,
    files: Arc<DatabaseFiles>,
    /// The WAL that it has open, if known.
    wal: Option<FileId>,
}

impl ConnectionGuard {
    const fn new(connection: Connection, files: Arc<DatabaseFiles>) -> Self {
        Self { connection: Some(connection), files, wal: None }
    }

    const fn with_wal(mut self, wal: FileId) -> Self {
        self.wal = Some(wal);
        self
    }
}

impl Deref for ConnectionGuard {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "it is taken when this is dropped, and not before")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is open")
    }
}

impl DerefMut for ConnectionGuard {
    #[expect(clippy::expect_used, reason = "it is taken when this is dropped, and not before")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is open")
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let wal = self.files.lock_for_close();
        let connection = self.connection.take();
        if self.wal != Some(*wal)
            && let Some(connection) = &connection
        {
            // As the last connection it would merge an old WAL by the index of the current one, and then remove the current one.
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        drop(connection);
    }
}

/// The writer's connection, and its WAL.
pub(crate) struct WriteConnection {
    pub(crate) connection: ConnectionGuard,
    pub(crate) wal: FileId,
}

/// Opens the database for writing. Creates it if it is missing, and migrates it to the current format.
pub(crate) fn open_database(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(WriteConnection, Arc<DatabaseFiles>), JournalError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    // The lock serialises processes that create or migrate the same database.
    let _lock = lock(&dir.join("lock"))?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    prepare_to_write(&connection, path, options)?;
    migrate(&mut connection, path, &STEPS)?;
    // The limit comes last: a full database can still be opened and migrated.
    limit_size(&connection, options).map_err(|error| map_sqlite_error(&error, path))?;
    sync_dir(dir)?;
    let files = Arc::new(DatabaseFiles::of(&connection, path)?);
    let wal = *files.read_wal();
    let connection = ConnectionGuard::new(connection, Arc::clone(&files)).with_wal(wal);
    Ok((WriteConnection { connection, wal }, files))
}

/// Opens a write connection to a database that was open before. A missing one is not created.
pub(crate) fn open_writer(
    files: &Arc<DatabaseFiles>,
    options: &SqliteOptions,
) -> Result<WriteConnection, JournalError> {
    let connection = reconnect(files)?;
    let failed = |error: rusqlite::Error| map_sqlite_error(&error, files.database());
    let prepared = prepare_to_write(&connection, files.database(), options)
        .and_then(|()| limit_size(&connection, options).map_err(failed));
    prepared.map_err(|error| files.moved_error(error))?;
    files.check()?;
    let wal = files.current_wal()?;
    Ok(WriteConnection { connection: connection.with_wal(wal), wal })
}

/// A new connection, which has not read anything yet: its WAL is not open.
pub(crate) fn connect(path: &Path, more: OpenFlags) -> Result<Connection, JournalError> {
    // Readers need write access too: the last connection merges the WAL when it is closed.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE
        | more;
    Connection::open_with_flags(path, flags).map_err(|error| map_sqlite_error(&error, path))
}

/// A new connection to a database that was open before.
fn reconnect(files: &Arc<DatabaseFiles>) -> Result<ConnectionGuard, JournalError> {
    files.check()?;
    let connection =
        connect(files.database(), OpenFlags::empty()).map_err(|error| files.moved_error(error))?;
    let connection = ConnectionGuard::new(connection, Arc::clone(files));
    files.check_connection(&connection)?;
    Ok(connection)
}

/// Configures a write connection, except for the size limit.
fn prepare_to_write(
    connection: &Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<(), JournalError> {
    let failed = |error: rusqlite::Error| map_sqlite_error(&error, path);
    // SQLite opens a file without write permission for reading.
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(JournalError::ReadOnly { path: path.to_owned() });
    }
    connection.busy_timeout(options.busy_timeout).map_err(failed)?;
    let set = |name: &str, value: &dyn rusqlite::ToSql| {
        // Some pragmas return the new value.
        connection.pragma_update_and_check(None, name, value, |_| Ok(())).or_else(ignore_no_rows)
    };
    let configured = stable_plans(connection)
        .and_then(|()| set("journal_mode", &"WAL"))
        .and_then(|()| set("synchronous", &"FULL"))
        .and_then(|()| set("wal_autocheckpoint", &WAL_PAGES))
        .and_then(|()| set("cache_size", &-CACHE_KIB))
        .and_then(|()| set("journal_size_limit", &MAX_WAL_BYTES))
        // Deleted content is overwritten; deletions are rare.
        .and_then(|()| set("secure_delete", &"ON"))
        .and_then(|()| set("trusted_schema", &"OFF"));
    configured.map_err(failed)?;
    force_open_wal(connection).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Opens a read connection with this WAL.
pub(crate) fn open_reader(
    files: &Arc<DatabaseFiles>,
    wal: FileId,
    options: &SqliteOptions,
) -> Result<ConnectionGuard, JournalError> {
    let connection = reconnect(files)?;
    let prepared = prepare_to_read(&connection, options);
    prepared.map_err(|error| files.moved_error(map_sqlite_error(&error, files.database())))?;
    files.check()?;
    files.check_wal(wal)?;
    Ok(connection.with_wal(wal))
}

fn prepare_to_read(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    connection.busy_timeout(options.busy_timeout)?;
    connection.pragma_update(None, "query_only", "ON")?;
    stable_plans(connection)?;
    force_open_wal(connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Keeps the plans of prepared statements. Otherwise SQLite plans some statements anew for each value.
fn stable_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Reads the schema, so that SQLite opens the WAL, or creates it.
fn force_open_wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Merges the WAL into the database durably, and truncates it.
pub(crate) fn merge_wal(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let merged = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match merged {
        Ok(0) => Ok(()),
        Ok(_) => Err(JournalError::Locked { path: path.to_owned() }),
        Err(error) => Err(map_sqlite_error(&error, path)),
    }
}

fn limit_size(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    let Some(bytes) = options.max_bytes else { return Ok(()) };
    let page: i64 = connection.query_row("SELECT page_size FROM pragma_page_size", [], |row| row.get(0))?;
    let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
    let updated = connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()));
    updated.or_else(ignore_no_rows)
}

fn ignore_no_rows(error: rusqlite::Error) -> rusqlite::Result<()> {
    match error {
        rusqlite::Error::QueryReturnedNoRows => Ok(()),
        other => Err(other),
    }
}

/// Locks the directory.
fn lock(path: &Path) -> Result<FileLock, JournalError> {
    let locked = FileLock::open(path).and_then(FileLock::exclusive);
    locked.map_err(|errno| map_io_error(&errno.into(), "lock", path))
}

/// Flushes the entries of a directory to the disk.
pub(crate) fn sync_dir(path: &Path) -> Result<(), JournalError> {
    conjure_fs::sync_dir(path).map_err(|error| map_io_error(&error, "write", path))
}
