//! The store: opening it, and looking at what is in it.
//!
//! State: open folders, and a memory of files that were digested ([`crate::cache`]). What is on the disk stays in a
//! crash; the memory is forgotten, and files are read again.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conjure_base::{Clock, Digest, SystemClock, Timestamp};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;

use crate::cache::Known;
use crate::error::StoreError;
use crate::folders::{FROZEN, Folders, name_of};
use crate::source::{TO_THE_END, digest_all};

/// A content that was marked as used within this time is not marked again when it is asked for.
const MARKED: Duration = Duration::from_secs(60);

/// Whether a content is executable. The two are separate files, since the mode belongs to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// Mode 0444.
    Plain,
    /// Mode 0555.
    Executable,
}

impl Variant {
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::Executable];

    pub(crate) const fn folder(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Executable => "executable",
        }
    }

    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::Plain => Mode::from_raw_mode(0o444),
            Self::Executable => Mode::from_raw_mode(0o555),
        }
    }
}

/// What an insertion waits for, and so what a crash of the machine can do. A crash of the process alone does nothing to
/// what was inserted, whichever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: after a crash of the machine a content may be cut or empty. For stores in memory, and for those that
    /// are emptied when the machine starts.
    Process,
    /// That the content is on the disk before it has its name, so that it is whole or absent after any crash. For what
    /// can be inserted again. About one flush of the disk for each new content, or for each 64 of a tree.
    #[default]
    Content,
    /// That the name is on the disk, too: what was inserted is there after any crash. For what cannot be had again. About
    /// two flushes of the disk for each content, new or not.
    Name,
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// What an insertion waits for.
    pub durability: Durability,
    /// Tells how fresh a file is: one that was changed within the last two seconds is not remembered, since it could
    /// change again without showing it.
    pub clock: Arc<dyn Clock>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { durability: Durability::default(), clock: Arc::new(SystemClock) }
    }
}

/// Content by digest in a folder. Clones are the same store.
///
/// ```
/// use conjure_store::{Store, Variant, Verify};
///
/// let folder = tempfile::tempdir()?;
/// let store = Store::open(&folder.path().join("store"))?;
/// let inserted = store.insert_bytes(b"hello", Variant::Plain)?;
/// assert!(store.contains(&inserted.digest, Variant::Plain)?);
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
    pub(crate) folders: Folders,
    pub(crate) options: StoreOptions,
    pub(crate) known: Known,
    /// Part of the names of temporary files.
    next: AtomicU64,
}

/// While it is there, nothing is collected.
#[derive(Debug)]
pub(crate) struct Hold {
    _lock: Option<OwnedFd>,
}

/// When the system last noted that a file was read, or this store that it was used.
pub(crate) fn last_read(stat: &Stat) -> Timestamp {
    let seconds = u64::try_from(stat.st_atime).unwrap_or(0);
    Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(stat.st_atime_nsec / 1_000_000))
}

/// Whether a content is compared with its digest when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// It is read once before it is given.
    Yes,
    /// It is trusted.
    No,
}

/// An open content.
#[derive(Debug)]
pub struct Content {
    file: File,
    size: u64,
}

impl Store {
    /// Opens the store in this folder, which is made if it is missing, with the usual options.
    ///
    /// # Errors
    /// `Unusable` when the folder holds something else, belongs to somebody else, or others may write into it; else what
    /// the system says.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        Self::open_with(root, StoreOptions::default())
    }

    /// Opens the store in this folder.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_with(root: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let folders = Folders::open(root)?;
        let known = Known::default();
        Ok(Self { inner: Arc::new(Inner { folders, options, known, next: AtomicU64::new(0) }) })
    }

    /// The store's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.inner.folders.path()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Whether the content is there in this variant, by itself: a frozen link ([`Store::insert_link`]) is not.
    ///
    /// # Errors
    /// What the system says.
    pub fn contains(&self, digest: &Digest, variant: Variant) -> Result<bool, StoreError> {
        Ok(self.inner.find(digest, variant)?.is_some())
    }

    /// The content's bytes; `None` when it is in neither variant, and no frozen link either.
    ///
    /// # Errors
    /// `Corrupt` when all there is are frozen links to files that were changed; else what the system says.
    pub fn size(&self, digest: &Digest) -> Result<Option<u64>, StoreError> {
        for variant in Variant::ALL {
            if let Some(stat) = self.inner.find(digest, variant)? {
                return Ok(Some(u64::try_from(stat.st_size).unwrap_or(0)));
            }
        }
        Ok(self.inner.find_frozen(digest)?.map(|frozen| frozen.size()))
    }

    /// Where the content lies on the disk, for reading alone and as long as nobody removes it: no extension tells its type. `None`
    /// when there is none.
    ///
    /// # Errors
    /// As for [`Store::size`].
    pub fn path(&self, digest: &Digest) -> Result<Option<PathBuf>, StoreError> {
        for variant in Variant::ALL {
            if self.inner.find(digest, variant)?.is_some() {
                return Ok(Some(self.inner.folders.path_of(digest, variant)));
            }
        }
        let frozen = self.inner.find_frozen(digest)?;
        Ok(frozen.map(|frozen| self.inner.folders.path().join(FROZEN).join(&frozen.name)))
    }

    /// Opens the content, in whichever variant it is there, else as a frozen link.
    ///
    /// # Errors
    /// `NotFound` when there is none; `Corrupt` when all there is are frozen links to files that were changed, and with
    /// [`Verify::Yes`] when it is not what its digest says.
    pub fn get(&self, digest: &Digest, verify: Verify) -> Result<Content, StoreError> {
        let folders = &self.inner.folders;
        for variant in Variant::ALL {
            let failed = |errno| StoreError::of(errno, "open", &folders.path_of(digest, variant));
            let file = match self.inner.open(digest, variant) {
                Err(Errno::NOENT) => continue,
                other => File::from(other.map_err(failed)?),
            };
            let stat = rustix::fs::fstat(&file).map_err(failed)?;
            // Should it be removed just now, who has it open has it still.
            self.inner.hand_out(digest, variant, &stat)?;
            return Content::of(file, digest, verify, &folders.path_of(digest, variant));
        }
        match self.inner.find_frozen(digest)? {
            Some(frozen) => {
                let path = folders.path().join(FROZEN).join(&frozen.name);
                Content::of(frozen.open(&self.inner)?, digest, verify, &path)
            }
            None => Err(StoreError::Absent { digest: *digest }),
        }
    }

    /// Removes the content in both variants and its frozen links, such as one that was found to be corrupt. Whether it was there.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, digest: &Digest) -> Result<bool, StoreError> {
        let mut was_there = false;
        for variant in Variant::ALL {
            was_there |= self.inner.remove(digest, variant)?;
        }
        was_there |= self.inner.remove_frozen(digest)?;
        Ok(was_there)
    }
}

