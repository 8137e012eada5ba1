//! Frozen links: hard links to files whose owner promises that they stay unchanged.
//!
//! So registering a large file costs one read and no copy. The promise is not enforced: a process that may write to
//! the file can change it in place, and every link shows the change. Therefore a frozen link never replaces a content
//! that another caller inserted:
//!
//! - Frozen links have a directory of their own. An insertion of the same bytes does not find them. It stores a
//!   content, which is used from then on.
//! - The name of a link records the file's size, modification time and inode when it was digested. Links whose file changed are
//!   ignored. When only such links exist, the error is [`StoreError::FrozenChanged`]. A change that keeps the size and resets the
//!   time is detected only by [`Verify::Yes`].
//! - Two files with the same bytes get two links, so a broken promise for one does not harm the other.
//! - The file keeps its mode and owner. A file is copied instead when not every user may read it, when it is
//!   set-user-id, or when the system refuses the link: another file system, `fs.protected_hardlinks`, or no `/proc`.
//!
//! State: the links. They survive a crash. Each is complete or absent, because the kernel creates a link and its name
//! in one step.
//!
//! [`Verify::Yes`]: crate::Verify::Yes

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use conjure_base::{Digest, Timestamp};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::ingest::insert::InsertResult;
use crate::ingest::source_file::SourceFile;
use crate::link::LinkMethod;
use crate::stat::{last_access, last_change};
use crate::store::{Durability, GcGuard, Inner, Store};
use crate::store_dirs::{FROZEN, READ_DIR, content_name, create_shard_in};

/// Permissions that a file must have to be linked, and permissions that it must not have.
const READABLE_BY_ALL: Mode = Mode::from_raw_mode(0o444);
const SETID_BITS: Mode = Mode::from_raw_mode(0o6000);

/// Size, modification time and inode of a linked file when it was digested. A link changes `ctime`, so that is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LinkFingerprint {
    size: i64,
    seconds: i64,
    nanoseconds: u64,
    inode: u64,
}

/// A link to a file that has not changed since it was digested.
#[derive(Debug)]
pub(crate) struct FrozenLink {
    digest: Digest,
    /// Its path relative to the directory of frozen links.
    pub(crate) name: String,
    fingerprint: LinkFingerprint,
    last_used: Timestamp,
}

impl Store {
    /// Inserts an open regular file by a hard link where possible, else by a copy.
    ///
    /// The caller promises that the file is not changed in place any more. It may be removed, or replaced by another file of
    /// its name. `path` names it in errors. It must have been opened with `O_NONBLOCK`. `should_continue` is called between
    /// chunks; returning false cancels.
    ///
    /// # Errors
    /// As for [`Store::insert_file_handle_cancellable`].
    pub fn insert_link(
        &self,
        file: OwnedFd,
        path: &Path,
        limit: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(InsertResult, LinkMethod), StoreError> {
        let store = self.inner();
        let mut source = SourceFile::new(file, path, limit)?;
        let permissions = Mode::from_raw_mode(source.stat().st_mode);
        if !permissions.contains(READABLE_BY_ALL) || permissions.intersects(SETID_BITS) {
            return self.insert_copy(source, path, limit, should_continue);
        }
        let (size, gc_guard) = (source.size(), store.lock_against_gc()?);
        let digest = source.digest(should_continue)?;
        let inserted = |is_new| Ok((InsertResult { digest, size, is_new }, LinkMethod::HardLink));
        if store.contains_and_mark(&gc_guard, &digest, FileMode::Plain)? {
            return inserted(false);
        }
        if store.options.durability != Durability::Process {
            let flushed = rustix::fs::fdatasync(source.file());
            flushed.map_err(|errno| StoreError::from_errno(errno, "write", path))?;
        }
        let name = LinkFingerprint::from_stat(source.stat()).link_name(&digest);
        let is_new = match store.link_frozen(source.file(), &digest, &name) {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                store.mark_frozen_link(&gc_guard, &name);
                false
            }
            // The file cannot be linked. The copy either succeeds or reports the error.
            Err(_) => return self.insert_copy(source, path, limit, should_continue),
        };
        // A change between reading and linking shows in the modification time.
        if let Err(changed) = source.check_unchanged(size) {
            // The caller never got the digest, so a link that cannot be removed does no harm.
            let _ = rustix::fs::unlinkat(store.dirs.frozen_dir(), name.as_str(), AtFlags::empty());
            return Err(changed);
        }
        store.sync_name_in(store.dirs.frozen_dir(), &digest, &store.dirs.path().join(FROZEN).join(name))?;
        inserted(is_new)
    }

