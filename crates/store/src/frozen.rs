//! Files that are linked into a store instead of copied, since their owner says that they stay as they are.
//!
//! A large file is registered at the cost of reading it once. What is promised is not enforced: whoever may write the file
//! can change it in place, and every link shows the change. So a frozen link never stands for what somebody else inserted:
//!
//! - It lies in a folder of its own. Whoever inserts the same bytes otherwise finds no content there and makes one; from
//!   then on that one serves, for all.
//! - Its name says what the file was when it was digested: its size, the time of its last change, its inode. A link whose
//!   file is not that any more is passed over, and when there is none but such, the content is `Thawed`. A change that
//!   keeps the size and sets the time back shows only where the content is compared with its digest ([`Verify::Yes`]).
//! - Two files of the same bytes are two links, so one broken word does not break the other.
//! - The file's own mode and owner stay. One that not everybody may read, that sets its user, or that cannot be linked (another
//!   file system, a file of somebody else's under `fs.protected_hardlinks`, no `/proc`) is copied.
//!
//! State: the links, which stay in a crash, and are whole or absent: a link appears at once with its name.
//!
//! [`Verify::Yes`]: crate::Verify::Yes

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use conjure_base::{Digest, Timestamp};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::folders::{FROZEN, READ_FOLDER, make_shard_in, name_of};
use crate::insert::Inserted;
use crate::link::Linked;
use crate::source::Source;
use crate::store::{Durability, Hold, Inner, Store, Variant, last_read};

/// What everybody must be allowed, and what nobody may be.
const READ_BY_ALL: Mode = Mode::from_raw_mode(0o444);
const SPECIAL: Mode = Mode::from_raw_mode(0o6000);

/// What a file was when it was digested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    size: i64,
    seconds: i64,
    nanoseconds: u64,
    inode: u64,
}

/// A link whose file is what it was.
#[derive(Debug)]
pub(crate) struct Frozen {
    digest: Digest,
    /// Beneath the folder of frozen links.
    pub(crate) name: String,
    facts: Facts,
    used: Timestamp,
}

impl Store {
    /// Inserts an open plain file by linking it, where that is possible, else by copying it. Whoever calls this promises
    /// that nobody changes the file in place any more; it may be removed, and replaced by another of its name. `path`
    /// names it in errors; it must have been opened without waiting. `go_on` is asked between pieces.
    ///
    /// # Errors
    /// As for [`Store::insert_open_while`].
    pub fn insert_link(
        &self,
        file: OwnedFd,
        path: &Path,
        limit: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(Inserted, Linked), StoreError> {
        let store = self.inner();
        let mut source = Source::of(file, path, limit)?;
        let mode = Mode::from_raw_mode(source.stat().st_mode);
        if !mode.contains(READ_BY_ALL) || mode.intersects(SPECIAL) {
            return self.insert_copy(source, path, limit, go_on);
        }
        let (size, hold) = (source.size(), store.hold()?);
        let digest = source.digest(go_on)?;
        let inserted = |is_new| Ok((Inserted { digest, size, is_new }, Linked::Hard));
        if store.has(&hold, &digest, Variant::Plain)? {
            return inserted(false);
        }
        if store.options.durability != Durability::Process {
            let flushed = rustix::fs::fdatasync(source.file());
            flushed.map_err(|errno| StoreError::of(errno, "write", path))?;
        }
        let name = Facts::of(source.stat()).name(&digest);
        let is_new = match store.link_frozen(source.file(), &digest, &name) {
            Ok(()) => true,
            Err(Errno::EXIST) => {
                store.mark_frozen(&hold, &name);
                false
            }
            // It cannot be linked, for whichever reason: then it is copied, or that says what is wrong.
            Err(_) => return self.insert_copy(source, path, limit, go_on),
        };
        // What changed between the reading and the linking has another date by now.
        if let Err(changed) = source.check(size) {
            // Nobody is told of it, so it harms nobody when it stays.
            let _ = rustix::fs::unlinkat(store.folders.frozen(), name.as_str(), AtFlags::empty());
            return Err(changed);
        }
        store.keep_name_in(store.folders.frozen(), &digest, &store.folders.path().join(FROZEN).join(name))?;
        inserted(is_new)
    }

    fn insert_copy(
        &self,
        source: Source,
        path: &Path,
        limit: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(Inserted, Linked), StoreError> {
        let inserted = self.insert_open_while(source.into_file(), path, Variant::Plain, limit, go_on)?;
        Ok((inserted, Linked::Copied))
    }
}

impl Inner {
    /// Gives the very file that is open a name among the frozen links.
    fn link_frozen(&self, file: &File, digest: &Digest, name: &str) -> Result<(), Errno> {
        let open = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let folder = self.folders.frozen();
        let link = || rustix::fs::linkat(CWD, &open, folder, name, AtFlags::SYMLINK_FOLLOW);
        match link() {
            Err(Errno::NOENT) => {
                make_shard_in(folder, digest)?;
                link()
            }
            other => other,
        }
    }

    /// A frozen link of this digest whose file is what it was; `None` where there is no link at all.
    pub(crate) fn frozen(&self, digest: &Digest) -> Result<Option<Frozen>, StoreError> {
        let names = self.frozen_names(digest)?;
        for name in &names {
            let Some(facts) = Facts::parse(name) else { continue };
            let stat = rustix::fs::statat(self.folders.frozen(), name.as_str(), AtFlags::SYMLINK_NOFOLLOW);
            if let Ok(stat) = stat
                && Facts::of(&stat) == facts
            {
                let used = last_used(&stat);
                return Ok(Some(Frozen { digest: *digest, name: name.clone(), facts, used }));
            }
        }
        if names.is_empty() { Ok(None) } else { Err(StoreError::Thawed { digest: *digest }) }
    }

    /// The same of one that is asked for, which is marked as used.
    pub(crate) fn find_frozen(&self, digest: &Digest) -> Result<Option<Frozen>, StoreError> {
        let found = self.frozen(digest)?;
        if let Some(frozen) = found.as_ref().filter(|frozen| !self.is_marked(frozen.used)) {
            self.mark_frozen(&self.hold()?, &frozen.name);
        }
        Ok(found)
    }

    /// Marks a frozen link as used now: by one more link to its file for a moment, since that sets the one date of it that says so,
    /// and no other. A crash in between leaves a temporary file, which is swept.
    pub(crate) fn mark_frozen(&self, _: &Hold, name: &str) {
        let (from, to, mark) = (self.folders.frozen(), self.folders.temporary(), self.next_name());
        // Where it cannot be linked it stays as it was: that is no reason not to hand it out.
        if rustix::fs::linkat(from, name, to, mark.as_str(), AtFlags::empty()).is_ok() {
            let _ = rustix::fs::unlinkat(to, mark.as_str(), AtFlags::empty());
        }
    }

    /// Removes the frozen links of this digest. Whether there were any.
    pub(crate) fn remove_frozen(&self, digest: &Digest) -> Result<bool, StoreError> {
        let mut was_there = false;
        for name in self.frozen_names(digest)? {
            match rustix::fs::unlinkat(self.folders.frozen(), name.as_str(), AtFlags::empty()) {
                Ok(()) => was_there = true,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.frozen_failed(errno, "remove", &name)),
            }
        }
        Ok(was_there)
    }

    /// Puts the file of a frozen link where it is needed: as one more link, else as a copy.
    pub(crate) fn link_frozen_into(
        &self,
        frozen: &Frozen,
        folder: BorrowedFd<'_>,
        name: &Path,
    ) -> Result<Linked, StoreError> {
        let from = self.folders.frozen();
        match rustix::fs::linkat(from, frozen.name.as_str(), folder, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::XDEV | Errno::MLINK | Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.mark_frozen(&self.hold()?, &frozen.name);
                let open = frozen.open(self)?.into();
                self.copy_into(open, Variant::Plain, folder, name, |file| frozen.check(file.as_fd()))?;
                return Ok(Linked::Copied);
            }
            Err(errno) => return Err(StoreError::of(errno, "link", name)),
        }
        Ok(Linked::Hard)
    }

