//! Inserting bytes, files and streams.

use std::fmt;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use conjure_base::{Digest, DigestHasher};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::draft::Draft;
use crate::error::StoreError;
use crate::folders::name_of;
use crate::source::{GoOn, SMALL, Source, TO_THE_END, digest_all};
use crate::store::{Hold, Store, Variant, Verify};

/// What was inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// The content's digest.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
    /// Whether it was not there before.
    pub is_new: bool,
}

impl Store {
    /// Inserts these bytes.
    ///
    /// # Errors
    /// `NoSpace` and `ReadOnly` when they cannot be written; nothing is left of them then.
    pub fn insert_bytes(&self, bytes: &[u8], variant: Variant) -> Result<Inserted, StoreError> {
        let (digest, size) = (Digest::of(bytes), bytes.len() as u64);
        let store = self.inner();
        if store.has(&store.hold()?, &digest, variant)? {
            return Ok(Inserted { digest, size, is_new: false });
        }
        let draft = self.draft_of(bytes, variant)?;
        draft.flush()?;
        Ok(Inserted { digest, size, is_new: draft.commit(&digest)? })
    }

    /// Inserts the plain file at `path`, through links if it leads through some. A pipe or a device is not waited for.
    ///
    /// # Errors
    /// `NotPlain`; `TooMuch` when it has more than `limit` bytes; `Changed` when it changes meanwhile; `NoSpace` and
    /// `ReadOnly` when it cannot be written.
    pub fn insert_file(&self, path: &Path, variant: Variant, limit: u64) -> Result<Inserted, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| StoreError::of(errno, "open", path))?;
        self.insert_open(file, path, variant, limit)
    }

    /// Inserts an open plain file from its start; `path` names it in errors. It must have been opened without waiting
    /// (`O_NONBLOCK`), should it be a pipe.
    ///
    /// # Errors
    /// As for [`Store::insert_file`].
    pub fn insert_open(
        &self,
        file: OwnedFd,
        path: &Path,
        variant: Variant,
        limit: u64,
    ) -> Result<Inserted, StoreError> {
        self.insert_open_while(file, path, variant, limit, TO_THE_END)
    }

    /// The same, for as long as `go_on` says so: it is asked between pieces of a large file.
    ///
    /// # Errors
    /// As for [`Store::insert_file`], and `Stopped`; nothing is left then.
    pub fn insert_open_while(
        &self,
        file: OwnedFd,
        path: &Path,
        variant: Variant,
        limit: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Inserted, StoreError> {
        let mut source = Source::of(file, path, limit)?;
        let size = source.size();
        let (digest, draft) = self.take(&mut source, variant, &self.inner().hold()?, go_on)?;
        let is_new = match draft {
            None => false,
            Some(draft) => {
                draft.flush()?;
                draft.commit(&digest)?
            }
        };
        Ok(Inserted { digest, size, is_new })
    }

    /// Inserts what another store has under this digest: by a link to its file where both lie on one file system, else by
    /// a copy, which is compared with the digest. `go_on` is asked between pieces.
    ///
    /// # Errors
    /// `NotFound` when the other has no such content, `Corrupt` when it is not what its digest says, and as for
    /// [`Store::insert_open_while`].
    pub fn insert_from(
        &self,
        other: &Self,
        digest: &Digest,
        limit: u64,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Inserted, StoreError> {
        let (variant, store) = (Variant::Plain, self.inner());
        let hold = store.hold()?;
        let content = other.get(digest, Verify::No)?;
        let (size, path) = (content.size(), other.inner().folders.path_of(digest, variant));
        let inserted = |is_new| Ok(Inserted { digest: *digest, size, is_new });
        if size > limit {
            return Err(StoreError::TooMuch { path, what: "bytes", limit });
        }
        // What the same store has as a frozen link is there, too; what it has as an executable only is copied.
        let is_frozen = || other.root() == self.root() && matches!(store.find_frozen(digest), Ok(Some(_)));
        if store.has(&hold, digest, variant)? || is_frozen() {
            return inserted(false);
        }
        let name = name_of(digest);
        let (from, to) = (other.inner().folders.of(variant), store.folders.of(variant));
        store
            .folders
            .make_shard(digest, variant)
            .map_err(|errno| StoreError::of(errno, "write", &store.folders.path_of(digest, variant)))?;
        match rustix::fs::linkat(from, name.as_str(), to, name.as_str(), AtFlags::empty()) {
            Ok(()) => {
                // The file is as old as the other store's.
                store.has(&hold, digest, variant)?;
                inserted(true)
            }
            Err(Errno::EXIST) => {
                store.has(&hold, digest, variant)?;
                inserted(false)
            }
            // Another file system, or it is there in another variant only: whatever it is, the copy says what is wrong.
            Err(_) => {
                let file = content.into_file().into();
                let copied = self.insert_open_while(file, &path, variant, limit, go_on)?;
                match copied.digest == *digest {
                    true => Ok(copied),
                    false => Err(StoreError::Corrupt { digest: *digest, actual: copied.digest }),
                }
            }
        }
    }

    /// Starts a content that arrives in pieces, of at most `limit` bytes.
    ///
    /// # Errors
    /// `NoSpace` and `ReadOnly` when nothing can be written.
    pub fn insertion(&self, variant: Variant, limit: u64) -> Result<Insertion, StoreError> {
        let draft = Draft::new(self.inner(), variant)?;
        Ok(Insertion { draft, hasher: Some(DigestHasher::new()), size: 0, limit })
    }

    /// Digests a file, and copies it unless it is there already.
    pub(crate) fn take(
        &self,
        source: &mut Source,
        variant: Variant,
        hold: &Hold,
        go_on: GoOn<'_>,
    ) -> Result<(Digest, Option<Draft>), StoreError> {
        // The usual case is content that is there: then nothing is written.
        if source.size() <= SMALL {
            let bytes = source.read_small()?;
            let digest = Digest::of(&bytes);
            let is_there = self.inner().has(hold, &digest, variant)?;
            return Ok((digest, if is_there { None } else { Some(self.draft_of(&bytes, variant)?) }));
        }
        let digest = source.digest(go_on)?;
        if self.inner().has(hold, &digest, variant)? {
            return Ok((digest, None));
        }
        let mut draft = Draft::new(self.inner(), variant)?;
        let digest = if rustix::fs::ioctl_ficlone(draft.file().as_fd(), source.file()).is_ok() {
            // It shares the file's blocks, and what is digested is what nobody can change any more.
            let (path, file) = (draft.path(), draft.file());
            let failed = |error| StoreError::of_io(error, "read", &path);
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            let (digest, size) = digest_all(file, go_on).map_err(|error| match error.kind() {
                io::ErrorKind::Interrupted => StoreError::Stopped { path: path.clone() },
                _ => failed(error),
            })?;
            source.check(size)?;
            digest
        } else {
            let path = draft.path();
            source.pass(draft.file(), &path, go_on)?
        };
        Ok((digest, Some(draft)))
    }

    fn draft_of(&self, bytes: &[u8], variant: Variant) -> Result<Draft, StoreError> {
        let mut draft = Draft::new(self.inner(), variant)?;
        let written = draft.file().write_all(bytes);
        written.map_err(|error| StoreError::of_io(error, "write", &draft.path()))?;
        Ok(draft)
    }
}

/// A content that arrives in pieces. Dropped before [`Insertion::finish`], it leaves nothing.
///
/// ```
/// use std::io::Write as _;
/// use conjure_store::{Store, Variant};
///
/// let folder = tempfile::tempdir()?;
/// let store = Store::open(&folder.path().join("store"))?;
/// let mut insertion = store.insertion(Variant::Plain, 1 << 20)?;
/// insertion.write_all(b"hel")?;
/// insertion.write_all(b"lo")?;
/// assert_eq!(insertion.finish()?.digest, conjure_base::Digest::of(b"hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Insertion {
    draft: Draft,
    /// `None` once a piece could not be written: what comes after it would make another content.
    hasher: Option<DigestHasher>,
    size: u64,
    limit: u64,
}

