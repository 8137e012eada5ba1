//! The workspace of a sandbox that shares no folders with the host: the host's files go in before the first command, and
//! changed ones come back when the host asks for them.
//!
//! State: what the workspace held when it was looked at last. What was not brought back is lost with the sandbox.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use conjure_guest::protocol::{Reply, Request};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;

use super::bringing::Destination;
use super::pieces;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::{CallOptions, Executor as _};
use crate::operation::Pump;
use crate::sandbox::{Sandbox, wrong_reply};
use crate::types::{BroughtBack, EntryKind, LeftBehind, Listing};

/// How many files are on their way in at a time.
const AT_ONCE: usize = 8;

/// What of a workspace is looked at: as much as a session's produced files are looked for.
const DEEPEST: u32 = 64;
const MOST_ENTRIES: u32 = 100_000;

/// A workspace, in the sandbox and on the host.
#[derive(Debug)]
pub(super) struct Workspace {
    host: PathBuf,
    /// How many bytes are brought back at a time at most.
    most: u64,
    /// Size and date of the files that the host has as they are in the sandbox, by their paths.
    known: Mutex<BTreeMap<String, (u64, i64)>>,
}

/// A file of the host's.
#[derive(Debug)]
struct Found {
    path: PathBuf,
    /// Where it goes, relative to the workspace.
    target: String,
    mode: u32,
}

impl Workspace {
    /// Puts the host's files into the sandbox's workspace, in which nothing runs yet.
    pub(super) async fn move_in(
        sandbox: &Sandbox,
        host: PathBuf,
        most: u64,
        options: &CallOptions,
    ) -> Result<Self, SandboxError> {
        let from = host.clone();
        let found = tokio::task::spawn_blocking(move || files(&from)).await;
        let found =
            found.unwrap_or_else(|error| Err(SandboxError::new(SandboxErrorKind::Io, error.to_string())))?;
        let is_empty = found.is_empty();
        stream::iter(found.into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |file| put(sandbox, file, options.clone()))
            .await?;
        let known = if is_empty { BTreeMap::new() } else { plain_files(&look(sandbox, options).await?) };
        Ok(Self { host, most, known: Mutex::new(known) })
    }

    /// Brings back the files that are new or were changed, each whole.
    pub(super) async fn bring_back(
        &self,
        sandbox: &Sandbox,
        options: &CallOptions,
    ) -> Result<BroughtBack, SandboxError> {
        // One after the other: two would write the same files.
        let mut known = self.known.lock().await;
        let listing = look(sandbox, options).await?;
        let mut brought = BroughtBack::default();
        for entry in &listing.entries {
            if !matches!(entry.kind, EntryKind::File | EntryKind::Directory) {
                brought
                    .left
                    .push(LeftBehind { path: entry.path.clone(), reason: "it is no plain file".to_owned() });
            }
        }
        let destination = Destination::open(&self.host)?;
        for (path, state) in plain_files(&listing) {
            if known.get(&path) == Some(&state) {
                continue;
            }
            let Some(left) = self.most.checked_sub(brought.bytes) else { break };
            let content = match sandbox.read(&path, options.clone()).await {
                Ok(content) => content,
                // It went meanwhile, or has a name that is no text, or nobody may read it.
                Err(error) if !ends_everything(&error) => {
                    brought.left.push(LeftBehind { path, reason: error.to_string() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            brought.bytes += destination.write(&path, content, left).await?;
            brought.files += 1;
            known.insert(path, state);
        }
        Ok(brought)
    }
}

/// Whether a failure is one of the sandbox or the call rather than of the file.
const fn ends_everything(error: &SandboxError) -> bool {
    !matches!(
        error.kind(),
        SandboxErrorKind::NotFound
            | SandboxErrorKind::PermissionDenied
            | SandboxErrorKind::PathNotAllowed
            | SandboxErrorKind::WrongFileType
    )
}

async fn look(sandbox: &Sandbox, options: &CallOptions) -> Result<Listing, SandboxError> {
    let listing = sandbox.list(".", DEEPEST, MOST_ENTRIES, options.clone()).await?;
    if listing.truncated {
        let message = format!(
            "the workspace holds more than {MOST_ENTRIES} files and folders, or more names than can be listed; nothing of it is \
             brought back: pack them into one file"
        );
        return Err(SandboxError::new(SandboxErrorKind::TooLarge, message));
    }
    Ok(listing)
}

fn plain_files(listing: &Listing) -> BTreeMap<String, (u64, i64)> {
    let files = listing.entries.iter().filter(|entry| entry.kind == EntryKind::File);
    files.map(|entry| (entry.path.clone(), (entry.size, entry.modified_ns))).collect()
}

/// The plain files beneath a folder. What is none is left out, and logged; blocks.
fn files(folder: &Path) -> Result<Vec<Found>, SandboxError> {
    let failed = |path: &Path, error: &std::io::Error| {
        let message = format!("the workspace's `{}` cannot be given to the sandbox: {error}", path.display());
        SandboxError::new(SandboxErrorKind::Io, message)
    };
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(within) = folders.pop() {
        for entry in fs::read_dir(&within).map_err(|error| failed(&within, &error))? {
            let path = entry.map_err(|error| failed(&within, &error))?.path();
            let stat = fs::symlink_metadata(&path).map_err(|error| failed(&path, &error))?;
            let target = path.strip_prefix(folder).ok().and_then(Path::to_str).map(str::to_owned);
            match target {
                _ if stat.is_dir() => folders.push(path),
                Some(target) if stat.is_file() => {
                    found.push(Found { path, target, mode: stat.mode() & 0o777 | 0o600 });
                }
                _ => {
                    tracing::warn!(path = %path.display(), "no plain file with a name in UTF-8: not given to the sandbox")
                }
            }
        }
    }
    Ok(found)
}

async fn put(sandbox: &Sandbox, file: Found, options: CallOptions) -> Result<(), SandboxError> {
    let Found { path, target, mode } = file;
    let content = pieces::stream(move |outlet| {
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((size, file)) => outlet.file(file, size, &path.to_string_lossy()),
            Err(error) => outlet.fail(&format!("`{}` cannot be opened: {error}", path.display())),
        }
    });
    let request = Request::Write { path: target, mode: Some(mode) };
    match sandbox.finish(request, 0, Pump::of(content.boxed()), options).await? {
        (_, Reply::Write { .. }, _) => Ok(()),
        (call, ..) => Err(wrong_reply(&call)),
    }
}