    /// The names of the frozen links of this digest.
    fn frozen_names(&self, digest: &Digest) -> Result<Vec<String>, StoreError> {
        let wanted = name_of(digest);
        let (shard, rest) = wanted.split_at(2);
        let rest = rest.trim_start_matches('/');
        let failed = |errno| self.frozen_failed(errno, "list", shard);
        let folder = match rustix::fs::openat(self.folders.frozen(), shard, READ_FOLDER, Mode::empty()) {
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

    fn frozen_failed(&self, errno: Errno, doing: &'static str, name: &str) -> StoreError {
        StoreError::of(errno, doing, &self.folders.path().join(FROZEN).join(name))
    }
}

impl Frozen {
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.facts.size).unwrap_or(0)
    }

    /// Opens the file, if it is still what it was.
    pub(crate) fn open(&self, store: &Inner) -> Result<File, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(store.folders.frozen(), self.name.as_str(), flags, Mode::empty());
        let file = file.map_err(|errno| match errno {
            Errno::NOENT => StoreError::Absent { digest: self.digest },
            other => store.frozen_failed(other, "open", &self.name),
        })?;
        self.check(file.as_fd())?;
        Ok(file.into())
    }

    fn check(&self, file: BorrowedFd<'_>) -> Result<(), StoreError> {
        match rustix::fs::fstat(file) {
            Ok(stat) if Facts::of(&stat) == self.facts => Ok(()),
            _ => Err(StoreError::Thawed { digest: self.digest }),
        }
    }
}

impl Facts {
    const fn of(stat: &Stat) -> Self {
        Self {
            size: stat.st_size,
            seconds: stat.st_mtime,
            nanoseconds: stat.st_mtime_nsec,
            inode: stat.st_ino,
        }
    }

    /// `ab/cdef….SIZE.SECONDS.NANOSECONDS.INODE`
    fn name(&self, digest: &Digest) -> String {
        let Self { size, seconds, nanoseconds, inode } = self;
        format!("{}.{size}.{seconds}.{nanoseconds}.{inode}", name_of(digest))
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

/// When a frozen link was last used. Of a file of somebody else's no dates are set; but linking it sets that of its entry.
pub(crate) fn last_used(stat: &Stat) -> Timestamp {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or(0);
    let linked = seconds.saturating_mul(1000).saturating_add(stat.st_ctime_nsec / 1_000_000);
    last_read(stat).max(Timestamp::from_millis(linked))
}

/// What of a frozen link's name is of the digest.
pub(crate) fn digest_part(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}
