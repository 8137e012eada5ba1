//! Insertion of bytes, files and streams.

use std::fmt;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use conjure_base::{Digest, DigestHasher};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::file_mode::FileMode;
use crate::ingest::source_file::{
    ContinueCheck, MAX_BUFFERED_BYTES, NEVER_CANCELLED, SourceFile, digest_reader,
};
use crate::ingest::staged_file::StagedFile;
use crate::store::{GcGuard, Store, Verify};
use crate::store_dirs::content_name;

/// Result of an insertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InsertResult {
    /// The content's digest.
    pub digest: Digest,
    /// The content's size in bytes.
    pub size: u64,
    /// Whether the store did not have the content before.
    pub is_new: bool,
}

impl Store {
    /// Inserts these bytes.
    ///
    /// # Errors
    /// `NoSpace` and `ReadOnly` when they cannot be written. Then nothing of them remains.
    pub fn insert_bytes(&self, bytes: &[u8], mode: FileMode) -> Result<InsertResult, StoreError> {
        let (digest, size) = (Digest::of_bytes(bytes), bytes.len() as u64);
        let store = self.inner();
        if store.contains_and_mark(&store.lock_against_gc()?, &digest, mode)? {
            return Ok(InsertResult { digest, size, is_new: false });
        }
        let staged = self.new_staged_file(bytes, mode)?;
        staged.sync()?;
        Ok(InsertResult { digest, size, is_new: staged.commit(&digest)? })
    }

    /// Inserts the regular file at `path`. Symbolic links are followed. A pipe or a device is refused without waiting for it.
    ///
    /// # Errors
    /// `NotRegularFile`; `LimitExceeded` when it has more than `limit` bytes; `Changed` when it changes meanwhile;
    /// `NoSpace` and `ReadOnly` when it cannot be written.
    pub fn insert_file(&self, path: &Path, mode: FileMode, limit: u64) -> Result<InsertResult, StoreError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| StoreError::from_errno(errno, "open", path))?;
        self.insert_file_handle(file, path, mode, limit)
    }

    /// Inserts an open regular file from its start. `path` names it in errors. It must have been opened with `O_NONBLOCK`, in
    /// case it is a pipe.
    ///
    /// # Errors
    /// As for [`Store::insert_file`].
    pub fn insert_file_handle(
        &self,
        file: OwnedFd,
        path: &Path,
        mode: FileMode,
        limit: u64,
    ) -> Result<InsertResult, StoreError> {
        self.insert_file_handle_cancellable(file, path, mode, limit, NEVER_CANCELLED)
    }

    /// Inserts an open regular file as [`Store::insert_file_handle`] does. `should_continue` is called between the chunks of a
    /// large file; returning false cancels the insertion.
    ///
    /// # Errors
    /// As for [`Store::insert_file`], and `Cancelled`. Then nothing of the file remains.
    pub fn insert_file_handle_cancellable(
        &self,
        file: OwnedFd,
        path: &Path,
        mode: FileMode,
        limit: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<InsertResult, StoreError> {
        let mut source = SourceFile::new(file, path, limit)?;
        let size = source.size();
        let (digest, staged) =
            self.copy_and_digest(&mut source, mode, &self.inner().lock_against_gc()?, should_continue)?;
        let is_new = match staged {
            None => false,
            Some(staged) => {
                staged.sync()?;
                staged.commit(&digest)?
            }
        };
        Ok(InsertResult { digest, size, is_new })
    }

    /// Inserts the content that another store has under this digest. It is linked where both stores are on one file system, else
    /// copied and compared with the digest. `should_continue` is called between chunks; returning false cancels.
    ///
    /// # Errors
    /// `NotFound` when the other store has no such content, `Corrupt` when the content does not match its digest, and as for
    /// [`Store::insert_file_handle_cancellable`].
    pub fn insert_from_store(
        &self,
        other: &Self,
        digest: &Digest,
        limit: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> Result<InsertResult, StoreError> {
        let (mode, store) = (FileMode::Plain, self.inner());
        let gc_guard = store.lock_against_gc()?;
        let content = other.get(digest, Verify::No)?;
        let (size, path) = (content.size(), other.inner().dirs.content_path(digest, mode));
        let inserted = |is_new| Ok(InsertResult { digest: *digest, size, is_new });
        if size > limit {
            return Err(StoreError::LimitExceeded { path, what: "bytes", limit });
        }
        // A content that is only executable in the other store is copied.
        if store.contains_and_mark(&gc_guard, digest, mode)? {
            return inserted(false);
        }
        let name = content_name(digest);
        let (from, to) = (other.inner().dirs.content_dir(mode), store.dirs.content_dir(mode));
        store.dirs.create_shard(digest, mode).map_err(|errno| {
            StoreError::from_errno(errno, "write", &store.dirs.content_path(digest, mode))
        })?;
        match rustix::fs::linkat(from, name.as_str(), to, name.as_str(), AtFlags::empty()) {
            Ok(()) => {
                // The new link has the access time of the other store's file, so it is marked as used here.
                store.contains_and_mark(&gc_guard, digest, mode)?;
                inserted(true)
            }
            Err(Errno::EXIST) => {
                store.contains_and_mark(&gc_guard, digest, mode)?;
                inserted(false)
            }
            // Another file system, or a content that is only executable in the other store. The copy reports any
            // other error.
            Err(_) => {
                let file = content.into_file().into();
                let copied =
                    self.insert_file_handle_cancellable(file, &path, mode, limit, should_continue)?;
                match copied.digest == *digest {
                    true => Ok(copied),
                    false => Err(StoreError::Corrupt { digest: *digest, actual: copied.digest }),
                }
            }
        }
    }

    /// Starts the insertion of a content that arrives in chunks, of at most `limit` bytes.
    ///
    /// # Errors
    /// `NoSpace` and `ReadOnly` when nothing can be written.
    pub fn writer(&self, mode: FileMode, limit: u64) -> Result<ContentWriter, StoreError> {
        let staged = StagedFile::new(self.inner(), mode)?;
        Ok(ContentWriter { staged, hasher: Some(DigestHasher::new()), size: 0, limit })
    }

    /// Digests a file, and copies it to a staged file unless the store has the content.
    pub(crate) fn copy_and_digest(
        &self,
        source: &mut SourceFile,
        mode: FileMode,
        gc_guard: &GcGuard,
        should_continue: ContinueCheck<'_>,
    ) -> Result<(Digest, Option<StagedFile>), StoreError> {
        // Most contents exist already. For these, nothing is written.
        if source.size() <= MAX_BUFFERED_BYTES {
            let bytes = source.read_small()?;
            let digest = Digest::of_bytes(&bytes);
            let is_there = self.inner().contains_and_mark(gc_guard, &digest, mode)?;
            return Ok((digest, if is_there { None } else { Some(self.new_staged_file(&bytes, mode)?) }));
        }
        let digest = source.digest(should_continue)?;
        if self.inner().contains_and_mark(gc_guard, &digest, mode)? {
            return Ok((digest, None));
        }
        let mut staged = StagedFile::new(self.inner(), mode)?;
        let digest = if rustix::fs::ioctl_ficlone(staged.file().as_fd(), source.file()).is_ok() {
            // The copy shares the file's blocks. The copy is digested, not the file, because no other process can
            // change the copy.
            let (path, file) = (staged.path(), staged.file());
            let failed = |error| StoreError::from_io(error, "read", &path);
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            let (digest, size) =
                digest_reader(file, should_continue).map_err(|error| match error.kind() {
                    io::ErrorKind::Interrupted => StoreError::Cancelled { path: path.clone() },
                    _ => failed(error),
                })?;
            source.check_unchanged(size)?;
            digest
        } else {
            let path = staged.path();
            source.copy_to(staged.file(), &path, should_continue)?
        };
        Ok((digest, Some(staged)))
    }

    fn new_staged_file(&self, bytes: &[u8], mode: FileMode) -> Result<StagedFile, StoreError> {
        let mut staged = StagedFile::new(self.inner(), mode)?;
        let written = staged.file().write_all(bytes);
        written.map_err(|error| StoreError::from_io(error, "write", &staged.path()))?;
        Ok(staged)
    }
}

/// Writer of a content that arrives in chunks. If it is dropped before [`ContentWriter::finish`], nothing remains.
///
/// ```
/// use std::io::Write as _;
/// use conjure_store::{FileMode, Store};
///
/// let directory = tempfile::tempdir()?;
/// let store = Store::open(&directory.path().join("store"))?;
/// let mut writer = store.writer(FileMode::Plain, 1 << 20)?;
/// writer.write_all(b"hel")?;
/// writer.write_all(b"lo")?;
/// assert_eq!(writer.finish()?.digest, conjure_base::Digest::of_bytes(b"hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ContentWriter {
    staged: StagedFile,
    /// `None` after a chunk could not be written. Without that chunk, the later ones would form another content.
    hasher: Option<DigestHasher>,
    size: u64,
    limit: u64,
}

