//! `--out DIR`: copies the files that a run produced to a directory of the user. Nothing outside of it is written, and nothing in it is
//! overwritten.
//!
//! Holes of a file stay holes. The total size is limited, because a tool can create a sparse file of any size.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use conjure::Session;
use conjure::artifact::{FileSource, SessionFile};
use futures_util::StreamExt as _;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tokio::io::{AsyncSeekExt as _, AsyncWriteExt as _};

use crate::cli::cli_error::CliError;
use crate::cli::destination::{self, OpenDir, ToolDirs};
use crate::cli::run::outputs::output_list;
use crate::cli::run::outputs::output_report::human_size;
use crate::cli::terminal::{Style, Terminal, printable};

/// How many bytes of a hole count as one byte: a hole takes time to copy, but no space.
const HOLE_DISCOUNT: u64 = 64;

/// The block size of file systems. A shorter run of zeros is written.
const BLOCK: usize = 4096;

/// Zeros for comparison with the content.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// The target of copies, and their size limit.
#[derive(Debug)]
pub(crate) struct OutputTarget {
    pub(crate) dir: OpenDir,
    /// The limit of all files together, in bytes.
    pub(crate) limit: u64,
}

/// Opens the directory, and creates it if it is missing. Tools may replace it while it is open. Blocks.
pub(crate) fn open_dir(path: &Path, tools: &ToolDirs) -> Result<OpenDir, CliError> {
    destination::open_dir(path, tools).map_err(|error| CliError::usage(format!("`--out`: {error}")))
}

/// Copies the files that the session produced. Of several files with the same name, only the newest is copied.
pub(crate) async fn copy_outputs(
    session: &Session,
    files: &[SessionFile],
    out: &OutputTarget,
    terminal: &Terminal,
) {
    let (newest, older) = output_list::split_newest(files);
    let mut saved = Vec::new();
    let mut budget = CopyBudget::new(out.limit);
    for file in newest {
        let name = printable(&file.name);
        match copy_file(session, file, &out.dir, &mut budget).await {
            Ok(bytes) => saved.push((bytes, name)),
            Err(reason) => {
                terminal
                    .warning(&format!("`{name}` is not in the directory of `--out`: {}", printable(&reason)));
            }
        }
    }
    if !saved.is_empty() {
        terminal.styled(Style::Plain, &format!("copied to {}:", printable(&out.dir.path.to_string_lossy())));
    }
    for (bytes, name) in saved {
        terminal.note(&format!("  {:>9}  {name}", human_size(bytes)));
    }
    for file in older {
        let (name, id) = (printable(&file.name), printable(&file.id));
        terminal.note(&format!("an older `{name}` is not copied: `{id}` ({})", storage_name(file.source)));
    }
}

/// The name of the storage, for people.
const fn storage_name(source: FileSource) -> &'static str {
    match source {
        FileSource::Hosted => "with the model's service",
        _ => "in the workspace",
    }
}

/// Copies one file. Returns its size.
async fn copy_file(
    session: &Session,
    file: &SessionFile,
    out: &OpenDir,
    budget: &mut CopyBudget,
) -> Result<u64, String> {
    let mut content = session.open_file(file).await.map_err(|error| error.to_string())?;
    let (dir, name, made) = create_file(out, Path::new(&file.name))?;
    let mut target = tokio::fs::File::from_std(made);
    let mut bytes = 0;
    let said = |error: std::io::Error| error.to_string();
    let written = async {
        while let Some(piece) = content.stream.next().await {
            let piece = piece.map_err(|error| error.to_string())?;
            bytes += piece.len() as u64;
            if is_hole(&piece) {
                budget.take(piece.len() as u64 / HOLE_DISCOUNT)?;
                target.seek(std::io::SeekFrom::Start(bytes)).await.map_err(said)?;
            } else {
                budget.take(piece.len() as u64)?;
                target.write_all(&piece).await.map_err(said)?;
            }
        }
        target.flush().await.map_err(said)?;
        // The file may end with a hole.
        target.set_len(bytes).await.map_err(said)
    };
    let written = written.await;
    if written.is_err() {
        // An incomplete copy is of no use.
        let _ = rustix::fs::unlinkat(&dir, &name, AtFlags::empty());
    }
    written.map(|()| bytes)
}

/// How many bytes may still be copied.
#[derive(Debug)]
struct CopyBudget {
    limit: u64,
    remaining: u64,
}

impl CopyBudget {
    const fn new(limit: u64) -> Self {
        Self { limit, remaining: limit }
    }

    fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.remaining = self.remaining.checked_sub(bytes).ok_or_else(|| {
            let limit = human_size(self.limit);
            format!("the copies would be larger than {limit} together; `--out-limit SIZE` allows more")
        })?;
        Ok(())
    }
}

/// Whether these bytes can be left out as a hole.
fn is_hole(piece: &[u8]) -> bool {
    piece.len() >= BLOCK && piece.chunks(ZEROS.len()).all(|part| ZEROS.starts_with(part))
}

/// Creates a file below the directory. Returns its parent directory, its name and the file. Links are not followed.
fn create_file(out: &OpenDir, relative: &Path) -> Result<(OwnedFd, PathBuf, File), String> {
    let mut parts = Vec::new();
    for part in relative.components() {
        match part {
            Component::Normal(part) => parts.push(Path::new(part)),
            _ => return Err("its name leads out of it".to_owned()),
        }
    }
    let Some((name, dirs)) = parts.split_last() else { return Err("it has no name".to_owned()) };
    let said = |errno: Errno| match errno {
        Errno::EXIST => "there is a file of this name, which is not overwritten".to_owned(),
        Errno::LOOP | Errno::NOTDIR => "a link, or a file, is in the place of its directory".to_owned(),
        other => std::io::Error::from(other).to_string(),
    };
    let as_dir = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::openat(&out.handle, ".", as_dir, Mode::empty()).map_err(said)?;
    for part in dirs {
        match rustix::fs::mkdirat(&dir, *part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(said(errno)),
        }
        dir = rustix::fs::openat(dir.as_fd(), *part, as_dir, Mode::empty()).map_err(said)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&dir, *name, flags, Mode::from_raw_mode(0o666)).map_err(said)?;
    Ok((dir, name.to_path_buf(), made.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_made_in_the_directory_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let (out, outside) = (dir.path().join("out"), dir.path().join("outside"));
        std::fs::create_dir(&outside).unwrap();
        let opened = open_dir(&out, &ToolDirs::default()).unwrap();
        create_file(&opened, Path::new("a/b/report.md")).unwrap();
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
            let error = create_file(&opened, Path::new(name)).unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(open_dir(&dir.path().join("file"), &ToolDirs::default()).is_err());
    }
}
