//! A snapshot of the files in a directory, and the changes between two snapshots.
//!
//! Commands may change the directory meanwhile, so that a path leads elsewhere. So [`walk`] follows no link, and is bounded.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use conjure_artifact::{WalkBounds, WalkCoverage, walk};
use rustix::fs::{CWD, Mode, OFlags, Statx, StatxTimestamp};

/// The regular files of a directory at one moment. Links are not followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceSnapshot {
    files: BTreeMap<PathBuf, Fingerprint>,
    extent: WalkCoverage,
    /// The time when the snapshot began, in seconds and nanoseconds since 1970.
    start: (i64, i64),
}

/// The facts of a file that change when its content changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    size: u64,
    device: (u32, u32),
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Files that a session produced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProducedFiles {
    /// The files, sorted by path.
    pub files: Vec<ProducedFile>,
    /// Whether the complete directory was compared. If not, it was too large, and there may be more such files. The listed
    /// files are new or changed in any case.
    pub complete: bool,
}

/// A file that a session created or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedFile {
    /// Its path, relative to the workspace.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Whether the earlier snapshot contains the file. If the directory was too large, a snapshot does not contain all
    /// files.
    pub existed: bool,
}

impl WorkspaceSnapshot {
    /// The files in `root` now. Files that cannot be read are left out, because they belong to another user.
    pub(super) fn new(root: &Path) -> Self {
        Self::with_limit(root, WalkBounds::default().entries)
    }

    /// As [`WorkspaceSnapshot::new`], but with at most this many entries.
    pub(super) fn with_limit(root: &Path, most_entries: usize) -> Self {
        let (start, mut files) = (now(), BTreeMap::new());
        let bounds = WalkBounds { entries: most_entries, ..WalkBounds::default() };
        let mut extent = WalkCoverage::Complete;
        if let Ok(dir) = rustix::fs::openat(CWD, root, DIR, Mode::empty()) {
            extent = walk(&dir, bounds, |path, stat| {
                files.insert(path, Fingerprint::from_stat(stat));
                ControlFlow::Continue(())
            });
        }
        Self { files, extent, start }
    }

    /// The files that are new or have another fingerprint than in `before`.
    ///
    /// If `before` is truncated, a file that is missing there may still have existed. Such a file counts only if its
    /// inode was changed since then (`ctime`). No program can set this date back.
    pub(super) fn produced_since(self, before: &Self) -> ProducedFiles {
        let complete = self.extent == WalkCoverage::Complete && before.extent == WalkCoverage::Complete;
        let is_produced = |path: &PathBuf, now: &Fingerprint| match before.files.get(path) {
            Some(then) => then != now,
            None => before.extent != WalkCoverage::Truncated || now.changed >= before.start,
        };
        let files = self
            .files
            .into_iter()
            .filter(|(path, now)| is_produced(path, now))
            .map(|(path, now)| ProducedFile {
                existed: before.files.contains_key(&path),
                size: now.size,
                path,
            })
            .collect();
        ProducedFiles { files, complete }
    }
}

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The current time of the clock that also dates files.
#[expect(clippy::disallowed_methods, reason = "compared with dates that the system gave to files")]
fn now() -> (i64, i64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos().into())
}

impl Fingerprint {
    fn from_stat(stat: &Statx) -> Self {
        let date = |stamp: StatxTimestamp| (stamp.tv_sec, i64::from(stamp.tv_nsec));
        Self {
            size: stat.stx_size,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            modified: date(stat.stx_mtime),
            changed: date(stat.stx_ctime),
        }
    }
}