    fn insert_copy(
        &self,
        source: SourceFile,
        path: &Path,
        limit: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<(InsertResult, LinkMethod), StoreError> {
        let inserted = self.insert_file_handle_cancellable(
            source.into_file(),
            path,
            FileMode::Plain,
            limit,
            should_continue,
        )?;
        Ok((inserted, LinkMethod::Copy))
    }
}

impl Inner {
    /// Links the open file into the directory of frozen links.
    fn link_frozen(&self, file: &File, digest: &Digest, name: &str) -> Result<(), Errno> {
        let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let folder = self.dirs.frozen_dir();
        let link = || rustix::fs::linkat(CWD, &open, folder, name, AtFlags::SYMLINK_FOLLOW);
        match link() {
            Err(Errno::NOENT) => {
                create_shard_in(folder, digest)?;
                link()
            }
            other => other,
        }
    }

    /// A frozen link of this digest whose file has not changed. `None` where no link exists.
    ///
    /// # Errors
    /// `FrozenChanged` when links exist and the files of all of them changed.
    pub(crate) fn frozen_link(&self, digest: &Digest) -> Result<Option<FrozenLink>, StoreError> {
        let names = self.frozen_link_names(digest)?;
        for name in &names {
            let Some(fingerprint) = LinkFingerprint::parse(name) else { continue };
            let stat = rustix::fs::statat(self.dirs.frozen_dir(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            if let Ok(stat) = stat
                && LinkFingerprint::from_stat(&stat) == fingerprint
            {
                let used = last_used(&stat);
                return Ok(Some(FrozenLink {
                    digest: *digest,
                    name: name.clone(),
                    fingerprint,
                    last_used: used,
                }));
            }
        }
        if names.is_empty() { Ok(None) } else { Err(StoreError::FrozenChanged { digest: *digest }) }
    }

    /// Looks up a frozen link as [`Inner::frozen_link`] does, and marks it as used.
    pub(crate) fn find_frozen_link(&self, digest: &Digest) -> Result<Option<FrozenLink>, StoreError> {
        let found = self.frozen_link(digest)?;
        if let Some(frozen) = found.as_ref().filter(|frozen| !self.was_marked_recently(frozen.last_used)) {
            self.mark_frozen_link(&self.lock_against_gc()?, &frozen.name);
        }
        Ok(found)
    }

    /// Marks a frozen link as used now.
    ///
    /// It creates and removes one more link to the file, which sets the file's `ctime` and no other time. A crash in between leaves
    /// a temporary file for the sweep.
    pub(crate) fn mark_frozen_link(&self, _: &GcGuard, name: &str) {
        let (from, to, mark) = (self.dirs.frozen_dir(), self.dirs.temp_dir(), self.next_temp_name());
        // A link that cannot be marked can be used all the same.
        if rustix::fs::linkat(from, name, to, mark.as_str(), AtFlags::empty()).is_ok() {
            let _ = rustix::fs::unlinkat(to, mark.as_str(), AtFlags::empty());
        }
    }

    /// Removes the frozen links of this digest. Returns whether there were any.
    pub(crate) fn remove_frozen_links(&self, digest: &Digest) -> Result<bool, StoreError> {
        let mut was_there = false;
        for name in self.frozen_link_names(digest)? {
            match rustix::fs::unlinkat(self.dirs.frozen_dir(), name.as_str(), AtFlags::empty()) {
                Ok(()) => was_there = true,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.frozen_error(errno, "remove", &name)),
            }
        }
        Ok(was_there)
    }

    /// Links the file of a frozen link to a name, or copies it where it cannot be linked.
    pub(crate) fn link_frozen_into(
        &self,
        frozen: &FrozenLink,
        folder: BorrowedFd<'_>,
        name: &Path,
    ) -> Result<LinkMethod, StoreError> {
        let from = self.dirs.frozen_dir();
        match rustix::fs::linkat(from, frozen.name.as_str(), folder, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.mark_frozen_link(&self.lock_against_gc()?, &frozen.name);
                let open = frozen.open(self)?.into();
                self.copy_into(open, FileMode::Plain, folder, name, |file| {
                    frozen.check_unchanged(file.as_fd())
                })?;
                return Ok(LinkMethod::Copy);
            }
            Err(errno) => return Err(StoreError::from_errno(errno, "link", name)),
        }
        Ok(LinkMethod::HardLink)
    }

