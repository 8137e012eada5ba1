//! Where the files of a journal lie, and whether those that are open are still what a restart would find there.
//!
//! A file that was removed or moved away stays writable for whoever has it open: what is written then is lost with the process.
//! So the writer looks at the names before it acknowledges anything. State: which files the database and its log are, for as
//! long as the journal is open.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::fault::of_io;
use crate::error::{Found, JournalError};

/// A file, whatever its name. Never reused while somebody has it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that has this name now, if there is one.
    fn of(path: &Path) -> Result<Option<Self>, JournalError> {
        match std::fs::metadata(path) {
            Ok(found) => Ok(Some(Self { device: found.dev(), inode: found.ino() })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(of_io(&error, "look at", path)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Site {
    database: PathBuf,
    log: PathBuf,
    /// Of the database.
    id: FileId,
    /// The log that the writer has open. Held by whoever reads, so that no log is exchanged under a reader.
    open_log: RwLock<FileId>,
}

impl Site {
    /// Where a database lies that was opened just now.
    pub(crate) fn of(database: &Path) -> Result<Self, JournalError> {
        let found = FileId::of(database)?;
        let id = found.ok_or_else(|| displaced(database, Found::Nothing))?;
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        let found = FileId::of(&log)?;
        let open_log = found.ok_or_else(|| displaced(&log, Found::Nothing))?;
        Ok(Self { database: database.to_owned(), log, id, open_log: RwLock::new(open_log) })
    }

    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Whether the database is where it was opened.
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match FileId::of(&self.database)? {
            Some(id) if id == self.id => Ok(()),
            Some(_) => Err(displaced(&self.database, Found::Another)),
            None => Err(displaced(&self.database, Found::Nothing)),
        }
    }

    /// The log that a connection has open which was opened just now.
    pub(crate) fn log(&self) -> Result<FileId, JournalError> {
        FileId::of(&self.log)?.ok_or_else(|| displaced(&self.log, Found::Nothing))
    }

    /// Whether the log that a connection has open is where it was opened.
    pub(crate) fn check_log(&self, open: FileId) -> Result<(), JournalError> {
        match FileId::of(&self.log)? {
            Some(id) if id == open => Ok(()),
            Some(_) => Err(displaced(&self.log, Found::Another)),
            None => Err(displaced(&self.log, Found::Nothing)),
        }
    }

    /// The log that is read together with the database, which stays the same while this is held.
    pub(crate) fn reading(&self) -> RwLockReadGuard<'_, FileId> {
        self.open_log.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to be exchanged for another: waits for whoever reads; nobody does while it is held.
    pub(crate) fn mending(&self) -> RwLockWriteGuard<'_, FileId> {
        self.open_log.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What failed because the database is not where it was says so.
    pub(crate) fn explain(&self, error: JournalError) -> JournalError {
        self.check().err().unwrap_or(error)
    }
}

fn displaced(path: &Path, found: Found) -> JournalError {
    JournalError::Displaced { path: path.to_owned(), found }
}
