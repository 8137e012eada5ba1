//! [`ExpectedMounts`]: the expected inode of each mount of a container, which the guest verifies.
//!
//! An engine mounts a path some time after it was checked. Another sandbox that may write to the parent directory
//! could have put a link there by then, and the engine runs as root. So the host records the expected directories.
//! Before any command, the guest reports which ones it has. Where the guest's kernel is not the host's, as with
//! runtimes that bring their own, the inode numbers cannot be compared.

use std::fs;
use std::path::Path;

use conjure_guest::protocol::{DirId, OpenedRoots, Root};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};

use crate::docker::container::container_spec::BindMount;
use crate::error::SandboxError;
use crate::guest_process::missing_dir;
use crate::jail::path_not_allowed;

/// The directories that a container must have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedMounts {
    /// The boot id of the host's kernel.
    boot: String,
    dirs: Vec<Dir>,
}

#[derive(Debug, PartialEq, Eq)]
struct Dir {
    /// Its index among the roots of the greeting.
    root: usize,
    source: String,
    ids: DirId,
}

impl ExpectedMounts {
    /// Records the directories that are mounted at roots of the greeting, as they are now. Files are not checked.
    ///
    /// # Errors
    /// When the path of a directory contains a link.
    pub(super) fn record(roots: &[Root], bound: &[BindMount]) -> Result<Self, SandboxError> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut expected_mounts = Self { boot: boot.trim().to_owned(), dirs: Vec::new() };
        for (root, is) in roots.iter().enumerate() {
            let Some(BindMount { source, .. }) = bound.iter().find(|mount| mount.target == is.path) else {
                continue;
            };
            let path = Path::new(source);
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let stat = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).and_then(fstat);
            let stat = stat.map_err(|error| missing_dir("directory", path, &error.into()))?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
                let ids = DirId { device: stat.st_dev, inode: stat.st_ino };
                expected_mounts.dirs.push(Dir { root, source: source.clone(), ids });
            }
        }
        Ok(expected_mounts)
    }

    /// Compares the directories that the guest reports.
    ///
    /// # Errors
    /// `PathNotAllowed` when a container has another directory than the expected one.
    pub(super) fn check(&self, found: &OpenedRoots) -> Result<(), SandboxError> {
        if found.boot.as_ref() != Some(&self.boot) {
            tracing::debug!(
                "the container's kernel is not the host's, so its directories cannot be compared"
            );
            return Ok(());
        }
        let is_other = |dir: &&Dir| found.dirs.get(dir.root) != Some(&Some(dir.ids));
        match self.dirs.iter().find(is_other) {
            None => Ok(()),
            Some(Dir { source, .. }) => Err(path_not_allowed(format!(
                "`{source}` was another directory when the container was made than when it was looked at: somebody who may \
                 write around it has put something else there; choose a directory that other sandboxes cannot move"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use conjure_guest::protocol::Access;

    use super::*;

    #[test]
    fn another_directory_than_the_one_that_was_meant_is_refused() {
        let around = tempfile::tempdir().unwrap();
        let source = fs::canonicalize(around.path()).unwrap().join("directory");
        fs::create_dir(&source).unwrap();
        let bound = [BindMount {
            source: source.to_str().unwrap().to_owned(),
            target: "/workspace".to_owned(),
            access: Access::ReadWrite,
        }];
        let root = |path: &str| Root { path: path.to_owned(), access: Access::ReadWrite };
        let roots = [root("/tmp"), root("/workspace")];
        let expected_mounts = ExpectedMounts::record(&roots, &bound).unwrap();
        let ids = expected_mounts.dirs[0].ids;
        let found =
            |boot: &str, workspace| OpenedRoots { boot: Some(boot.to_owned()), dirs: vec![None, workspace] };
        let other = DirId { inode: ids.inode + 1, ..ids };
        assert_eq!(expected_mounts.check(&found(&expected_mounts.boot, Some(ids))), Ok(()));
        for workspace in [Some(other), None] {
            let refused = expected_mounts.check(&found(&expected_mounts.boot, workspace)).unwrap_err();
            assert!(refused.to_string().contains("was another directory"), "{refused}");
        }
        assert!(
            expected_mounts
                .check(&OpenedRoots { boot: Some(expected_mounts.boot.clone()), dirs: Vec::new() })
                .is_err()
        );
        // A kernel of its own has numbers of its own.
        assert_eq!(expected_mounts.check(&found("another", Some(other))), Ok(()));
        fs::rename(&source, around.path().join("old")).unwrap();
        std::os::unix::fs::symlink("/etc", &source).unwrap();
        assert!(ExpectedMounts::record(&roots, &bound).is_err());
    }
}
