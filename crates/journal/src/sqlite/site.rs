//! Where the files of a journal lie, and whether those that are open are still what a restart would find there.
//!
//! A file that was removed or moved away stays writable for whoever has it open: what is written then is lost with the process.
//! So the writer looks at the names before it acknowledges anything. And a connection to a copy that has the database's name
//! for a moment would take the database's log for its own: it would merge that into the copy, and remove it. So whoever
//! connects looks at what is open before anything touches the log. State: which files the database and its log are, for as long
//! as the journal is open.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rusqlite::{Connection, FileControl, MAIN_DB};

use super::fault::{of_io, of_sqlite};
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

/// How often the log is looked for where its database is: both may be moved away and back between two looks.
const LOOKS: usize = 16;

#[derive(Debug)]
pub(crate) struct Site {
    database: PathBuf,
    log: PathBuf,
    /// Of the database.
    id: FileId,
    /// The log that the writer has open. Held by whoever reads, so that no log is exchanged under a reader.
    open_log: RwLock<FileId>,
    /// The same log. Held by whoever closes a connection.
    closing: Mutex<FileId>,
}

/// The right to exchange the log that is read.
pub(crate) struct Mending<'a> {
    site: &'a Site,
    log: RwLockWriteGuard<'a, FileId>,
}

impl Mending<'_> {
    pub(crate) fn set(&mut self, log: FileId) {
        *self.log = log;
        *self.site.closing() = log;
    }
}

impl Site {
    /// Where the database lies that this connection opened just now.
    pub(crate) fn of(connection: &Connection, database: &Path) -> Result<Self, JournalError> {
        let found = FileId::of(database)?;
        let id = found.ok_or_else(|| displaced(database, Found::Nothing))?;
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let log = PathBuf::from(log);
        let found = FileId::of(&log)?;
        let open_log = found.ok_or_else(|| displaced(&log, Found::Nothing))?;
        let site = Self {
            database: database.to_owned(),
            log,
            id,
            open_log: RwLock::new(open_log),
            closing: Mutex::new(open_log),
        };
        site.check_opened(connection)?;
        Ok(site)
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

    /// Whether what a connection has open is the database, and not another file that had its name for a moment.
    pub(crate) fn check_opened(&self, connection: &Connection) -> Result<(), JournalError> {
        // In this order: the name was the database's, so for a connection to any other file it is not that file's.
        self.check()?;
        match has_lost_its_name(connection, &self.database)? {
            false => Ok(()),
            true => Err(self.explain(displaced(&self.database, Found::Another))),
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

    /// Whether the log that was opened is not where it was, although the database is.
    pub(crate) fn has_lost(&self, log: FileId) -> Result<bool, JournalError> {
        for _ in 0..LOOKS {
            self.check()?;
            if self.check_log(log).is_ok() {
                return Ok(false);
            }
        }
        self.check()?;
        Ok(true)
    }

    /// The log that is read together with the database, which stays the same while this is held.
    pub(crate) fn reading(&self) -> RwLockReadGuard<'_, FileId> {
        self.open_log.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to be exchanged for another: waits for whoever reads; nobody does while it is held.
    pub(crate) fn mending(&self) -> Mending<'_> {
        let log = self.open_log.write().unwrap_or_else(PoisonError::into_inner);
        Mending { site: self, log }
    }

    /// To be held while a connection is closed: the last one merges the log into the database, and of two who close at once each may
    /// think that the other goes on. A log that has lost its name would be lost then. Only who has this log open is to merge it.
    pub(crate) fn closing(&self) -> MutexGuard<'_, FileId> {
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What failed because the database is not where it was says so.
    pub(crate) fn explain(&self, error: JournalError) -> JournalError {
        self.check().err().unwrap_or(error)
    }
}

/// Whether the name under which a connection opened its database is now another file's, or nobody's.
fn has_lost_its_name(connection: &Connection, path: &Path) -> Result<bool, JournalError> {
    let mut has_moved = 0;
    let asked = connection.file_control(Some(MAIN_DB), FileControl::HasMoved(&mut has_moved));
    asked.map_err(|error| of_sqlite(&error, path))?;
    Ok(has_moved != 0)
}

fn displaced(path: &Path, found: Found) -> JournalError {
    JournalError::Displaced { path: path.to_owned(), found }
}
