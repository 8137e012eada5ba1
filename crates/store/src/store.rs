//! The store: opening it, and looking up its contents.
//!
//! State: open directories, and the cache of file digests ([`crate::digest_cache`]). The files survive a crash. The
//! cache is lost, so files are read again.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Digest, SystemClock, Timestamp};
use conjure_fs::{FileLock, file_size};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use crate::digest_cache::DigestCache;
use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::ingest::source_file::{NEVER_CANCELLED, digest_reader};
use crate::stat::last_access;
use crate::store_dirs::{StoreDirs, content_name};

/// A content that was marked as used within this time is not marked again by a lookup.
const MARK_INTERVAL: Duration = Duration::from_secs(60);

/// What an insertion waits for. The choice matters only for a crash of the machine: a crash of the process alone
/// never harms an inserted content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: after a crash of the machine a content may be cut or empty. For stores in memory, and for stores that are
    /// emptied when the machine starts.
    Process,
    /// The content is on the disk before it has its name, so it is complete or absent after any crash. For contents
    /// that can be inserted again. The cost is about one flush of the disk per new content, or per 64 contents of a
    /// tree.
    #[default]
    Content,
    /// The name is on the disk, too: an inserted content exists after any crash. For contents that cannot be inserted
    /// again. The cost is about two flushes of the disk per content, new or not.
    Name,
}

/// Options of [`Store::open_with`].
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// What an insertion waits for.
    pub durability: Durability,
    /// The clock that tells the age of a file. The digest of a file that changed within the last two seconds is not
    /// cached, since the file could change again without a new time.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { durability: Durability::default(), clock: Arc::new(SystemClock) }
    }
}

/// A content-addressed store in a directory. Clones are the same store.
///
/// ```
/// use conjure_store::{FileMode, Store, Verify};
///
/// let directory = tempfile::tempdir()?;
/// let store = Store::open(&directory.path().join("store"))?;
/// let inserted = store.insert_bytes(b"hello", FileMode::Plain)?;
/// assert!(store.contains(&inserted.digest, FileMode::Plain)?);
///
/// let mut text = String::new();
/// std::io::Read::read_to_string(&mut store.get(&inserted.digest, Verify::Yes)?, &mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) dirs: StoreDirs,
    pub(crate) options: StoreOptions,
    pub(crate) digest_cache: DigestCache,
}

/// Shared lock against garbage collection. While it is held, no content is removed.
#[derive(Debug)]
pub(crate) struct GcGuard {
    _lock: Option<FileLock>,
}

/// Whether a content is compared with its digest when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// The content is read once and checked before it is returned.
    Yes,
    /// The content is trusted.
    No,
}

/// An open content.
#[derive(Debug)]
pub struct Content {
    file: File,
    size: u64,
}

impl Store {
    /// Opens the store in this directory with the default options. A missing directory is created.
    ///
    /// # Errors
    /// `Unusable` when the directory contains something else, belongs to another user, or is writable for others; and any other
    /// error of the system.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        Self::open_with(root, StoreOptions::default())
    }

    /// Opens the store in this directory. A missing directory is created.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_with(root: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let dirs = StoreDirs::open(root)?;
        let known = DigestCache::default();
        Ok(Self { inner: Arc::new(Inner { dirs, options, digest_cache: known }) })
    }

    /// The store's directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.inner.dirs.path()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Whether the store has the content in this mode.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn contains(&self, digest: &Digest, mode: FileMode) -> Result<bool, StoreError> {
        Ok(self.inner.find(digest, mode)?.is_some())
    }

    /// The content's size in bytes; `None` when the store has it in neither mode.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn size(&self, digest: &Digest) -> Result<Option<u64>, StoreError> {
        for mode in FileMode::ALL {
            if let Some(stat) = self.inner.find(digest, mode)? {
                return Ok(Some(file_size(&stat)));
            }
        }
        Ok(None)
    }

    /// The path of the content's file; `None` when there is none. The caller may only read the file. The store may
    /// remove it at any time. Its name has no extension.
    ///
    /// # Errors
    /// As for [`Store::size`].
    pub fn path(&self, digest: &Digest) -> Result<Option<PathBuf>, StoreError> {
        for mode in FileMode::ALL {
            if self.inner.find(digest, mode)?.is_some() {
                return Ok(Some(self.inner.dirs.content_path(digest, mode)));
            }
        }
        Ok(None)
    }

    /// Opens the content in either mode.
    ///
    /// # Errors
    /// `NotFound` when the store does not have it; with [`Verify::Yes`], `Corrupt` when it does not match its digest.
    pub fn get(&self, digest: &Digest, verify: Verify) -> Result<Content, StoreError> {
        let dirs = &self.inner.dirs;
        for mode in FileMode::ALL {
            let failed = |errno| StoreError::from_errno(errno, "open", &dirs.content_path(digest, mode));
            let file = match self.inner.open(digest, mode) {
                Err(Errno::NOENT) => continue,
                other => File::from(other.map_err(failed)?),
            };
            let stat = rustix::fs::fstat(&file).map_err(failed)?;
            // An open file can be read even if it is removed now.
            self.inner.mark_used(digest, mode, &stat)?;
            return Content::new(file, digest, verify, &dirs.content_path(digest, mode));
        }
        Err(StoreError::NotFound { digest: *digest })
    }

    /// Removes the content in both modes, for example when it is corrupt. Returns whether it existed.
    ///
    /// # Errors
    /// Any error of the system.
    pub fn remove(&self, digest: &Digest) -> Result<bool, StoreError> {
        let mut was_there = false;
        for mode in FileMode::ALL {
            was_there |= self.inner.remove(digest, mode)?;
        }
        Ok(was_there)
    }
}

