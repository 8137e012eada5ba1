//! The temporary file of a content that is being written. Its writer locks it, and links it to its name when it is complete.
//!
//! A writer that is killed leaves the file without its lock; [`crate::Store::sweep`] removes it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::Digest;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::store::{Durability, Inner};
use crate::store_dirs::content_name;

/// The number of names to try. A name is taken only by a leftover of a process with the same id, or by a sweep.
const MAX_ATTEMPTS: u32 = 1000;

pub(crate) struct StagedFile {
    store: Arc<Inner>,
    mode: FileMode,
    /// `None` once the file was removed.
    name: Option<String>,
    file: File,
}

impl StagedFile {
    /// Creates an empty file.
    pub(crate) fn new(store: &Arc<Inner>, mode: FileMode) -> Result<Self, StoreError> {
        let dirs = &store.dirs;
        let failed = |errno, name: &str| StoreError::from_errno(errno, "write", &dirs.temp_path(name));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..MAX_ATTEMPTS {
            let name = store.next_temp_name();
            let file =
                match rustix::fs::openat(dirs.temp_dir(), name.as_str(), flags, Mode::RUSR | Mode::WUSR) {
                    Err(Errno::EXIST) => continue,
                    other => other.map_err(|errno| failed(errno, &name))?,
                };
            // A sweep may have come in between: it holds the lock, or has removed the file.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            if rustix::fs::fstat(&file).map_err(|errno| failed(errno, &name))?.st_nlink == 0 {
                continue;
            }
            // From now on only this process can write to it.
            rustix::fs::fchmod(&file, mode.permissions()).map_err(|errno| failed(errno, &name))?;
            return Ok(Self { store: Arc::clone(store), mode, name: Some(name), file: file.into() });
        }
        Err(failed(Errno::EXIST, ""))
    }

    pub(crate) const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.store.dirs.temp_path(self.name.as_deref().unwrap_or_default())
    }

    /// Waits until the content is on the disk, unless the store's durability is [`Durability::Process`].
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        if self.store.options.durability == Durability::Process {
            return Ok(());
        }
        rustix::fs::fdatasync(&self.file)
            .map_err(|errno| StoreError::from_errno(errno, "write", &self.path()))
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
                self.name.as_deref().unwrap_or_default(),
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
            // Another writer was faster. A garbage collection may remove its content before it is marked; then this file is linked.
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

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // A file that cannot be removed now is swept later.
            let _ = rustix::fs::unlinkat(self.store.dirs.temp_dir(), name.as_str(), AtFlags::empty());
        }
    }
}
