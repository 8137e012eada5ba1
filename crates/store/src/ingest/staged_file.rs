//! The temporary file of a content that is being written. Its writer locks it, and links it to its name when it is complete.
//!
//! A writer that is killed leaves the file without its lock; [`crate::Store::sweep`] removes it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::Digest;
use rustix::fs::{AtFlags, FlockOperation, Mode};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::store::{Durability, Inner};
use crate::store_dirs::content_name;

/// How often a new file is created when a sweep mistakes the previous one for a leftover.
const MAX_ATTEMPTS: u32 = 1000;

pub(crate) struct StagedFile {
    store: Arc<Inner>,
    mode: FileMode,
    staged: conjure_fs::StagedFile,
}

impl StagedFile {
    /// Creates an empty file.
    pub(crate) fn new(store: &Arc<Inner>, mode: FileMode) -> Result<Self, StoreError> {
        let dirs = &store.dirs;
        for _ in 0..MAX_ATTEMPTS {
            let staged = conjure_fs::StagedFile::create(dirs.temp_dir(), Mode::RUSR | Mode::WUSR);
            let mut staged =
                staged.map_err(|error| StoreError::from_io(error, "write", &dirs.temp_path("")))?;
            let failed = |errno, name: &str| StoreError::from_errno(errno, "write", &dirs.temp_path(name));
            // A sweep may run between creation and lock: then it holds the lock, or has removed the file. The lock
            // lasts as long as the file is open.
            if rustix::fs::flock(staged.file(), FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let stat = rustix::fs::fstat(staged.file()).map_err(|errno| failed(errno, staged.name()))?;
            if stat.st_nlink == 0 {
                continue;
            }
            // From now on only this process can write to it.
            rustix::fs::fchmod(staged.file(), mode.permissions())
                .map_err(|errno| failed(errno, staged.name()))?;
            return Ok(Self { store: Arc::clone(store), mode, staged });
        }
        Err(StoreError::from_errno(Errno::EXIST, "write", &dirs.temp_path("")))
    }

    pub(crate) const fn file(&mut self) -> &mut File {
        self.staged.file()
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.store.dirs.temp_path(self.staged.name())
    }

    /// Waits until the content is on the disk, unless the store's durability is [`Durability::Process`].
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        if self.store.options.durability == Durability::Process {
            return Ok(());
        }
        self.staged.sync_data().map_err(|error| StoreError::from_io(error, "write", &self.path()))
    }

    /// Links the file to the name of its content. Returns whether the content is new. If it exists, this file is removed.
    pub(crate) fn commit(self, digest: &Digest) -> Result<bool, StoreError> {
        let (store, mode) = (&self.store, self.mode);
        let dirs = &store.dirs;
        let path = dirs.content_path(digest, mode);
        let failed = |errno| StoreError::from_errno(errno, "write", &path);
        let name = content_name(digest);
        let link = || {
            rustix::fs::linkat(
                dirs.temp_dir(),
                self.staged.name(),
                dirs.content_dir(mode),
                name.as_str(),
                AtFlags::empty(),
            )
        };
        let linked = match link() {
            Err(Errno::NOENT) => {
                dirs.create_shard(digest, mode).map_err(failed)?;
                link()
            }
            other => other,
        };
        match linked {
            Ok(()) => {}
            // Another writer has inserted the content first. A garbage collection may remove that content before it
            // is marked; then this file is linked.
            Err(Errno::EXIST) => {
                let is_there = store.contains_and_mark(&store.lock_against_gc()?, digest, mode)?;
                return if is_there { Ok(false) } else { self.commit(digest) };
            }
            Err(errno) => return Err(failed(errno)),
        }
        store.sync_name(digest, mode)?;
        Ok(true)
    }
}