    /// The names of the frozen links of this digest.
    fn frozen_link_names(&self, digest: &Digest) -> Result<Vec<String>, StoreError> {
        let name = content_name(digest);
        let (shard, rest) = name.split_at(2);
        let rest = rest.trim_start_matches('/');
        let failed = |errno| self.frozen_error(errno, "list", shard);
        let folder = match rustix::fs::openat(self.dirs.frozen_dir(), shard, READ_DIR, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if digest_part(name) == rest {
                names.push(format!("{shard}/{name}"));
            }
        }
        names.sort();
        Ok(names)
    }

    fn frozen_error(&self, errno: Errno, operation: &'static str, name: &str) -> StoreError {
        StoreError::from_errno(errno, operation, &self.dirs.path().join(FROZEN).join(name))
    }
}

impl FrozenLink {
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.fingerprint.size).unwrap_or(0)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// `NotFound` when the link was removed, `FrozenChanged` when the file changed.
    pub(crate) fn open(&self, store: &Inner) -> Result<File, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(store.dirs.frozen_dir(), self.name.as_str(), flags, Mode::empty());
        let file = file.map_err(|errno| match errno {
            Errno::NOENT => StoreError::NotFound { digest: self.digest },
            other => store.frozen_error(other, "open", &self.name),
        })?;
        self.check_unchanged(file.as_fd())?;
        Ok(file.into())
    }

    fn check_unchanged(&self, file: BorrowedFd<'_>) -> Result<(), StoreError> {
        match rustix::fs::fstat(file) {
            Ok(stat) if LinkFingerprint::from_stat(&stat) == self.fingerprint => Ok(()),
            _ => Err(StoreError::FrozenChanged { digest: self.digest }),
        }
    }
}

impl LinkFingerprint {
    const fn from_stat(stat: &Stat) -> Self {
        Self {
            size: stat.st_size,
            seconds: stat.st_mtime,
            nanoseconds: stat.st_mtime_nsec,
            inode: stat.st_ino,
        }
    }

    /// `ab/cdef….SIZE.SECONDS.NANOSECONDS.INODE`
    fn link_name(&self, digest: &Digest) -> String {
        let Self { size, seconds, nanoseconds, inode } = self;
        format!("{}.{size}.{seconds}.{nanoseconds}.{inode}", content_name(digest))
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.').skip(1);
        Some(Self {
            size: parts.next()?.parse().ok()?,
            seconds: parts.next()?.parse().ok()?,
            nanoseconds: parts.next()?.parse().ok()?,
            inode: parts.next()?.parse().ok()?,
        })
    }
}

/// The last use of a frozen link. The store cannot set the access time of another owner's file. Therefore its `ctime`
/// counts, too, which a new link changes.
pub(crate) fn last_used(stat: &Stat) -> Timestamp {
    last_access(stat).max(last_change(stat))
}

/// The part of a frozen link's name that is the digest.
pub(crate) fn digest_part(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}
