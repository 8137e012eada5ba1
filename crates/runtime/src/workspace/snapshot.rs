//! A snapshot of the files in a folder, and the changes between two snapshots.
//!
//! Commands may change the folder meanwhile, so that a path leads elsewhere: [`walk`] follows no link, and is
//! bounded.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use conjure_artifact::{WalkBounds, WalkCoverage, walk};
use rustix::fs::{CWD, Mode, OFlags, Statx, StatxTimestamp};

/// The regular files of a folder at one moment. Links are not followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceSnapshot {
    files: BTreeMap<PathBuf, Fingerprint>,
    extent: WalkCoverage,
    /// When the look began, in seconds and nanoseconds since 1970.
    start: (i64, i64),
}

/// What of a file changes when its content does.
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
    /// Whether the folder was small enough to be looked at whole; if not, there may be more. Those that are listed
    /// are new or changed even so.
    pub complete: bool,
}

/// A file that a session made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedFile {
    /// Its path, relative to the workspace.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it was seen before, with other content. Of a folder that was too large, not all was seen.
    pub existed: bool,
}

impl WorkspaceSnapshot {
    /// What is in `root` now. What cannot be read is left out: it belongs to somebody else.
    pub(super) fn new(root: &Path) -> Self {
        Self::with_limit(root, WalkBounds::default().entries)
    }

    /// The same of so many entries.
    pub(super) fn with_limit(root: &Path, most_entries: usize) -> Self {
        let (start, mut files) = (now(), BTreeMap::new());
        let bounds = WalkBounds { entries: most_entries, ..WalkBounds::default() };
        let mut extent = WalkCoverage::Complete;
        if let Ok(folder) = rustix::fs::openat(CWD, root, FOLDER, Mode::empty()) {
            extent = walk(&folder, bounds, |path, stat| {
                files.insert(path, Fingerprint::from_stat(stat));
                ControlFlow::Continue(())
            });
        }
        Self { files, extent, start }
    }

    /// The files in here that are not in `before`, or are there with another fingerprint. Where `before` was cut, a
    /// file that is not in it may have been there all the same: then it counts only when the system changed its entry
    /// since, a date that no program can set back.
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

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The time by the clock that dates files.
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
