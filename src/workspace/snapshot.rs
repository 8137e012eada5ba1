//! What is in a folder at one moment, and what changed between two.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The most entries that are looked at: a workspace may be a whole checkout, but not a disk.
const MOST_ENTRIES: usize = 100_000;

/// The deepest folder that is looked at.
const DEEPEST: usize = 64;

/// The regular files of a folder at one moment. Links are not followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Fingerprint>,
    complete: bool,
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
    /// Whether the folder was small enough to be looked at whole; if not, there may be more.
    pub complete: bool,
}

/// A file that a session made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedFile {
    /// Its path, relative to the workspace.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it was there before, with other content.
    pub existed: bool,
}

impl Snapshot {
    /// What is in `root` now. What cannot be read is left out: it belongs to somebody else.
    pub(super) fn of(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut complete = true;
        let mut seen = 0_usize;
        let mut pending = vec![(root.to_owned(), 0)];
        while let Some((folder, depth)) = pending.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.filter_map(Result::ok) {
                seen += 1;
                if seen > MOST_ENTRIES {
                    return Self { files, complete: false };
                }
                // Of the entry itself: a link is not followed.
                let Ok(metadata) = entry.metadata() else { continue };
                let path = entry.path();
                if metadata.is_dir() && depth < DEEPEST {
                    pending.push((path, depth + 1));
                } else if metadata.is_dir() {
                    complete = false;
                } else if metadata.is_file() {
                    let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
                    files.insert(relative, Fingerprint::of(&metadata));
                }
            }
        }
        Self { files, complete }
    }

    /// The files in here that are not in `before`, or are there with another fingerprint.
    pub(super) fn produced_since(self, before: &Self) -> ProducedFiles {
        let complete = self.complete && before.complete;
        let files = self
            .files
            .into_iter()
            .filter(|(path, now)| before.files.get(path) != Some(now))
            .map(|(path, now)| ProducedFile {
                existed: before.files.contains_key(&path),
                size: now.size,
                path,
            })
            .collect();
        ProducedFiles { files, complete }
    }
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
