//! Whether a container has the folders that were meant.
//!
//! An engine mounts a path, some time after it was looked at: another sandbox that may write the folder around it could have
//! put a link in its place by then, and the engine is mighty. So it is noted which folders were meant, and the guest tells which
//! ones it has, before any command. Where the guest's kernel is not the host's, as with runtimes that bring one of their own, the
//! numbers cannot be compared.

use std::fs;
use std::path::Path;

use conjure_guest::protocol::{FolderNumbers, Root, RootsFound};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::spec::Bound;
use crate::error::SandboxError;
use crate::guest_process::absent;
use crate::jail::refused;

/// The folders that were meant.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Meant {
    /// The start of the host's kernel.
    boot: String,
    folders: Vec<Folder>,
}

#[derive(Debug, PartialEq, Eq)]
struct Folder {
    /// Its place among the greeting's roots.
    root: usize,
    source: String,
    numbers: FolderNumbers,
}

impl Meant {
    /// What is bound where the greeting has a root, as it is now. A file among them is not looked at.
    ///
    /// # Errors
    /// When there is a link on the way to one of them now.
    pub(super) fn of(roots: &[Root], bound: &[Bound]) -> Result<Self, SandboxError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut meant = Self { boot: boot.trim().to_owned(), folders: Vec::new() };
        for (root, is) in roots.iter().enumerate() {
            let Some(Bound { source, .. }) = bound.iter().find(|bound| bound.target == is.path) else {
                continue;
            };
            let path = Path::new(source);
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let stat = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).and_then(fstat);
            let stat = stat.map_err(|error| absent("folder", path, &error.into()))?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
                let numbers = FolderNumbers { device: stat.st_dev, inode: stat.st_ino };
                meant.folders.push(Folder { root, source: source.clone(), numbers });
            }
        }
        Ok(meant)
    }

    /// # Errors
    /// `PathNotAllowed` when a container has another folder than the one that was meant.
    pub(super) fn check(&self, found: &RootsFound) -> Result<(), SandboxError> {
        if found.boot.as_ref() != Some(&self.boot) {
            tracing::debug!("the container's kernel is not the host's, so its folders cannot be compared");
            return Ok(());
        }
        let is_other = |folder: &&Folder| found.folders.get(folder.root) != Some(&Some(folder.numbers));
        match self.folders.iter().find(is_other) {
            None => Ok(()),
            Some(Folder { source, .. }) => Err(refused(format!(
                "`{source}` was another folder when the container was made than when it was looked at: somebody who may \
                 write around it has put something else there; choose a folder that other sandboxes cannot move"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_guest::protocol::Access;

    use super::*;

    #[test]
    fn another_folder_than_the_one_that_was_meant_is_refused() {
        let around = tempfile::tempdir().unwrap();
        let source = fs::canonicalize(around.path()).unwrap().join("folder");
        fs::create_dir(&source).unwrap();
        let bound = [Bound {
            source: source.to_str().unwrap().to_owned(),
            target: "/workspace".to_owned(),
            access: Access::ReadWrite,
        }];
        let root = |path: &str| Root { path: path.to_owned(), access: Access::ReadWrite };
        let roots = [root("/tmp"), root("/workspace")];
        let meant = Meant::of(&roots, &bound).unwrap();
        let numbers = meant.folders[0].numbers;
        let found = |boot: &str, workspace| RootsFound {
            boot: Some(boot.to_owned()),
            folders: vec![None, workspace],
        };
        let other = FolderNumbers { inode: numbers.inode + 1, ..numbers };
        assert_eq!(meant.check(&found(&meant.boot, Some(numbers))), Ok(()));
        for workspace in [Some(other), None] {
            let refused = meant.check(&found(&meant.boot, workspace)).unwrap_err();
            assert!(refused.to_string().contains("was another folder"), "{refused}");
        }
        assert!(meant.check(&RootsFound { boot: Some(meant.boot.clone()), folders: Vec::new() }).is_err());
        // A kernel of its own has numbers of its own.
        assert_eq!(meant.check(&found("another", Some(other))), Ok(()));
        fs::rename(&source, around.path().join("old")).unwrap();
        std::os::unix::fs::symlink("/etc", &source).unwrap();
        assert!(Meant::of(&roots, &bound).is_err());
    }
}
