//! The workspace of a sandbox that shares no folders with the host: the host's files go in before the first command, and
//! changed ones come back when the host asks for them.
//!
//! State: what the host has of the workspace as it was when it was looked at last, and what of the host's was not given. What
//! was not brought back is lost with the sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex as Lock, PoisonError};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use conjure_guest::protocol::{Reply, Request};

use super::belongings::{self, Belongings, OwnFile, OwnFolder};
use super::bringing::{Coming, Destination, Former};
use super::pages::{Page, Pages};
use super::pieces;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::{CallOptions, Executor as _};
use crate::operation::Pump;
use crate::sandbox::{Sandbox, wrong_reply};
use crate::types::{BroughtBack, DirectoryEntry, EntryKind, LeftBehind};

/// How many files are on their way in at a time.
const AT_ONCE: usize = 8;

/// How many files and folders of a workspace are looked at.
const MOST_ENTRIES: usize = 100_000;

/// How many of what it was not given the model is told.
const TOLD: usize = 10;

/// A workspace, in the sandbox and on the host.
#[derive(Debug)]
pub(super) struct Workspace {
    host: PathBuf,
    /// How many bytes are brought back at a time at most.
    most: u64,
    known: Mutex<Known>,
    /// Threads that write what is brought back.
    writers: TaskTracker,
    /// What the sandbox was not given, until it is told.
    missing: Lock<Vec<LeftBehind>>,
}

/// What the host has as it is in the sandbox, by paths.
#[derive(Debug, Default)]
struct Known(BTreeMap<String, Had>);

/// Something that both have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Had {
    File { size: u64, modified_ns: i64, mode: u32 },
    Folder,
}

impl Workspace {
    /// Puts the host's files and folders into the sandbox's workspace, in which nothing runs yet.
    pub(super) async fn move_in(
        sandbox: &Sandbox,
        host: PathBuf,
        most: u64,
        options: &CallOptions,
    ) -> Result<Self, SandboxError> {
        let (from, doing) = (host.clone(), format!("give the workspace `{}` to the sandbox", host.display()));
        let Belongings { files, folders, missing } =
            pieces::blocking(doing, move || belongings::of(&from)).await?;
        for left in &missing {
            tracing::warn!(path = %left.path, reason = %left.reason, "not given to the sandbox");
        }
        let is_empty = files.is_empty() && folders.is_empty();
        // Level by level, so that each is made with its own permissions.
        for level in folders.into_values() {
            stream::iter(level.into_iter().map(Ok))
                .try_for_each_concurrent(AT_ONCE, |folder| make(sandbox, folder, options.clone()))
                .await?;
        }
        stream::iter(files.into_iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |file| put(sandbox, file, options.clone()))
            .await?;
        let mut known = Known::default();
        if !is_empty {
            let mut pages = Pages::new(MOST_ENTRIES);
            while let Some(page) = pages.next(sandbox, options).await? {
                known.0.extend(
                    page.entries
                        .into_iter()
                        .filter_map(|entry| Some((Had::of(&entry)?, entry.path)))
                        .map(|(had, path)| (path, had)),
                );
            }
        }
        let (known, writers, missing) = (Mutex::new(known), TaskTracker::new(), Lock::new(missing));
        Ok(Self { host, most, known, writers, missing })
    }

    /// Brings back the files and folders that are new or were changed, each whole. What cannot be brought back is told, and
    /// holds up nothing else.
    pub(super) async fn bring_back(
        &self,
        sandbox: &Sandbox,
        options: &CallOptions,
    ) -> Result<BroughtBack, SandboxError> {
        // One after the other: two would write the same files.
        let mut known = self.known.lock().await;
        let destination = Destination::open(&self.host, &self.writers).await?;
        let (mut brought, mut pages) = (BroughtBack::default(), Pages::new(MOST_ENTRIES));
        while let Some(Page { entries, unlisted }) = pages.next(sandbox, options).await? {
            brought.left.extend(unlisted);
            for entry in entries {
                let path = entry.path.clone();
                match self.bring(sandbox, &destination, &mut known, entry, &mut brought, options).await {
                    Ok(()) => {}
                    Err(error) if ends_everything(&error) => return Err(error),
                    Err(error) => brought.left.push(LeftBehind { path, reason: error.to_string() }),
                }
            }
        }
        Ok(brought)
    }

