//! `--out DIR`: the files that a run produced, as copies in a folder of the user's. Nothing is written outside of it, and nothing that is
//! there is overwritten.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use conjure::{FileSource, Session, SessionFile};
use futures_util::StreamExt as _;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tokio::io::AsyncWriteExt as _;

use crate::cli::failure::Failure;
use crate::cli::run::made;
use crate::cli::run::produced::size;
use crate::cli::terminal::{Style, Terminal, printable};

/// The folder, made where it is missing. Blocks.
pub(crate) fn folder(path: &Path) -> Result<PathBuf, Failure> {
    let made = std::fs::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| {
        Failure::usage(format!("`--out`: the folder `{}` cannot be used: {error}", path.display()))
    })
}

/// Copies what the session produced; of files of one name, the newest.
pub(super) async fn save(session: &Session, files: &[SessionFile], out: &Path, terminal: &Terminal) {
    let (newest, older) = made::newest(files);
    let mut saved = Vec::new();
    for file in newest {
        let name = printable(&file.name);
        match copy(session, file, out).await {
            Ok(bytes) => saved.push((bytes, name)),
            Err(reason) => {
                terminal
                    .warning(&format!("`{name}` is not in the folder of `--out`: {}", printable(&reason)));
            }
        }
    }
    if !saved.is_empty() {
        terminal.styled(Style::Plain, &format!("copied to {}:", printable(&out.to_string_lossy())));
    }
    for (bytes, name) in saved {
        terminal.note(&format!("  {:>9}  {name}", size(bytes)));
    }
    for file in older {
        let (name, id) = (printable(&file.name), printable(&file.id));
        terminal.note(&format!("an older `{name}` is not copied: `{id}` ({})", place(file.source)));
    }
}

/// Where a file lies, for people.
const fn place(source: FileSource) -> &'static str {
    match source {
        FileSource::Hosted => "with the model's service",
        _ => "in the workspace",
    }
}

/// Copies one file; how many bytes it has.
async fn copy(session: &Session, file: &SessionFile, out: &Path) -> Result<u64, String> {
    let mut content = session.open_file(file).await.map_err(|error| error.to_string())?;
    let (folder, name, made) = create(out, Path::new(&file.name))?;
    let mut target = tokio::fs::File::from_std(made);
    let mut bytes = 0;
    let written = async {
        while let Some(piece) = content.stream.next().await {
            let piece = piece.map_err(|error| error.to_string())?;
            bytes += piece.len() as u64;
            target.write_all(&piece).await.map_err(|error| error.to_string())?;
        }
        target.flush().await.map_err(|error| error.to_string())
    };
    let written = written.await;
    if written.is_err() {
        // Half of it is of no use to anybody.
        let _ = rustix::fs::unlinkat(&folder, &name, AtFlags::empty());
    }
    written.map(|()| bytes)
}

/// A new file beneath the folder, its own folder, and its name there. No link is followed.
fn create(out: &Path, relative: &Path) -> Result<(OwnedFd, PathBuf, File), String> {
    let mut parts = Vec::new();
    for part in relative.components() {
        match part {
            Component::Normal(part) => parts.push(Path::new(part)),
            _ => return Err("its name leads out of it".to_owned()),
        }
    }
    let Some((name, folders)) = parts.split_last() else { return Err("it has no name".to_owned()) };
    let said = |errno: Errno| match errno {
        Errno::EXIST => "there is a file of this name, which is not overwritten".to_owned(),
        Errno::LOOP | Errno::NOTDIR => "a link, or a file, is in the place of its folder".to_owned(),
        other => std::io::Error::from(other).to_string(),
    };
    let as_folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = rustix::fs::open(out, as_folder, Mode::empty()).map_err(said)?;
    for part in folders {
        match rustix::fs::mkdirat(&folder, *part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(said(errno)),
        }
        folder = rustix::fs::openat(folder.as_fd(), *part, as_folder, Mode::empty()).map_err(said)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&folder, *name, flags, Mode::from_raw_mode(0o666)).map_err(said)?;
    Ok((folder, name.to_path_buf(), made.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_made_in_the_folder_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let (out, outside) = (folder.path().join("out"), folder.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        let out = super::folder(&out).unwrap();
        create(&out, Path::new("a/b/report.md")).unwrap();
        assert!(out.join("a/b/report.md").is_file());
        symlink(&outside, out.join("link")).unwrap();
        symlink(outside.join("file"), out.join("dangling")).unwrap();
        for (name, expected) in [
            ("a/b/report.md", "not overwritten"),
            ("dangling", "not overwritten"),
            ("link/report.md", "a link"),
            ("a/b/report.md/c", "a link, or a file"),
            ("../report.md", "leads out"),
            ("/report.md", "leads out"),
            ("", "no name"),
        ] {
            let error = create(&out, Path::new(name)).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(super::folder(&folder.path().join("file")).is_err());
    }
}