impl ContentWriter {
    /// Writes the next chunk.
    ///
    /// # Errors
    /// `LimitExceeded` beyond the limit, `NoSpace` when the disk is full. Then the whole insertion has failed.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.staged.path();
        let mut hasher = self.hasher.take().ok_or_else(|| broken_writer(&path))?;
        let size = self.size.checked_add(bytes.len() as u64).filter(|size| *size <= self.limit);
        self.size =
            size.ok_or(StoreError::LimitExceeded { path: path.clone(), what: "bytes", limit: self.limit })?;
        let written = self.staged.file().write_all(bytes);
        written.map_err(|error| StoreError::from_io(error, "write", &path))?;
        hasher.update(bytes);
        self.hasher = Some(hasher);
        Ok(())
    }

    /// The number of bytes so far.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Puts the content into the store.
    ///
    /// # Errors
    /// `NoSpace` when the disk is full; `Io` when an earlier chunk failed.
    pub fn finish(self) -> Result<InsertResult, StoreError> {
        let digest = self.hasher.ok_or_else(|| broken_writer(&self.staged.path()))?.finish();
        self.staged.sync()?;
        let is_new = self.staged.commit(&digest)?;
        Ok(InsertResult { digest, size: self.size, is_new })
    }
}

fn broken_writer(path: &Path) -> StoreError {
    let source = io::Error::other("an earlier chunk could not be written");
    StoreError::Io { operation: "write", path: path.to_owned(), source }
}

impl Write for ContentWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ContentWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentWriter").field("path", &self.staged.path()).field("size", &self.size).finish()
    }
}