impl Inner {
    /// A name for a temporary file that nobody in this process uses.
    pub(crate) fn next_name(&self) -> String {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{}-{next}", rustix::process::getpid().as_raw_nonzero())
    }

    pub(crate) fn open(&self, digest: &Digest, variant: Variant) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(self.folders.of(variant), name_of(digest).as_str(), flags, Mode::empty())
    }

    pub(crate) fn remove(&self, digest: &Digest, variant: Variant) -> Result<bool, StoreError> {
        let name = name_of(digest);
        match rustix::fs::unlinkat(self.folders.of(variant), name.as_str(), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(StoreError::of(errno, "remove", &self.folders.path_of(digest, variant))),
        }
    }

    /// Keeps contents from being collected, until what is returned is dropped.
    pub(crate) fn hold(&self) -> Result<Hold, StoreError> {
        Ok(Hold { _lock: self.folders.lock(FlockOperation::LockShared)? })
    }

    /// Marks the content as used now, for [`Store::collect`]. Whether it is there.
    ///
    /// Who collects does not come between the look and the mark, because of the hold.
    pub(crate) fn touch(&self, _: &Hold, digest: &Digest, variant: Variant) -> Result<bool, StoreError> {
        if self.folders.stat(digest, variant)?.is_none() {
            return Ok(false);
        }
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        };
        let name = name_of(digest);
        // Where it cannot be marked it cannot be collected either.
        let _ =
            rustix::fs::utimensat(self.folders.of(variant), name.as_str(), &times, AtFlags::SYMLINK_NOFOLLOW);
        Ok(true)
    }

    /// What the system says of a content that is asked for, which is marked as used; `None` when it is not there.
    fn find(&self, digest: &Digest, variant: Variant) -> Result<Option<Stat>, StoreError> {
        match self.folders.stat(digest, variant)? {
            Some(stat) if self.hand_out(digest, variant, &stat)? => Ok(Some(stat)),
            _ => Ok(None),
        }
    }

    /// Marks a content that is asked for as used. Whether it is still there.
    fn hand_out(&self, digest: &Digest, variant: Variant, stat: &Stat) -> Result<bool, StoreError> {
        if self.is_marked(last_read(stat)) {
            return Ok(true);
        }
        self.touch(&self.hold()?, digest, variant)
    }

    /// Whether what was last used then was marked just now, so that it need not be marked again: most are asked for many times.
    pub(crate) fn is_marked(&self, used: Timestamp) -> bool {
        let now = self.options.clock.timestamp();
        used <= now && now.since(used) < MARKED
    }

    /// Whether the content is there, so that it need not be inserted; it is marked as used. Who inserted it may have been
    /// killed, or is about to wait for the disk: so its name is made durable once more, where that is wanted.
    pub(crate) fn has(&self, hold: &Hold, digest: &Digest, variant: Variant) -> Result<bool, StoreError> {
        let is_there = self.touch(hold, digest, variant)?;
        if is_there {
            self.keep_name(digest, variant)?;
        }
        Ok(is_there)
    }

    /// Waits until the name of a content is on the disk, where that is wanted.
    pub(crate) fn keep_name(&self, digest: &Digest, variant: Variant) -> Result<(), StoreError> {
        self.keep_name_in(self.folders.of(variant), digest, &self.folders.path_of(digest, variant))
    }

    /// The same of a name in this folder of the store's; `path` is for messages.
    pub(crate) fn keep_name_in(
        &self,
        folder: &OwnedFd,
        digest: &Digest,
        path: &Path,
    ) -> Result<(), StoreError> {
        if self.options.durability != Durability::Name {
            return Ok(());
        }
        let failed = |errno| StoreError::of(errno, "write", path);
        // The shard's own name may be as new as the content's.
        let name = name_of(digest);
        let (shard, _) = name.split_at(2);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shard = rustix::fs::openat(folder, shard, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::fsync(&shard).map_err(failed)?;
        rustix::fs::fsync(folder).map_err(failed)
    }
}

impl Content {
    fn of(file: File, digest: &Digest, verify: Verify, path: &Path) -> Result<Self, StoreError> {
        let failed = |error| StoreError::of_io(error, "read", path);
        let size = file.metadata().map_err(failed)?.len();
        let mut content = Self { file, size };
        if verify == Verify::Yes {
            let (actual, _) = digest_all(&mut content.file, TO_THE_END).map_err(failed)?;
            if actual != *digest {
                return Err(StoreError::Corrupt { digest: *digest, actual });
            }
            content.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        }
        Ok(content)
    }

    /// Its bytes.
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
