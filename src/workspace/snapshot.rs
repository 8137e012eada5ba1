//! What is in a folder at one moment, and what changed between two.
//!
//! Commands may change the folder meanwhile, also such that a path leads elsewhere. So nothing is done by a path: each
//! step goes from an open folder to a name in it, and follows no link. What is looked at is bounded, and so are the
//! folders that are open at a time.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

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
    device: u64,
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
        let (start, files) = (now(), BTreeMap::new());
        let mut look = Look { files, extent: Extent::Whole, left: most_entries };
        if let Ok(folder) = rustix::fs::openat(CWD, root, FOLDER, Mode::empty()) {
            look.folder(&folder, Path::new(""), 0);
        }
        Self { files: look.files, extent: look.extent, start }
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

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A look at a folder.
struct Look {
    files: BTreeMap<PathBuf, Fingerprint>,
    extent: Extent,
    /// How many entries may still be looked at.
    left: usize,
}

impl Look {
    /// Looks at an open folder, at this path beneath the first one.
    fn folder(&mut self, folder: &OwnedFd, path: &Path, depth: usize) {
        let Ok(entries) = Dir::read_from(folder) else { return };
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                self.extent = Extent::Cut;
                return;
            };
            self.left = left;
            let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if depth >= DEEPEST => self.extent = Extent::Shallow,
                FileType::Directory => {
                    if let Ok(inner) = rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
                        self.folder(&inner, &path, depth + 1);
                    }
                    if self.extent == Extent::Cut {
                        return;
                    }
                }
                FileType::RegularFile => drop(self.files.insert(path, Fingerprint::of(&stat))),
                _ => {}
            }
        }
    }
}

/// The time by the clock that dates files.
#[expect(clippy::disallowed_methods, reason = "compared with dates that the system gave to files")]
fn now() -> (i64, i64) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos().into())
}

impl Fingerprint {
    fn of(stat: &Stat) -> Self {
        let date = |seconds: i64, nanoseconds: u64| (seconds, i64::try_from(nanoseconds).unwrap_or(i64::MAX));
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            inode: stat.st_ino,
            modified: date(stat.st_mtime, stat.st_mtime_nsec),
            changed: date(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}
