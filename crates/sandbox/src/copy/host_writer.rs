//! [`HostWriter`]: writes copied-out files into a directory of the host. It works beneath the handle of the
//! directory, follows no link, and writes each file atomically.
//!
//! It does not trust the sandbox: paths must be plain, and bytes are counted. A thread writes, and the caller waits
//! for its end, also when the content fails. When a copy is dropped, its thread ends by itself, and the next copy
//! waits for it ([`HostWriter::open`]). A crash leaves the files that were copied before, and at most one staging
//! file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use conjure_fs::{DirHandle, StagedFile};
use futures_util::StreamExt as _;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_util::task::TaskTracker;

use crate::calls::executor::ContentStream;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::host_dirs::remove_beneath;

/// How many chunks wait to be written.
const AHEAD: usize = 4;

/// The mode of missing parent directories that are created for a file.
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The destination directory on the host.
#[derive(Debug)]
pub(super) struct HostWriter {
    path: PathBuf,
    dir: Arc<DirHandle>,
    writers: TaskTracker,
}

/// A file or a directory to write.
#[derive(Debug, Clone)]
pub(super) struct IncomingEntry {
    /// Its path, relative to the destination.
    pub(super) path: String,
    /// Its permission bits.
    pub(super) mode: u32,
    pub(super) previous: PreviousEntry,
}

/// The entry that the sandbox and the host had under this path before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PreviousEntry {
    /// Nothing, or an entry of the same kind.
    Same,
    /// A file, where a directory is written now.
    File,
    /// A directory with these paths beneath it, where a file is written now. If the host has other paths beneath it,
    /// the directory stays.
    Dir(BTreeSet<String>),
}

impl HostWriter {
    /// Opens the directory after pending writers have ended.
    pub(super) async fn open(path: &Path, writers: &TaskTracker) -> Result<Self, SandboxError> {
        writers.close();
        writers.wait().await;
        let dir = rustix::fs::openat(CWD, path, DIR, Mode::empty()).map_err(|errno| {
            let message = format!("the workspace `{}` cannot be used: {errno}", path.display());
            SandboxError::new(SandboxErrorKind::Io, message)
        })?;
        Ok(Self { path: path.to_owned(), dir: Arc::new(dir.into()), writers: writers.clone() })
    }

    /// Writes a file with this content, of at most `max_bytes`, and replaces the previous one. Returns its size.
    pub(super) async fn write(
        &self,
        file: IncomingEntry,
        content: ContentStream,
        max_bytes: u64,
    ) -> Result<u64, SandboxError> {
        let path = file.path.clone();
        let (sender, receiver) = mpsc::channel(AHEAD);
        let dir = Arc::clone(&self.dir);
        let writing = self.writers.spawn_blocking(move || write(&dir, &file, receiver));
        let given = send_content(&path, content, max_bytes, sender).await;
        let written = writing.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let size = given?;
        written.map(|()| size).map_err(|error| self.failed(&path, &error))
    }

    /// Creates a directory where there is none.
    pub(super) async fn make_dir(&self, incoming: IncomingEntry) -> Result<(), SandboxError> {
        let (path, dir) = (incoming.path.clone(), Arc::clone(&self.dir));
        let making = self.writers.spawn_blocking(move || make_dir(&dir, &incoming));
        let created = making.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        created.map_err(|error| self.failed(&path, &error))
    }

    fn failed(&self, path: &str, error: &io::Error) -> SandboxError {
        let kind = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SandboxErrorKind::NoSpace,
            _ => SandboxErrorKind::Io,
        };
        let message = format!("`{path}` cannot be brought back to `{}`: {error}", self.path.display());
        SandboxError::new(kind, message)
    }
}

/// Passes the content on to the writing thread. Returns its size.
async fn send_content(
    path: &str,
    mut content: ContentStream,
    max_bytes: u64,
    to: Sender<Option<Bytes>>,
) -> Result<u64, SandboxError> {
    let mut size = 0_u64;
    while let Some(piece) = content.next().await {
        let piece = piece?;
        size = size.saturating_add(piece.len() as u64);
        if size > max_bytes {
            let message = format!("`{path}` cannot be brought back: it is more than the workspace may hold");
            return Err(SandboxError::new(SandboxErrorKind::TooLarge, message));
        }
        // The thread returns its error when it ends.
        if to.send(Some(piece)).await.is_err() {
            break;
        }
    }
    let _ = to.send(None).await;
    Ok(size)
}

