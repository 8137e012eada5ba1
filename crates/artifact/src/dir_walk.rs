//! A bounded walk of a directory that commands may change meanwhile.
//!
//! No path is resolved: each step goes from an open directory to a name in it, and follows no link. Entries and depth, and so the open
//! directories, are bounded.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// The bounds of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkBounds {
    /// The maximum number of entries of any kind: 100,000 by default, enough for a whole checkout.
    pub entries: usize,
    /// The deepest nesting: 64 by default.
    pub depth: usize,
}

impl Default for WalkBounds {
    fn default() -> Self {
        Self { entries: 100_000, depth: 64 }
    }
}

/// How much of the directory a walk has visited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WalkCoverage {
    /// Everything.
    #[default]
    Complete,
    /// Everything except directories that are too deep or could not be opened.
    Partial,
    /// Not everything: the entry limit was reached, or the visitor stopped the walk.
    Truncated,
}

/// Visits the regular files beneath an open directory, with relative path and metadata, in no order. Links are neither followed
/// nor visited. Blocks.
pub fn walk(
    dir: impl AsFd,
    bounds: WalkBounds,
    visit: impl FnMut(PathBuf, &Statx) -> ControlFlow<()>,
) -> WalkCoverage {
    let mut walker = Walker {
        visit,
        depth: bounds.depth,
        remaining_entries: bounds.entries,
        coverage: WalkCoverage::Complete,
    };
    walker.walk_dir(dir.as_fd(), Path::new(""), 0);
    walker.coverage
}

const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Walker<V> {
    visit: V,
    depth: usize,
    /// How many more entries may be visited.
    remaining_entries: usize,
    coverage: WalkCoverage,
}

impl<V: FnMut(PathBuf, &Statx) -> ControlFlow<()>> Walker<V> {
    fn walk_dir(&mut self, dir: BorrowedFd<'_>, path: &Path, depth: usize) {
        let Ok(entries) = Dir::read_from(dir) else { return self.record_unreadable() };
        for entry in entries {
            let Ok(entry) = entry else { return self.record_unreadable() };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Some(left) = self.remaining_entries.checked_sub(1) else {
                self.coverage = WalkCoverage::Truncated;
                return;
            };
            self.remaining_entries = left;
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            // The entry was removed meanwhile.
            let Ok(stat) = rustix::fs::statx(dir, name, flags, mask) else { continue };
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::Directory if depth >= self.depth => self.record_unreadable(),
                FileType::Directory => match rustix::fs::openat(dir, name, OPEN_DIR, Mode::empty()) {
                    Ok(inner) => self.walk_dir(inner.as_fd(), &path, depth + 1),
                    // It was removed or replaced meanwhile.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(_) => self.record_unreadable(),
                },
                FileType::RegularFile if (self.visit)(path, &stat) == ControlFlow::Break(()) => {
                    self.coverage = WalkCoverage::Truncated
                }
                _ => {}
            }
            if self.coverage == WalkCoverage::Truncated {
                return;
            }
        }
    }

    /// Records that a part was not visited.
    fn record_unreadable(&mut self) {
        if self.coverage == WalkCoverage::Complete {
            self.coverage = WalkCoverage::Partial;
        }
    }
}