    async fn bring(
        &self,
        sandbox: &Sandbox,
        destination: &Destination,
        known: &mut Known,
        entry: DirectoryEntry,
        brought: &mut BroughtBack,
        options: &CallOptions,
    ) -> Result<(), SandboxError> {
        let Some(had) = Had::of(&entry) else {
            let message = "it is no plain file";
            return Err(SandboxError::new(SandboxErrorKind::WrongFileType, message));
        };
        let DirectoryEntry { path, mode, .. } = entry;
        if known.0.get(&path) == Some(&had) {
            return Ok(());
        }
        let coming = Coming { former: known.former(&path, had), path: path.clone(), mode };
        match had {
            Had::Folder => destination.make_folder(coming).await?,
            Had::File { .. } => {
                let content = sandbox.read(&path, options.clone()).await?;
                let room = self.most.saturating_sub(brought.bytes);
                // Whoever has the workspace must be able to read it.
                let coming = Coming { mode: mode | 0o600, ..coming };
                brought.bytes += destination.write(coming, content, room).await?;
                brought.files += 1;
            }
        }
        known.learn(path, had);
        Ok(())
    }

    /// What the model is to be told of what the sandbox was not given, once.
    pub(super) fn take_notice(&self) -> Option<String> {
        let missing = std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
        let told = missing.iter().take(TOLD);
        let told: Vec<_> =
            told.map(|left| format!("`{}` ({})", left.path.escape_debug(), left.reason)).collect();
        let more = match missing.len().saturating_sub(TOLD) {
            0 if missing.is_empty() => return None,
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(format!(
            "[This sandbox has a copy of the user's workspace, without: {}{more}.]",
            told.join(", ")
        ))
    }
}

impl Had {
    fn of(entry: &DirectoryEntry) -> Option<Self> {
        match entry.kind {
            EntryKind::File => {
                Some(Self::File { size: entry.size, modified_ns: entry.modified_ns, mode: entry.mode })
            }
            EntryKind::Directory => Some(Self::Folder),
            EntryKind::Symlink | EntryKind::Other => None,
        }
    }
}

impl Known {
    /// What both had under a name under which the sandbox has this now.
    fn former(&self, path: &str, now: Had) -> Former {
        match (self.0.get(path), now) {
            (Some(Had::File { .. }), Had::Folder) => Former::File,
            (Some(Had::Folder), Had::File { .. }) => {
                Former::Folder(self.beneath(path).map(str::to_owned).collect())
            }
            _ => Former::Alike,
        }
    }

    /// The host has this now, too.
    fn learn(&mut self, path: String, now: Had) {
        if matches!(now, Had::File { .. }) {
            let gone: Vec<String> = self.beneath(&path).map(str::to_owned).collect();
            for path in gone {
                self.0.remove(&path);
            }
        }
        self.0.insert(path, now);
    }

    fn beneath(&self, path: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{path}/");
        let from = self.0.range(prefix.clone()..);
        from.map(|(path, _)| path.as_str()).take_while(move |path| path.starts_with(&prefix))
    }
}

/// Whether a failure is one of the sandbox, the call or the host's disk rather than of the file.
const fn ends_everything(error: &SandboxError) -> bool {
    !matches!(
        error.kind(),
        SandboxErrorKind::NotFound
            | SandboxErrorKind::PermissionDenied
            | SandboxErrorKind::PathNotAllowed
            | SandboxErrorKind::WrongFileType
            | SandboxErrorKind::Exists
            | SandboxErrorKind::Io
    )
}

async fn make(sandbox: &Sandbox, folder: OwnFolder, options: CallOptions) -> Result<(), SandboxError> {
    let request = Request::Folder { path: folder.target, mode: folder.mode };
    match sandbox.finish(request, 0, Pump::none(), options).await? {
        (_, Reply::Folder { .. }, _) => Ok(()),
        (call, ..) => Err(wrong_reply(&call)),
    }
}

async fn put(sandbox: &Sandbox, file: OwnFile, options: CallOptions) -> Result<(), SandboxError> {
    let OwnFile { path, target, mode } = file;
    let content = pieces::stream(move |outlet| outlet.path(&path));
    let request = Request::Write { path: target, mode: Some(mode) };
    match sandbox.finish(request, 0, Pump::of(content.boxed()), options).await? {
        (_, Reply::Write { .. }, _) => Ok(()),
        (call, ..) => Err(wrong_reply(&call)),
    }
}

#[cfg(test)]
mod tests;
