//! Walking through a folder that commands may change meanwhile, also such that a path leads elsewhere.
//!
//! Nothing is done by a path: each step goes from an open folder to a name in it, and follows no link. What is looked at is bounded,
//! and so are the folders that are open at a time. It owns no state.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// How much of a folder is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkBounds {
    /// Names, of whatever kind: 100,000. A workspace may be a whole checkout, but not a disk.
    pub entries: usize,
    /// Folders within folders: 64.
    pub depth: usize,
}

impl Default for WalkBounds {
    fn default() -> Self {
        Self { entries: 100_000, depth: 64 }
    }
}

/// How much of a folder was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Walked {
    /// All of it.
    #[default]
    Whole,
    /// All but folders that lie too deep, or could not be opened.
    Partly,
    /// As many names as allowed, whichever came first; or nobody wanted more.
    Cut,
}

/// What a walk does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// It goes on.
    On,
    /// It ends.
    Over,
}

/// Visits the plain files beneath an open folder with their relative paths and what the system says of them, in no order. Links are
/// not followed, and not visited. Blocks.
pub fn walk(folder: impl AsFd, bounds: WalkBounds, visit: impl FnMut(PathBuf, &Statx) -> Walk) -> Walked {
    let mut look = Look { visit, depth: bounds.depth, left: bounds.entries, walked: Walked::Whole };
    look.folder(folder.as_fd(), Path::new(""), 0);
    look.walked
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Look<V> {
    visit: V,
    depth: usize,
    /// How many names may still be looked at.
    left: usize,
    walked: Walked,
}

impl<V: FnMut(PathBuf, &Statx) -> Walk> Look<V> {
    fn folder(&mut self, folder: BorrowedFd<'_>, path: &Path, depth: usize) {
        let Ok(entries) = Dir::read_from(folder) else { return self.miss() };
        for entry in entries {
            let Ok(entry) = entry else { return self.miss() };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                self.walked = Walked::Cut;
                return;
            };
            self.left = left;
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            // What is gone by now is nothing.
            let Ok(stat) = rustix::fs::statx(folder, name, flags, wanted) else { continue };
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::Directory if depth >= self.depth => self.miss(),
                FileType::Directory => match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
                    Ok(inner) => self.folder(inner.as_fd(), &path, depth + 1),
                    // Gone, or something else has its name by now.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                    Err(_) => self.miss(),
                },
                FileType::RegularFile if (self.visit)(path, &stat) == Walk::Over => self.walked = Walked::Cut,
                _ => {}
            }
            if self.walked == Walked::Cut {
                return;
            }
        }
    }

    /// Something was not looked at.
    fn miss(&mut self) {
        if self.walked == Walked::Whole {
            self.walked = Walked::Partly;
        }
    }
}
