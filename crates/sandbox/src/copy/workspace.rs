//! [`WorkspaceCopy`]: two-way copy of a workspace between the host and a sandbox that shares no directories with it.
//! The host's files are copied in before the first command, and changed ones are copied out on request.
//!
//! State: the entries as of the last copy, and the host's files that were not copied in. Changes that were not copied
//! out are lost with the sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as Lock};

use conjure_base::lock;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use conjure_fs::run_blocking;
use conjure_guest::protocol::{Reply, Request};

use super::blocking_stream;
use super::host_scan::{self, HostDir, HostFile, HostFiles};
use super::host_writer::{HostWriter, IncomingEntry, PreviousEntry};
use super::tree_pager::{TreePage, TreePager};
use crate::calls::call_options::CallOptions;
use crate::calls::files::{CopyOutReport, DirectoryEntry, EntryKind, SkippedFile};
use crate::calls::guest_ops::ContentSender;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_connection::{GuestConnection, wrong_reply};

/// How many files are copied in at a time.
const CONCURRENCY: usize = 8;

/// The maximum number of entries of a workspace.
const MAX_ENTRIES: usize = 100_000;

/// How many skipped files the notice for the model names.
const MAX_REPORTED: usize = 10;

/// A workspace in the sandbox and on the host.
#[derive(Debug)]
pub(super) struct WorkspaceCopy {
    host: PathBuf,
    /// The maximum size of one copy out in bytes.
    max_bytes: u64,
    synced: Mutex<SyncedEntries>,
    /// The threads that write files on the host.
    writers: TaskTracker,
    /// Files that were not copied in and that were not reported to the model yet.
    skipped: Lock<Vec<SkippedFile>>,
}

/// The entries that are equal on both sides, by path.
#[derive(Debug, Default)]
struct SyncedEntries(BTreeMap<String, SyncedEntry>);

/// An entry that both sides have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncedEntry {
    File { size: u64, modified_ns: i64, mode: u32 },
    Dir,
}

impl WorkspaceCopy {
    /// Copies the host's files and directories into the sandbox's workspace, in which nothing runs yet.
    pub(super) async fn copy_in(
        guest: &GuestConnection,
        host: PathBuf,
        max_bytes: u64,
        options: &CallOptions,
    ) -> Result<Self, SandboxError> {
        let from = host.clone();
        let HostFiles { files, dirs, skipped } = run_blocking(move || host_scan::scan(&from)).await??;
        for left in &skipped {
            tracing::warn!(path = %left.path, reason = %left.reason, "content was not installed in the sandbox");
        }
        let is_empty = files.is_empty() && dirs.is_empty();
        // Level by level, so that each directory is created with its own mode.
        for level in dirs.into_values() {
            stream::iter(level.into_iter().map(Ok))
                .try_for_each_concurrent(CONCURRENCY, |dir| create_dir(guest, dir, options.clone()))
                .await?;
        }
        stream::iter(files.into_iter().map(Ok))
            .try_for_each_concurrent(CONCURRENCY, |file| write_file(guest, file, options.clone()))
            .await?;
        let mut synced = SyncedEntries::default();
        if !is_empty {
            let mut pager = TreePager::new(MAX_ENTRIES);
            while let Some(page) = pager.next(guest, options).await? {
                synced.0.extend(
                    page.entries
                        .into_iter()
                        .filter_map(|entry| Some((SyncedEntry::from_entry(&entry)?, entry.path)))
                        .map(|(now, path)| (path, now)),
                );
            }
        }
        let (synced, writers, skipped) = (Mutex::new(synced), TaskTracker::new(), Lock::new(skipped));
        Ok(Self { host, max_bytes, synced, writers, skipped })
    }

    /// Copies out the files and directories that are new or changed, each completely. The report names those that
    /// cannot be copied; the others are still copied.
    pub(super) async fn copy_out(
        &self,
        guest: &Arc<GuestConnection>,
        options: &CallOptions,
    ) -> Result<CopyOutReport, SandboxError> {
        // Only one copy at a time, because two would write the same files.
        let mut synced = self.synced.lock().await;
        let writer = HostWriter::open(&self.host, &self.writers).await?;
        let (mut report, mut pager) = (CopyOutReport::default(), TreePager::new(MAX_ENTRIES));
        while let Some(TreePage { entries, unlisted }) = pager.next(guest, options).await? {
            report.skipped.extend(unlisted);
            for entry in entries {
                let path = entry.path.clone();
                match self.copy_out_page(guest, &writer, &mut synced, entry, &mut report, options).await {
                    Ok(()) => {}
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => report.skipped.push(SkippedFile { path, reason: error.to_string() }),
                }
            }
        }
        Ok(report)
    }

