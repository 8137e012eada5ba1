//! What is in a folder at one moment, and what changed between two.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The most entries that are looked at: a workspace may be a whole checkout, but not a disk.
const MOST_ENTRIES: usize = 100_000;

/// The deepest folder that is looked at.
const DEEPEST: usize = 64;

/// The regular files of a folder at one moment. Links are not followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Fingerprint>,
    extent: Extent,
    /// When the look began, in seconds and nanoseconds since 1970.
    start: (i64, i64),
}

/// How much of a folder was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Extent {
    /// All of it.
    #[default]
    Whole,
    /// All but what lies deeper than [`DEEPEST`].
    Shallow,
    /// [`MOST_ENTRIES`], whichever came first.
    Cut,
}

/// What of a file changes when its content does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    size: u64,
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

impl Snapshot {
    /// What is in `root` now. What cannot be read is left out: it belongs to somebody else.
    pub(super) fn of(root: &Path) -> Self {
        Self::within(root, MOST_ENTRIES)
    }

    /// The same of so many entries.
    pub(super) fn within(root: &Path, most_entries: usize) -> Self {
        let start = now();
        let mut files = BTreeMap::new();
        let mut extent = Extent::Whole;
        let mut seen = 0_usize;
        let mut pending = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = pending.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.filter_map(Result::ok) {
                seen += 1;
                if seen > most_entries {
                    return Self { files, extent: Extent::Cut, start };
                }
                // Of the entry itself: a link is not followed.
                let Ok(metadata) = entry.metadata() else { continue };
                let path = entry.path();
                if metadata.is_dir() && depth < DEEPEST {
                    pending.push((path, depth + 1));
                } else if metadata.is_dir() {
                    extent = Extent::Shallow;
                } else if metadata.is_file() {
                    let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    files.insert(relative, Fingerprint::of(&metadata));
                }
            }
        }
        Self { files, extent, start }
    }

    /// The files in here that are not in `before`, or are there with another fingerprint. Where `before` was cut, a
    /// file that is not in it may have been there all the same: then it counts only when the system changed its entry
    /// since, a date that no program can set back.
    pub(super) fn produced_since(self, before: &Self) -> ProducedFiles {
        let complete = self.extent == Extent::Whole && before.extent == Extent::Whole;
        let is_produced = |path: &PathBuf, now: &Fingerprint| match before.files.get(path) {
            Some(then) => then != now,
            None => before.extent != Extent::Cut || now.changed >= before.start,
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

/// The time by the clock that dates files.
#[expect(clippy::disallowed_methods, reason = "compared with dates that the system gave to files")]
fn now() -> (i64, i64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos().into())
}

impl Fingerprint {
    fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            size: metadata.size(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
