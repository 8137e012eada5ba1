//! Reading what is to be inserted, from files that somebody may change meanwhile.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use conjure_base::{Digest, DigestHasher};
use rustix::fs::{FileType, Stat};

use crate::error::StoreError;

/// Bytes that are read at once.
const PIECE: usize = 128 * 1024;

/// Files up to this size are read once and kept in memory until it is known whether they are needed.
pub(crate) const SMALL: u64 = 1024 * 1024;

/// Asked between pieces whether the work is still wanted.
pub(crate) type GoOn<'a> = &'a dyn Fn() -> bool;

/// Of work that is not called off.
pub(crate) const TO_THE_END: GoOn<'static> = &|| true;

/// An open plain file.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    path: PathBuf,
    stat: Stat,
}

impl Source {
    /// Takes an open file that must be plain and no larger than `limit` bytes. It must be open without waiting.
    pub(crate) fn of(file: OwnedFd, path: &Path, limit: u64) -> Result<Self, StoreError> {
        let stat = rustix::fs::fstat(&file).map_err(|errno| StoreError::of(errno, "read", path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(StoreError::NotPlain { path: path.to_owned() });
        }
        let source = Self { file: file.into(), path: path.to_owned(), stat };
        if source.size() > limit {
            return Err(StoreError::TooMuch { path: source.path, what: "bytes", limit });
        }
        Ok(source)
    }

    pub(crate) const fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its size in bytes when it was opened.
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn into_file(self) -> OwnedFd {
        self.file.into()
    }

    fn changed(&self) -> StoreError {
        StoreError::Changed { path: self.path.clone() }
    }

    /// All of a small file.
    pub(crate) fn read_small(&mut self) -> Result<Vec<u8>, StoreError> {
        let size = self.size();
        self.file.seek(SeekFrom::Start(0)).map_err(|error| StoreError::of_io(error, "read", &self.path))?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
        let read = (&mut self.file).take(size + 1).read_to_end(&mut bytes);
        read.map_err(|error| StoreError::of_io(error, "read", &self.path))?;
        self.check(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Reads it from its start and passes it on, and digests it, for as long as `go_on` says so.
    pub(crate) fn pass(
        &mut self,
        to: &mut impl Write,
        to_path: &Path,
        go_on: GoOn<'_>,
    ) -> Result<Digest, StoreError> {
        let failed = |error| StoreError::of_io(error, "read", &self.path);
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut hasher = DigestHasher::new();
        let mut piece = vec![0; PIECE];
        let mut left = self.size();
        loop {
            if !go_on() {
                return Err(StoreError::Stopped { path: self.path.clone() });
            }
            let length = read_some(&mut self.file, &mut piece).map_err(failed)?;
            let bytes = piece.get(..length).unwrap_or_default();
            if bytes.is_empty() {
                break;
            }
            // One that grows all the time would never end.
            left = left.checked_sub(length as u64).ok_or_else(|| self.changed())?;
            hasher.update(bytes);
            to.write_all(bytes).map_err(|error| StoreError::of_io(error, "write", to_path))?;
        }
        self.check(self.size() - left)?;
        Ok(hasher.finish())
    }

    /// Digests it.
    pub(crate) fn digest(&mut self, go_on: GoOn<'_>) -> Result<Digest, StoreError> {
        let path = self.path.clone();
        self.pass(&mut io::sink(), &path, go_on)
    }

    /// Refuses a file that is not as it was when it was opened, though so many bytes were read.
    pub(crate) fn check(&self, read: u64) -> Result<(), StoreError> {
        let now = rustix::fs::fstat(&self.file);
        let now = now.map_err(|errno| StoreError::of(errno, "read", &self.path))?;
        let identity = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if read == self.size() && identity(&now) == identity(&self.stat) {
            Ok(())
        } else {
            Err(self.changed())
        }
    }
}

/// The digest and the size of all that is left to read, for as long as `go_on` says so: when it does not, the error is
/// `Interrupted`, which reading alone never gives.
pub(crate) fn digest_all(from: &mut impl Read, go_on: GoOn<'_>) -> io::Result<(Digest, u64)> {
    let mut hasher = DigestHasher::new();
    let mut piece = vec![0; PIECE];
    let mut size = 0;
    while go_on() {
        let length = read_some(from, &mut piece)?;
        if length == 0 {
            return Ok((hasher.finish(), size));
        }
        hasher.update(piece.get(..length).unwrap_or_default());
        size += length as u64;
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn read_some(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
