//! Reads files that are to be inserted and that another process may change meanwhile.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use conjure_base::{Digest, DigestHasher};
use conjure_fs::{OpenError, RegularFile};
use rustix::fs::Stat;

use crate::error::StoreError;

/// The number of bytes that are read at once.
const CHUNK_BYTES: usize = 128 * 1024;

/// Files up to this size are read once, and kept in memory until it is known whether the store has them.
pub(crate) const MAX_BUFFERED_BYTES: u64 = 1024 * 1024;

/// Called between chunks; returns false to cancel.
pub(crate) type ContinueCheck<'a> = &'a dyn Fn() -> bool;

/// For work that is never cancelled.
pub(crate) const NEVER_CANCELLED: ContinueCheck<'static> = &|| true;

/// An open regular file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    file: RegularFile,
    path: PathBuf,
}

impl SourceFile {
    /// Checks that the open file is regular and has at most `limit` bytes. It must have been opened with `O_NONBLOCK`.
    pub(crate) fn new(file: OwnedFd, path: &Path, limit: u64) -> Result<Self, StoreError> {
        let file = RegularFile::from_open(file).map_err(|error| match error {
            OpenError::NotFound(errno) | OpenError::PermissionDenied(errno) | OpenError::Failed(errno) => {
                StoreError::from_errno(errno, "read", path)
            }
            OpenError::NotRegular | OpenError::Link | OpenError::EscapesRoot => {
                StoreError::NotRegularFile { path: path.to_owned() }
            }
        })?;
        let source = Self { file, path: path.to_owned() };
        if source.size() > limit {
            return Err(StoreError::LimitExceeded { path: source.path, what: "bytes", limit });
        }
        Ok(source)
    }

    pub(crate) fn stat(&self) -> &Stat {
        self.file.stat()
    }

    /// Its size in bytes when it was opened.
    pub(crate) fn size(&self) -> u64 {
        self.file.size()
    }

    pub(crate) fn file(&self) -> &File {
        self.file.file()
    }

    fn changed_error(&self) -> StoreError {
        StoreError::Changed { path: self.path.clone() }
    }

    /// The whole content of a small file.
    pub(crate) fn read_small(&mut self) -> Result<Vec<u8>, StoreError> {
        let size = self.size();
        self.file
            .file()
            .seek(SeekFrom::Start(0))
            .map_err(|error| StoreError::from_io(error, "read", &self.path))?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        let read = (&mut self.file).take(size + 1).read_to_end(&mut bytes);
        read.map_err(|error| StoreError::from_io(error, "read", &self.path))?;
        self.check_unchanged(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Reads the file from its start, writes it to `to`, and returns its digest.
    pub(crate) fn copy_to(
        &mut self,
        to: &mut impl Write,
        to_path: &Path,
        should_continue: ContinueCheck<'_>,
    ) -> Result<Digest, StoreError> {
        let failed = |error| StoreError::from_io(error, "read", &self.path);
        self.file.file().seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut hasher = DigestHasher::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut remaining = self.size();
        loop {
            if !should_continue() {
                return Err(StoreError::Cancelled { path: self.path.clone() });
            }
            let length = self.file.read(&mut chunk).map_err(failed)?;
            let bytes = chunk.get(..length).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            // Without this check, the copy of a file that keeps growing would never end.
            remaining = remaining.checked_sub(length as u64).ok_or_else(|| self.changed_error())?;
            hasher.update(bytes);
            to.write_all(bytes).map_err(|error| StoreError::from_io(error, "write", to_path))?;
        }
        self.check_unchanged(self.size() - remaining)?;
        Ok(hasher.finish())
    }

    /// Reads the file and returns its digest.
    pub(crate) fn digest(&mut self, should_continue: ContinueCheck<'_>) -> Result<Digest, StoreError> {
        let path = self.path.clone();
        self.copy_to(&mut io::sink(), &path, should_continue)
    }

    /// Refuses a file that has changed since it was opened, or of which not exactly its size was read.
    pub(crate) fn check_unchanged(&self, read: u64) -> Result<(), StoreError> {
        let is_unchanged = self.file.is_unchanged();
        let is_unchanged = is_unchanged.map_err(|errno| StoreError::from_errno(errno, "read", &self.path))?;
        if read == self.size() && is_unchanged { Ok(()) } else { Err(self.changed_error()) }
    }
}

/// The digest and the size of all remaining bytes. When `should_continue` returns false, the error is `Interrupted`, which
/// reading alone never gives.
pub(crate) fn digest_reader(
    from: &mut impl Read,
    should_continue: ContinueCheck<'_>,
) -> io::Result<(Digest, u64)> {
    let mut hasher = DigestHasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut size = 0;
    while should_continue() {
        let length = read_retrying(from, &mut chunk)?;
        if length == 0 {
            return Ok((hasher.finish(), size));
        }
        hasher.update(chunk.get(..length).unwrap_or_default());
        size += length as u64;
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn read_retrying(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