impl Inner {
    pub(crate) fn open(&self, digest: &Digest, mode: FileMode) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(self.dirs.content_dir(mode), content_name(digest).as_str(), flags, Mode::empty())
    }

    pub(crate) fn remove(&self, digest: &Digest, mode: FileMode) -> Result<bool, StoreError> {
        let name = content_name(digest);
        match rustix::fs::unlinkat(self.dirs.content_dir(mode), name.as_str(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(StoreError::from_errno(errno, "remove", &self.dirs.content_path(digest, mode))),
        }
    }

    /// Locks out garbage collection until the guard is dropped.
    pub(crate) fn lock_against_gc(&self) -> Result<GcGuard, StoreError> {
        Ok(GcGuard { _lock: self.dirs.lock(FileLock::shared)? })
    }

    /// Marks the content as used now, for [`Store::collect_garbage`]. Returns whether it exists.
    ///
    /// The guard keeps a garbage collection from running between the check and the mark.
    pub(crate) fn touch(&self, _: &GcGuard, digest: &Digest, mode: FileMode) -> Result<bool, StoreError> {
        if self.dirs.stat(digest, mode)?.is_none() {
            return Ok(false);
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        let name = content_name(digest);
        // If the time cannot be set, garbage collection cannot remove anything either.
        let _ = rustix::fs::utimensat(
            self.dirs.content_dir(mode),
            name.as_str(),
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        );
        Ok(true)
    }

    /// Looks up a content and marks it as used; `None` when it does not exist.
    fn find(&self, digest: &Digest, mode: FileMode) -> Result<Option<Stat>, StoreError> {
        match self.dirs.stat(digest, mode)? {
            Some(stat) if self.mark_used(digest, mode, &stat)? => Ok(Some(stat)),
            _ => Ok(None),
        }
    }

    /// Marks a content as used, unless it was marked recently. Returns whether it still exists.
    fn mark_used(&self, digest: &Digest, mode: FileMode, stat: &Stat) -> Result<bool, StoreError> {
        if self.was_marked_recently(last_access(stat)) {
            return Ok(true);
        }
        self.touch(&self.lock_against_gc()?, digest, mode)
    }

    /// Whether the last use is so recent that it need not be marked again.
    fn was_marked_recently(&self, used: Timestamp) -> bool {
        let now = self.options.clock.timestamp();
        used <= now && now.duration_since(used) < MARK_INTERVAL
    }

    /// Marks the content as used, and returns whether it exists. An existing content need not be inserted.
    ///
    /// The writer of the content may have been killed, or may not have synced the name yet. So the name is synced
    /// again where durability demands it.
    pub(crate) fn contains_and_mark(
        &self,
        gc_guard: &GcGuard,
        digest: &Digest,
        mode: FileMode,
    ) -> Result<bool, StoreError> {
        let is_there = self.touch(gc_guard, digest, mode)?;
        if is_there {
            self.sync_name(digest, mode)?;
        }
        Ok(is_there)
    }

    /// Waits until the name of a content is on the disk, with [`Durability::Name`].
    pub(crate) fn sync_name(&self, digest: &Digest, mode: FileMode) -> Result<(), StoreError> {
        if self.options.durability != Durability::Name {
            return Ok(());
        }
        let dir = self.dirs.content_dir(mode);
        let failed = |errno| StoreError::from_errno(errno, "write", &self.dirs.content_path(digest, mode));
        // The shard's own name may be as new as the content's, so it is synced, too.
        let name = content_name(digest);
        let (shard, _) = name.split_at(2);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shard = rustix::fs::openat(dir, shard, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::fsync(&shard).map_err(failed)?;
        rustix::fs::fsync(dir).map_err(failed)
    }
}

impl Content {
    fn new(file: File, digest: &Digest, verify: Verify, path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::from_io(error, "read", path);
        let size = file.metadata().map_err(failed)?.len();
        let mut content = Self { file, size };
        if verify == Verify::Yes {
            let (actual, _) = digest_reader(&mut content.file, NEVER_CANCELLED).map_err(failed)?;
            if actual != *digest {
                return Err(StoreError::Corrupt { digest: *digest, actual });
            }
            content.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        }
        Ok(content)
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The open file, for reading only.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("root", &self.root()).finish_non_exhaustive()
    }
}