    async fn copy_out_page(
        &self,
        guest: &Arc<GuestConnection>,
        writer: &HostWriter,
        synced: &mut SyncedEntries,
        entry: DirectoryEntry,
        report: &mut CopyOutReport,
        options: &CallOptions,
    ) -> Result<(), SandboxError> {
        let Some(now) = SyncedEntry::from_entry(&entry) else {
            let message = "it is not a regular file";
            return Err(SandboxError::new(SandboxErrorKind::WrongFileType, message));
        };
        let DirectoryEntry { path, mode, .. } = entry;
        if synced.0.get(&path) == Some(&now) {
            return Ok(());
        }
        let incoming = IncomingEntry { previous: synced.previous(&path, now), path: path.clone(), mode };
        match now {
            SyncedEntry::Dir => writer.make_dir(incoming).await?,
            SyncedEntry::File { .. } => {
                let content = guest.stream_file(&path, options.clone()).await?;
                let room = self.max_bytes.saturating_sub(report.bytes);
                // The owner of the workspace must be able to read it.
                let incoming = IncomingEntry { mode: mode | 0o600, ..incoming };
                report.bytes += writer.write(incoming, content, room).await?;
                report.files += 1;
            }
        }
        synced.record(path, now);
        Ok(())
    }

    /// Takes the notice for the model about files that were not copied in. Each notice is returned once.
    pub(super) fn take_model_notice(&self) -> Option<String> {
        let skipped = std::mem::take(&mut *lock(&self.skipped));
        let reported = skipped.iter().take(MAX_REPORTED);
        let reported: Vec<_> =
            reported.map(|left| format!("`{}` ({})", left.path.escape_debug(), left.reason)).collect();
        let more = match skipped.len().saturating_sub(MAX_REPORTED) {
            0 if skipped.is_empty() => return None,
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        Some(format!(
            "[This sandbox has a copy of the user's workspace, without: {}{more}.]",
            reported.join(", ")
        ))
    }
}

impl SyncedEntry {
    fn from_entry(entry: &DirectoryEntry) -> Option<Self> {
        match entry.kind {
            EntryKind::File => {
                Some(Self::File { size: entry.size, modified_ns: entry.modified_ns, mode: entry.mode })
            }
            EntryKind::Directory => Some(Self::Dir),
            EntryKind::Symlink | EntryKind::Other => None,
        }
    }
}

impl SyncedEntries {
    /// The entry that both sides had at `path` before, when the sandbox has `now` there.
    fn previous(&self, path: &str, now: SyncedEntry) -> PreviousEntry {
        match (self.0.get(path), now) {
            (Some(SyncedEntry::File { .. }), SyncedEntry::Dir) => PreviousEntry::File,
            (Some(SyncedEntry::Dir), SyncedEntry::File { .. }) => {
                PreviousEntry::Dir(self.beneath(path).map(str::to_owned).collect())
            }
            _ => PreviousEntry::Same,
        }
    }

    /// Records that the host has this entry now, too.
    fn record(&mut self, path: String, now: SyncedEntry) {
        if matches!(now, SyncedEntry::File { .. }) {
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

/// Whether a failure concerns the sandbox, the call or the host's disk rather than one file.
const fn is_fatal(error: &SandboxError) -> bool {
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

async fn create_dir(guest: &GuestConnection, dir: HostDir, options: CallOptions) -> Result<(), SandboxError> {
    let request = Request::MakeDir { path: dir.target, mode: dir.mode };
    match guest.finish(request, 0, ContentSender::none(), options).await? {
        (_, Reply::MakeDir { .. }, _) => Ok(()),
        (call, ..) => Err(wrong_reply(&call)),
    }
}

async fn write_file(
    guest: &GuestConnection,
    file: HostFile,
    options: CallOptions,
) -> Result<(), SandboxError> {
    let HostFile { path, target, mode } = file;
    let content = blocking_stream::stream(move |sender| sender.path(&path));
    let request = Request::Write { path: target, mode: Some(mode) };
    match guest.finish(request, 0, ContentSender::from_stream(content.boxed()), options).await? {
        (_, Reply::Write { .. }, _) => Ok(()),
        (call, ..) => Err(wrong_reply(&call)),
    }
}

#[cfg(test)]
mod tests;