/// Writes chunks up to the end mark `None`. If the chunks end without it, the file is discarded.
fn write(top: &DirHandle, file: &IncomingEntry, mut pieces: Receiver<Option<Bytes>>) -> io::Result<()> {
    let (parents, name) = split_path(&file.path)?;
    let dir = top.create_dirs(parents, DIR_MODE)?;
    let mut staged = StagedFile::create(&dir, Mode::RUSR | Mode::WUSR)?;
    loop {
        match pieces.blocking_recv() {
            Some(Some(piece)) => staged.write_all(&piece)?,
            Some(None) => break,
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    rustix::fs::fchmod(staged.file(), Mode::from_raw_mode(file.mode & 0o777))?;
    if let PreviousEntry::Dir(known) = &file.previous {
        remove_conflicting(&dir, name, Path::new(&file.path), known)?;
    }
    staged.replace(name)
}

fn make_dir(top: &DirHandle, incoming: &IncomingEntry) -> io::Result<()> {
    let (parents, name) = split_path(&incoming.path)?;
    let dir = top.create_dirs(parents, DIR_MODE)?;
    let is_file = || {
        rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    };
    if incoming.previous == PreviousEntry::File && is_file() {
        rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
    }
    // The owner of the workspace must be able to use it.
    dir.open_or_create(name, Mode::from_raw_mode(incoming.mode & 0o777 | 0o700))?;
    Ok(())
}

/// Splits a plain path into its parents and its name.
fn split_path(path: &str) -> io::Result<(&Path, &OsStr)> {
    let path = Path::new(path);
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let name = path.file_name().filter(|_| is_plain).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((path.parent().unwrap_or(Path::new("")), name))
}

/// Removes a directory of the host that a file replaces, if the sandbox had all entries in it.
fn remove_conflicting(
    parent: &DirHandle,
    name: &OsStr,
    path: &Path,
    known: &BTreeSet<String>,
) -> io::Result<()> {
    let is_dir = |dir: BorrowedFd<'_>, name: &OsStr| {
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    if !is_dir(parent.as_fd(), name) {
        return Ok(());
    }
    let mut dirs = vec![PathBuf::from(name)];
    while let Some(within) = dirs.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(parent, &within, flags, Mode::empty())?;
        let mut entries = Dir::read_from(&dir)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let there = path.parent().unwrap_or(Path::new("")).join(&within).join(name);
            if !there.to_str().is_some_and(|there| known.contains(there)) {
                let message = format!(
                    "it is a directory on the host, where `{}` lies in it, which the sandbox never had",
                    there.display()
                );
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, message));
            }
            if is_dir(dir.as_fd(), name) {
                dirs.push(within.join(name));
            }
        }
    }
    remove_beneath(parent.as_fd(), name, None).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use futures_util::stream;

    use super::*;

    fn content(pieces: &[&'static str]) -> ContentStream {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        stream::iter(pieces).boxed()
    }

    fn file(path: &str) -> IncomingEntry {
        IncomingEntry { path: path.to_owned(), mode: 0o644, previous: PreviousEntry::Same }
    }

    async fn open(path: &Path) -> HostWriter {
        HostWriter::open(path, &TaskTracker::new()).await.unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_file_comes_whole_and_through_no_link() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), dir.path().join("out")).unwrap();
        symlink(outside.path().join("file"), dir.path().join("link")).unwrap();
        let to = open(dir.path()).await;
        assert_eq!(to.write(file("a/b"), content(&["one", "two"]), 6).await, Ok(6));
        assert_eq!(std::fs::read(dir.path().join("a/b")).unwrap(), b"onetwo");
        // The link is replaced, and what it leads to is not touched.
        assert_eq!(to.write(file("link"), content(&["x"]), 6).await, Ok(1));
        for path in ["out/file", "../file", "/file", "a/../../file", ""] {
            assert!(to.write(file(path), content(&["x"]), 6).await.is_err(), "{path}");
            assert!(to.make_dir(file(path)).await.is_err(), "{path}");
        }
        let much = to.write(file("a/b"), content(&["more", "than"]), 6).await.unwrap_err();
        assert_eq!(much.kind(), SandboxErrorKind::TooLarge);
        let lost = SandboxError::new(SandboxErrorKind::Lost, "gone");
        let cut = stream::iter([Ok(Bytes::from_static(b"x")), Err(lost.clone())]).boxed();
        assert_eq!(to.write(file("a/b"), cut, 6).await, Err(lost));
        // Whoever wrote it has ended by now.
        assert_eq!(names(&dir.path().join("a")), ["b"]);
        assert_eq!(std::fs::read(dir.path().join("a/b")).unwrap(), b"onetwo");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn permissions_come_along_without_those_that_lend_a_user() {
        let dir = tempfile::tempdir().unwrap();
        let to = open(dir.path()).await;
        let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        to.write(IncomingEntry { mode: 0o6755, ..file("run") }, content(&["x"]), 6).await.unwrap();
        to.make_dir(IncomingEntry { mode: 0o2050, ..file("in/own") }).await.unwrap();
        assert_eq!((mode("run") & 0o7777, mode("in/own") & 0o7777), (0o755, 0o750));
        assert_eq!(mode("in") & 0o7777, 0o755);
    }

    #[tokio::test]
    async fn a_kind_changes_where_the_host_has_nothing_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("a/deep")).unwrap();
        for name in ["a/deep/x", "a/y", "b"] {
            std::fs::write(path(name), name).unwrap();
        }
        let to = open(dir.path()).await;
        let known =
            |names: &[&str]| PreviousEntry::Dir(names.iter().map(|name| (*name).to_owned()).collect());
        let incoming = |previous| IncomingEntry { previous, ..file("a") };
        let kept = to.write(incoming(known(&["a/deep", "a/y"])), content(&["x"]), 6).await.unwrap_err();
        assert_eq!(kept.kind(), SandboxErrorKind::Io);
        assert!(kept.to_string().contains("`a/deep/x`"), "{kept}");
        assert!(path("a/deep/x").exists() && path("a/y").exists());
        let all = known(&["a/deep", "a/deep/x", "a/y", "a/gone"]);
        assert_eq!(to.write(incoming(all.clone()), content(&["x"]), 6).await, Ok(1));
        assert_eq!(std::fs::read(path("a")).unwrap(), b"x");
        // The host has made it a file itself.
        assert_eq!(to.write(incoming(all), content(&["z"]), 6).await, Ok(1));
        assert!(to.make_dir(file("b")).await.is_err());
        to.make_dir(IncomingEntry { previous: PreviousEntry::File, ..file("b") }).await.unwrap();
        assert!(path("b").is_dir());
        assert_eq!(names(dir.path()).len(), 2);
    }

    #[tokio::test]
    async fn two_that_write_at_once_do_not_meddle() {
        let dir = tempfile::tempdir().unwrap();
        let to = open(dir.path()).await;
        let (pieces, held) = mpsc::channel(1);
        let held = stream::unfold(held, |mut held| async { held.recv().await.map(|piece| (piece, held)) });
        let slow = to.write(file("slow"), held.boxed(), 6);
        let meanwhile = async {
            pieces.send(Ok(Bytes::from_static(b"one"))).await.unwrap();
            // When the second is taken, the first was passed on; the draft is there soon.
            pieces.send(Ok(Bytes::from_static(b"two"))).await.unwrap();
            while names(dir.path()).is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(to.write(file("fast"), content(&["fast"]), 6).await, Ok(4));
            drop(pieces);
        };
        let (slow, ()) = tokio::join!(slow, meanwhile);
        assert_eq!(slow, Ok(6));
        assert_eq!(std::fs::read(dir.path().join("slow")).unwrap(), b"onetwo");
        assert_eq!(std::fs::read(dir.path().join("fast")).unwrap(), b"fast");
        assert_eq!(names(dir.path()).len(), 2);
    }

    #[tokio::test]
    async fn the_next_waits_for_the_writer_of_one_that_was_dropped() {
        let (dir, writers) = (tempfile::tempdir().unwrap(), TaskTracker::new());
        let to = HostWriter::open(dir.path(), &writers).await.unwrap();
        let endless = stream::iter([Ok(Bytes::from_static(b"x"))]).chain(stream::pending()).boxed();
        let mut writing = Box::pin(to.write(file("half"), endless, 6));
        while names(dir.path()).is_empty() {
            assert!(futures_util::poll!(&mut writing).is_pending());
            tokio::task::yield_now().await;
        }
        drop(writing);
        HostWriter::open(dir.path(), &writers).await.unwrap();
        assert!(names(dir.path()).is_empty());
    }
}
