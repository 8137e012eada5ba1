//! What the host has in a workspace that a sandbox gets a copy of.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::types::LeftBehind;

/// The permissions of a folder that is made on the way to a file.
const USUAL: u32 = 0o755;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Belongings {
    pub(super) files: Vec<OwnFile>,
    /// Those that no file brings along as they are, by how deep they lie.
    pub(super) folders: BTreeMap<usize, Vec<OwnFolder>>,
    /// What cannot be given, and why.
    pub(super) missing: Vec<LeftBehind>,
}

/// A file.
#[derive(Debug)]
pub(super) struct OwnFile {
    pub(super) path: PathBuf,
    /// Where it goes, relative to the workspace.
    pub(super) target: String,
    pub(super) mode: u32,
}

/// A folder that is empty, or has permissions of its own.
#[derive(Debug)]
pub(super) struct OwnFolder {
    /// Where it goes, relative to the workspace.
    pub(super) target: String,
    pub(super) mode: u32,
}

/// What lies beneath a folder; blocks.
pub(super) fn of(workspace: &Path) -> Result<Belongings, SandboxError> {
    let mut all = Belongings::default();
    let mut folders = vec![(workspace.to_owned(), None)];
    while let Some((within, own)) = folders.pop() {
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
                    folders.push((path, Some(OwnFolder { target, mode: mode | 0o700 })));
                    continue;
                }
                Some(target) if stat.is_file() => {
                    all.files.push(OwnFile { path, target, mode: mode | 0o600 });
                    continue;
                }
                Some(_) if stat.is_symlink() => "it is a link",
                Some(_) => "it is no plain file",
            };
            let path = relative.to_string_lossy().into_owned();
            all.missing.push(LeftBehind { path, reason: reason.to_owned() });
        }
        if let Some(own) = own.filter(|own| is_empty || own.mode != USUAL) {
            all.folders.entry(own.target.matches('/').count()).or_default().push(own);
        }
    }
    Ok(all)
}

fn failed(path: &Path, error: &std::io::Error) -> SandboxError {
    let message = format!("the workspace's `{}` cannot be given to the sandbox: {error}", path.display());
    SandboxError::new(SandboxErrorKind::Io, message)
}
