//! Which file systems report how much of the disk a file takes.

use std::path::Path;

/// The type of Btrfs in `statfs`.
const BTRFS: i64 = 0x9123_683e;

/// Whether the guest can measure a workspace. Btrfs keeps parts of a file that was shortened or overwritten, and does
/// not report them.
#[expect(clippy::useless_conversion, reason = "the type differs between architectures")]
pub(crate) fn is_measurable(workspace: &Path) -> bool {
    rustix::fs::statfs(workspace).is_ok_and(|system| is_reported(i64::from(system.f_type)))
}

const fn is_reported(file_system: i64) -> bool {
    file_system != BTRFS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quota_is_not_watched_on_btrfs() {
        assert!(!is_reported(BTRFS));
        let dir = tempfile::tempdir().expect("a directory");
        let is_on_btrfs = rustix::fs::statfs(dir.path()).expect("a file system").f_type == BTRFS;
        assert_eq!(is_measurable(dir.path()), !is_on_btrfs);
        assert!(!is_measurable(&dir.path().join("missing")));
    }
}