impl Insertion {
    /// Adds the next piece.
    ///
    /// # Errors
    /// `TooMuch` beyond the limit, `NoSpace` when the disk is full; the insertion fails as a whole then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.draft.path();
        let mut hasher = self.hasher.take().ok_or_else(|| broken(&path))?;
        let size = self.size.checked_add(bytes.len() as u64).filter(|size| *size <= self.limit);
        self.size =
            size.ok_or(StoreError::TooMuch { path: path.clone(), what: "bytes", limit: self.limit })?;
        let written = self.draft.file().write_all(bytes);
        written.map_err(|error| StoreError::of_io(error, "write", &path))?;
        hasher.update(bytes);
        self.hasher = Some(hasher);
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Puts the content into the store.
    ///
    /// # Errors
    /// `NoSpace` when the disk is full; `Io` when a piece failed before.
    pub fn finish(self) -> Result<Inserted, StoreError> {
        let digest = self.hasher.ok_or_else(|| broken(&self.draft.path()))?.finish();
        self.draft.flush()?;
        let is_new = self.draft.commit(&digest)?;
        Ok(Inserted { digest, size: self.size, is_new })
    }
}

fn broken(path: &Path) -> StoreError {
    let source = io::Error::other("a piece of it could not be written before");
    StoreError::Io { doing: "write", path: path.to_owned(), source }
}

impl Write for Insertion {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Insertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Insertion").field("path", &self.draft.path()).field("size", &self.size).finish()
    }
}
