//! A content that is being written: a temporary file, locked by its writer, that gets its name when it is whole.
//!
//! A writer that is killed leaves the file, without its lock; [`crate::Store::sweep`] removes it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_base::Digest;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::folders::name_of;
use crate::store::{Durability, Inner, Variant};

/// How many names are tried: only leftovers of processes with the same id, and who sweeps, are in the way.
const ATTEMPTS: u32 = 1000;

pub(crate) struct Draft {
    store: Arc<Inner>,
    variant: Variant,
    /// `None` once it was removed.
    name: Option<String>,
    file: File,
}

impl Draft {
    /// A new empty one.
    pub(crate) fn new(store: &Arc<Inner>, variant: Variant) -> Result<Self, StoreError> {
        let folders = &store.folders;
        let failed = |errno, name: &str| StoreError::of(errno, "write", &folders.temporary_path(name));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..ATTEMPTS {
            let name = store.next_name();
            let file = match rustix::fs::openat(
                folders.temporary(),
                name.as_str(),
                flags,
                Mode::RUSR | Mode::WUSR,
            ) {
                Err(Errno::EXIST) => continue,
                other => other.map_err(|errno| failed(errno, &name))?,
            };
            // Who sweeps may have come in between, and holds the lock or has removed the file.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            if rustix::fs::fstat(&file).map_err(|errno| failed(errno, &name))?.st_nlink == 0 {
                continue;
            }
            // From now on nobody but this process can write it.
            rustix::fs::fchmod(&file, variant.mode()).map_err(|errno| failed(errno, &name))?;
            return Ok(Self { store: Arc::clone(store), variant, name: Some(name), file: file.into() });
        }
        Err(failed(Errno::EXIST, ""))
    }

    pub(crate) const fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Where it is, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.store.folders.temporary_path(self.name.as_deref().unwrap_or_default())
    }

    /// Waits until it is on the disk, where that is wanted.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        if self.store.options.durability == Durability::Process {
            return Ok(());
        }
        rustix::fs::fdatasync(&self.file).map_err(|errno| StoreError::of(errno, "write", &self.path()))
    }

    /// Gives it the name of its content. Whether it was not there before; if it was, this one is thrown away.
    pub(crate) fn commit(self, digest: &Digest) -> Result<bool, StoreError> {
        let (store, variant) = (&self.store, self.variant);
        let folders = &store.folders;
        let path = folders.path_of(digest, variant);
        let failed = |errno| StoreError::of(errno, "write", &path);
        let name = name_of(digest);
        let link = || {
            rustix::fs::linkat(
                folders.temporary(),
                self.name.as_deref().unwrap_or_default(),
                folders.of(variant),
                name.as_str(),
                AtFlags::empty(),
            )
        };
        let linked = match link() {
            Err(Errno::NOENT) => {
                folders.make_shard(digest, variant).map_err(failed)?;
                link()
            }
            other => other,
        };
        match linked {
            Ok(()) => {}
            // Somebody else was faster. Who collects may remove it again before it is marked: then it is this one's turn.
            Err(Errno::EXIST) => {
                let is_there = store.has(&store.hold()?, digest, variant)?;
                return if is_there { Ok(false) } else { self.commit(digest) };
            }
            Err(errno) => return Err(failed(errno)),
        }
        store.keep_name(digest, variant)?;
        Ok(true)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            // What cannot be removed now is swept later.
            let _ = rustix::fs::unlinkat(self.store.folders.temporary(), name.as_str(), AtFlags::empty());
        }
    }
}
