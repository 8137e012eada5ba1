//! Writing what comes out of a sandbox into a folder of the host: beneath its handle, through no link, each file whole.
//!
//! What the sandbox says is checked: names are plain, and bytes are counted. A failure or a drop leaves files that were
//! brought before, and at most a draft, which the next bringing does not mind.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use futures_util::StreamExt as _;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc::{self, Receiver};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::ContentStream;

/// How many pieces wait to be written.
const AHEAD: usize = 4;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder of the host.
#[derive(Debug)]
pub(super) struct Destination {
    path: PathBuf,
    folder: OwnedFd,
}

impl Destination {
    pub(super) fn open(path: &Path) -> Result<Self, SandboxError> {
        let folder = rustix::fs::openat(CWD, path, FOLDER, Mode::empty()).map_err(|errno| {
            let message = format!("the workspace `{}` cannot be used: {errno}", path.display());
            SandboxError::new(SandboxErrorKind::Io, message)
        })?;
        Ok(Self { path: path.to_owned(), folder })
    }

    /// Writes a file with this content, of at most `most` bytes, in the place of what has its name. How many there were.
    pub(super) async fn write(
        &self,
        path: &str,
        mut content: ContentStream,
        most: u64,
    ) -> Result<u64, SandboxError> {
        let failed = |error: &io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SandboxErrorKind::NoSpace,
                _ => SandboxErrorKind::Io,
            };
            let message = format!("`{path}` cannot be brought back to `{}`: {error}", self.path.display());
            SandboxError::new(kind, message)
        };
        let folder = self.folder.try_clone().map_err(|error| failed(&error))?;
        let target = PathBuf::from(path);
        let (sender, receiver) = mpsc::channel(AHEAD);
        let writing = tokio::task::spawn_blocking(move || write(&folder, &target, receiver));
        let mut size = 0_u64;
        while let Some(piece) = content.next().await {
            let piece = piece?;
            size = size.saturating_add(piece.len() as u64);
            if size > most {
                let message =
                    format!("`{path}` cannot be brought back: it is more than the workspace may hold");
                return Err(SandboxError::new(SandboxErrorKind::TooLarge, message));
            }
            // Whoever does not take it any more says why below.
            if sender.send(Some(piece)).await.is_err() {
                break;
            }
        }
        let _ = sender.send(None).await;
        let written = writing.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map(|()| size).map_err(|error| failed(&error))
    }
}

/// Writes what comes, up to its end, which is `None`: what ends without it is not kept.
fn write(top: &OwnedFd, path: &Path, mut pieces: Receiver<Option<Bytes>>) -> io::Result<()> {
    let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let name = path.file_name().filter(|_| is_plain).ok_or(io::ErrorKind::InvalidInput)?;
    let mut folder = rustix::fs::openat(top, ".", FOLDER, Mode::empty())?;
    for part in path.parent().unwrap_or(Path::new("")).components() {
        match rustix::fs::mkdirat(&folder, part.as_os_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        folder = rustix::fs::openat(&folder, part.as_os_str(), FOLDER, Mode::empty())?;
    }
    let draft = Draft { name: format!(".conjure-brought-{}.tmp", std::process::id()), folder };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&draft.folder, draft.name.as_str(), flags, Mode::from_raw_mode(0o644))?;
    let mut file = std::fs::File::from(file);
    loop {
        match pieces.blocking_recv() {
            Some(Some(piece)) => file.write_all(&piece)?,
            Some(None) => break,
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    rustix::fs::renameat(&draft.folder, draft.name.as_str(), &draft.folder, name)?;
    Ok(())
}

/// A file without its final name. Dropping it removes it, if it is still there.
#[derive(Debug)]
struct Draft {
    folder: OwnedFd,
    name: String,
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use futures_util::stream;

    use super::*;

    fn content(pieces: &[&'static str]) -> ContentStream {
        let pieces: Vec<_> = pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        stream::iter(pieces).boxed()
    }

    #[tokio::test]
    async fn a_file_comes_whole_and_through_no_link() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), folder.path().join("out")).unwrap();
        symlink(outside.path().join("file"), folder.path().join("link")).unwrap();
        let to = Destination::open(folder.path()).unwrap();
        assert_eq!(to.write("a/b", content(&["one", "two"]), 6).await, Ok(6));
        assert_eq!(std::fs::read(folder.path().join("a/b")).unwrap(), b"onetwo");
        // The link is replaced, and what it leads to is not touched.
        assert_eq!(to.write("link", content(&["x"]), 6).await, Ok(1));
        for path in ["out/file", "../file", "/file", "a/../../file", ""] {
            assert!(to.write(path, content(&["x"]), 6).await.is_err(), "{path}");
        }
        let much = to.write("a/b", content(&["more", "than"]), 6).await.unwrap_err();
        assert_eq!(much.kind(), SandboxErrorKind::TooLarge);
        let lost = SandboxError::new(SandboxErrorKind::Lost, "gone");
        let cut = stream::iter([Ok(Bytes::from_static(b"x")), Err(lost.clone())]).boxed();
        assert_eq!(to.write("a/b", cut, 6).await, Err(lost));
        assert_eq!(std::fs::read(folder.path().join("a/b")).unwrap(), b"onetwo");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
