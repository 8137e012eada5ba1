//! Opening the folder and the database in it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::fault::{of_io, of_sqlite};
use super::options::SqliteOptions;
use super::schema::{STEPS, migrate};
use super::site::{FileId, Site};
use crate::error::JournalError;

/// The name of the database in its folder.
const DATABASE: &str = "journal.sqlite";

/// Prepared statements that are kept for each connection: all that there are.
const STATEMENTS: usize = 64;

/// So many pages the log has before it is merged into the database: pages that are written again and again, as those of
/// indexes are, are merged once.
const LOG_PAGES: i64 = 8_192;

/// Kibibytes of pages that the writer keeps in memory.
const CACHE_KIB: i64 = 16_384;

/// After a checkpoint the log is cut to so many bytes, however large it was.
const LOG_BYTES: i64 = 64 << 20;

/// Makes the folder if it is missing, and gives the database's path in it.
pub(crate) fn prepare(folder: &Path) -> Result<PathBuf, JournalError> {
    let is_new = !folder.is_dir();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| of_io(&error, "make the folder", folder))?;
    // SQLite takes a path that begins with `file:` for a URI; an absolute one begins with a slash.
    let folder = folder.canonicalize().map_err(|error| of_io(&error, "open", folder))?;
    if is_new && let Some(above) = folder.parent() {
        sync_folder(above)?;
    }
    Ok(folder.join(DATABASE))
}

/// A connection that is closed while no other of its site is, whatever ends its thread.
pub(crate) struct Opened {
    /// Taken when it is closed.
    connection: Option<Connection>,
    site: Arc<Site>,
    /// The log that it has open, where that is known.
    log: Option<FileId>,
}

impl Opened {
    const fn new(connection: Connection, site: Arc<Site>) -> Self {
        Self { connection: Some(connection), site, log: None }
    }

    const fn with_log(mut self, log: FileId) -> Self {
        self.log = Some(log);
        self
    }
}

impl Deref for Opened {
    type Target = Connection;

    #[expect(clippy::expect_used, reason = "it is taken when this is dropped, and not before")]
    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is open")
    }
}

impl DerefMut for Opened {
    #[expect(clippy::expect_used, reason = "it is taken when this is dropped, and not before")]
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is open")
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let log = self.site.closing();
        let connection = self.connection.take();
        if self.log != Some(*log)
            && let Some(connection) = &connection
        {
            // As the last one it would merge an older log by the index of this one, and then remove this one.
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        drop(connection);
    }
}

/// A connection that writes, and the log that it writes to.
pub(crate) struct Writable {
    pub(crate) connection: Opened,
    pub(crate) log: FileId,
}

/// Opens the database for writing, makes it if it is missing, and brings it to the present format.
pub(crate) fn open(path: &Path, options: &SqliteOptions) -> Result<(Writable, Arc<Site>), JournalError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Two who make the same database, or change its format, take turns.
    let _lock = lock(&folder.join("lock"))?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    prepare_to_write(&connection, path, options)?;
    migrate(&mut connection, path, &STEPS)?;
    // Only now: what is full can be opened, though a new format needs more room.
    limit_size(&connection, options).map_err(|error| of_sqlite(&error, path))?;
    sync_folder(folder)?;
    let site = Arc::new(Site::of(&connection, path)?);
    let log = *site.reading();
    let connection = Opened::new(connection, Arc::clone(&site)).with_log(log);
    Ok((Writable { connection, log }, site))
}

/// A connection that writes, to a database that was open before. One that is missing is not made.
pub(crate) fn writer(site: &Arc<Site>, options: &SqliteOptions) -> Result<Writable, JournalError> {
    let connection = connect_again(site)?;
    let failed = |error: rusqlite::Error| of_sqlite(&error, site.database());
    let prepared = prepare_to_write(&connection, site.database(), options)
        .and_then(|()| limit_size(&connection, options).map_err(failed));
    prepared.map_err(|error| site.explain(error))?;
    site.check()?;
    let log = site.log()?;
    Ok(Writable { connection: connection.with_log(log), log })
}

/// A connection to a database, of which nothing was read yet: its log is not open.
pub(crate) fn connect(path: &Path, more: OpenFlags) -> Result<Connection, JournalError> {
    // Also one that only reads: whoever is the last to close the database merges the log into it, so it must be able to write.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE
        | more;
    Connection::open_with_flags(path, flags).map_err(|error| of_sqlite(&error, path))
}

/// The same to one that was open before, and is where it was.
fn connect_again(site: &Arc<Site>) -> Result<Opened, JournalError> {
    site.check()?;
    let connection = connect(site.database(), OpenFlags::empty()).map_err(|error| site.explain(error))?;
    let connection = Opened::new(connection, Arc::clone(site));
    site.check_opened(&connection)?;
    Ok(connection)
}

/// But for how large it may become.
fn prepare_to_write(
    connection: &Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<(), JournalError> {
    let failed = |error: rusqlite::Error| of_sqlite(&error, path);
    // SQLite opens for reading what it may not write.
    if connection.is_readonly(MAIN_DB).map_err(failed)? {
        return Err(JournalError::ReadOnly { path: path.to_owned() });
    }
    connection.busy_timeout(options.busy_timeout).map_err(failed)?;
    let set = |name: &str, value: &dyn rusqlite::ToSql| {
        // Some answer with the new value.
        connection.pragma_update_and_check(None, name, value, |_| Ok(())).or_else(ignore_no_rows)
    };
    let configured = set("journal_mode", &"WAL")
        .and_then(|()| set("synchronous", &"FULL"))
        .and_then(|()| set("wal_autocheckpoint", &LOG_PAGES))
        .and_then(|()| set("cache_size", &-CACHE_KIB))
        .and_then(|()| set("journal_size_limit", &LOG_BYTES))
        // What was deleted is overwritten; deleting is rare.
        .and_then(|()| set("secure_delete", &"ON"))
        .and_then(|()| set("trusted_schema", &"OFF"));
    configured.map_err(failed)?;
    look_into(connection).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// A connection that reads the database and this log.
pub(crate) fn reader(site: &Arc<Site>, log: FileId, options: &SqliteOptions) -> Result<Opened, JournalError> {
    let connection = connect_again(site)?;
    let prepared = prepare_to_read(&connection, options);
    prepared.map_err(|error| site.explain(of_sqlite(&error, site.database())))?;
    site.check()?;
    site.check_log(log)?;
    Ok(connection.with_log(log))
}

fn prepare_to_read(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    connection.busy_timeout(options.busy_timeout)?;
    connection.pragma_update(None, "query_only", "ON")?;
    look_into(connection)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// The first look into a database opens its log, and makes it where there is none.
fn look_into(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Merges all of the log into the database, durably, and empties it.
pub(crate) fn merge_log(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let merged = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    match merged {
        Ok(0) => Ok(()),
        Ok(_) => Err(JournalError::Locked { path: path.to_owned() }),
        Err(error) => Err(of_sqlite(&error, path)),
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

/// Holds the lock of the folder until what is returned is dropped.
fn lock(path: &Path) -> Result<File, JournalError> {
    let failed = |error| of_io(&error, "lock", path);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// Waits until the names in a folder are on the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), JournalError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| of_io(&error, "write", path))
}
