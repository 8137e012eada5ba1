//! Paths of the database and WAL, and a check that the open files are still the ones at those paths.
//! A removed or moved file stays writable while it is open, but the new data is lost with the process. So the writer checks the paths
//! before it acknowledges anything.
//!
//! A connection to a copy at the database's path would use the database's WAL: it would merge the WAL into the copy and remove it. So each
//! new connection is checked before it uses the WAL.
//!
//! State: the identities of the database file and the WAL file, while the journal is open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use conjure_base::{FileId, lock};
use rusqlite::{Connection, FileControl, MAIN_DB};

use super::error_map::{map_io_error, map_sqlite_error};
use crate::error::{FoundInstead, JournalError};

/// The identity of the file at this path, if there is one. The system does not reuse an identity while its file is open.
fn file_id(path: &Path) -> Result<Option<FileId>, JournalError> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(FileId::from(&found))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(map_io_error(&error, "look at", path)),
    }
}

/// How often the WAL check is repeated: both files may be moved away and back between two checks.
const CHECK_RETRIES: usize = 16;

#[derive(Debug)]
pub(crate) struct DatabaseFiles {
    database: PathBuf,
    wal: PathBuf,
    /// The identity of the database file.
    id: FileId,
    /// The WAL that the writer has open. Readers hold the lock, so that the WAL is not replaced during a read.
    open_wal: RwLock<FileId>,
    /// The same WAL, locked while a connection is closed.
    closing: Mutex<FileId>,
}

/// The exclusive right to replace the WAL.
pub(crate) struct WalReplacement<'a> {
    files: &'a DatabaseFiles,
    wal: RwLockWriteGuard<'a, FileId>,
}

impl WalReplacement<'_> {
    pub(crate) fn set(&mut self, wal: FileId) {
        *self.wal = wal;
        *self.files.lock_for_close() = wal;
    }
}

impl DatabaseFiles {
    /// The files of a database that this connection has just opened.
    pub(crate) fn of(connection: &Connection, database: &Path) -> Result<Self, JournalError> {
        let found = file_id(database)?;
        let id = found.ok_or_else(|| database_moved(database, FoundInstead::Nothing))?;
        let mut wal = database.as_os_str().to_owned();
        wal.push("-wal");
        let wal = PathBuf::from(wal);
        let found = file_id(&wal)?;
        let open_wal = found.ok_or_else(|| database_moved(&wal, FoundInstead::Nothing))?;
        let files = Self {
            database: database.to_owned(),
            wal,
            id,
            open_wal: RwLock::new(open_wal),
            closing: Mutex::new(open_wal),
        };
        files.check_connection(connection)?;
        Ok(files)
    }

    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Checks that the database file is still at its path.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match file_id(&self.database)? {
            Some(id) if id == self.id => Ok(()),
            Some(_) => Err(database_moved(&self.database, FoundInstead::Another)),
            None => Err(database_moved(&self.database, FoundInstead::Nothing)),
        }
    }

    /// Checks that a connection has opened the database file, and not another file that was at its path for a moment.
    pub(crate) fn check_connection(&self, connection: &Connection) -> Result<(), JournalError> {
        // The order matters: if the path is the database's now, a connection to another file has lost its path.
        self.check()?;
        match has_moved_file(connection, &self.database)? {
            false => Ok(()),
            true => Err(self.moved_error(database_moved(&self.database, FoundInstead::Another))),
        }
    }

    /// The WAL of a connection that was opened just now.
    pub(crate) fn current_wal(&self) -> Result<FileId, JournalError> {
        file_id(&self.wal)?.ok_or_else(|| database_moved(&self.wal, FoundInstead::Nothing))
    }

    /// Checks that this WAL is still at its path.
    pub(crate) fn check_wal(&self, open: FileId) -> Result<(), JournalError> {
        match file_id(&self.wal)? {
            Some(id) if id == open => Ok(()),
            Some(_) => Err(database_moved(&self.wal, FoundInstead::Another)),
            None => Err(database_moved(&self.wal, FoundInstead::Nothing)),
        }
    }

    /// Whether this WAL is not at its path although the database is.
    pub(crate) fn has_lost_wal(&self, wal: FileId) -> Result<bool, JournalError> {
        for _ in 0..CHECK_RETRIES {
            self.check()?;
            if self.check_wal(wal).is_ok() {
                return Ok(false);
            }
        }
        self.check()?;
        Ok(true)
    }

    /// The current WAL. It is not replaced while the guard is held.
    pub(crate) fn read_wal(&self) -> RwLockReadGuard<'_, FileId> {
        self.open_wal.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the WAL to replace it. It waits for readers, and blocks them while it is held.
    pub(crate) fn replace_wal(&self) -> WalReplacement<'_> {
        let wal = self.open_wal.write().unwrap_or_else(PoisonError::into_inner);
        WalReplacement { files: self, wal }
    }

    /// Locks the closing of connections.
    ///
    /// The last connection merges the WAL into the database. If two closed at the same time, each might leave that to the other, and a WAL
    /// that was moved would be lost. Only a connection that has the current WAL open may merge it.
    pub(crate) fn lock_for_close(&self) -> MutexGuard<'_, FileId> {
        lock(&self.closing)
    }

    /// Returns `DatabaseMoved` if the database is not at its path, otherwise the given error.
    pub(crate) fn moved_error(&self, error: JournalError) -> JournalError {
        self.check().err().unwrap_or(error)
    }
}

/// Whether the path of a connection's database now has another file or none.
fn has_moved_file(connection: &Connection, path: &Path) -> Result<bool, JournalError> {
    let mut has_moved = 0;
    let result = connection.file_control(Some(MAIN_DB), FileControl::HasMoved(&mut has_moved));
    result.map_err(|error| map_sqlite_error(&error, path))?;
    Ok(has_moved != 0)
}

fn database_moved(path: &Path, found: FoundInstead) -> JournalError {
    JournalError::DatabaseMoved { path: path.to_owned(), found }
}
