//! [`HostFiles`]: the result of scanning a host workspace that is copied into a sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::calls::files::SkippedFile;
use crate::error::{SandboxError, SandboxErrorKind};

/// The mode of missing parent directories that are created for a file.
const DEFAULT_MODE: u32 = 0o755;

/// The result of a scan.
#[derive(Debug, Default)]
pub(super) struct HostFiles {
    pub(super) files: Vec<HostFile>,
    /// Directories that must be created explicitly, by their depth.
    pub(super) dirs: BTreeMap<usize, Vec<HostDir>>,
    /// The entries that cannot be copied.
    pub(super) skipped: Vec<SkippedFile>,
}

/// A file.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) path: PathBuf,
    /// Its path, relative to the workspace.
    pub(super) target: String,
    pub(super) mode: u32,
}

/// A directory that is empty, or has a mode other than the default.
#[derive(Debug)]
pub(super) struct HostDir {
    /// Its path in the sandbox, relative to the workspace.
    pub(super) target: String,
    pub(super) mode: u32,
}

/// Scans a directory. Blocks.
pub(super) fn scan(workspace: &Path) -> Result<HostFiles, SandboxError> {
    let mut all = HostFiles::default();
    let mut dirs = vec![(workspace.to_owned(), None)];
    while let Some((within, own)) = dirs.pop() {
        let mut is_empty = true;
        for entry in fs::read_dir(&within).map_err(|error| failed(&within, &error))? {
            is_empty = false;
            let path = entry.map_err(|error| failed(&within, &error))?.path();
            let stat = fs::symlink_metadata(&path).map_err(|error| failed(&path, &error))?;
            let relative = path.strip_prefix(workspace).unwrap_or(&path);
            let mode = stat.mode() & 0o777;
            let reason = match relative.to_str().map(str::to_owned) {
                None => "its name is not UTF-8",
                Some(target) if stat.is_dir() => {
                    dirs.push((path, Some(HostDir { target, mode: mode | 0o700 })));
                    continue;
                }
                Some(target) if stat.is_file() => {
                    all.files.push(HostFile { path, target, mode: mode | 0o600 });
                    continue;
                }
                Some(_) if stat.is_symlink() => "it is a link",
                Some(_) => "it is not a regular file",
            };
            let path = relative.to_string_lossy().into_owned();
            all.skipped.push(SkippedFile { path, reason: reason.to_owned() });
        }
        if let Some(own) = own.filter(|own| is_empty || own.mode != DEFAULT_MODE) {
            all.dirs.entry(own.target.matches('/').count()).or_default().push(own);
        }
    }
    Ok(all)
}

fn failed(path: &Path, error: &std::io::Error) -> SandboxError {
    let message = format!("the workspace's `{}` cannot be given to the sandbox: {error}", path.display());
    SandboxError::new(SandboxErrorKind::Io, message)
}
