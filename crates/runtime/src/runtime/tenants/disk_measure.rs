//! Measures the disk usage of a directory.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The most entries of a scan.
const MAX_ENTRIES: u64 = 4_000_000;

/// The greatest depth of a scan. A scan has one directory open for each level.
const MAX_DEPTH: usize = 128;

/// The disk usage of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Allocated bytes. Hard links are counted once.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

impl DiskUsage {
    /// The sum of `self` and `other`.
    pub(super) const fn plus(self, other: Self) -> Self {
        let (bytes, inodes) =
            (self.bytes.saturating_add(other.bytes), self.inodes.saturating_add(other.inodes));
        Self { bytes, inodes }
    }
}

/// The result of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MeasuredUsage {
    pub(super) usage: DiskUsage,
    /// Why the actual usage may be higher than the counted one.
    pub(super) incomplete_reason: Option<&'static str>,
}

/// Measures a directory, without following links. Entries that disappear meanwhile are not counted, and do not make the
/// result incomplete.
pub(super) fn measure(dir: &Path) -> MeasuredUsage {
    let mut found = MeasuredUsage::default();
    let mut linked: HashSet<(u64, u64)> = HashSet::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let listed = |dir: OwnedFd| Dir::read_from(&dir).map(|names| (dir, names));
    let open =
        |dir: &OwnedFd, name: &CStr| rustix::fs::openat(dir, name, flags, Mode::empty()).and_then(listed);
    let mut open_dirs: Vec<(OwnedFd, Dir)> = Vec::new();
    match rustix::fs::openat(CWD, dir, flags, Mode::empty()).and_then(listed) {
        Ok(top) => open_dirs.push(top),
        Err(error) => found.record_error(error),
    }
    while let Some((dir, names)) = open_dirs.last_mut() {
        let entry = match names.next() {
            Some(Ok(entry)) => entry,
            end => {
                let _ = end.map(|failed| failed.map_err(|error| found.record_error(error)));
                open_dirs.pop();
                continue;
            }
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if found.usage.inodes >= MAX_ENTRIES {
            found.incomplete_reason = Some("it has more than 4,000,000 files and directories");
            break;
        }
        let stat = match rustix::fs::statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                found.record_error(error);
                continue;
            }
        };
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_dir || stat.st_nlink < 2 || linked.insert((stat.st_dev, stat.st_ino)) {
            found.usage.inodes += 1;
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            found.usage.bytes = found.usage.bytes.saturating_add(blocks.saturating_mul(512));
        }
        if !is_dir {
            continue;
        }
        if open_dirs.len() >= MAX_DEPTH {
            found.incomplete_reason = Some("its directories are more than 128 deep");
            continue;
        }
        match open_dirs.last().map(|(dir, _)| open(dir, name)) {
            Some(Ok(below)) => open_dirs.push(below),
            Some(Err(error)) => found.record_error(error),
            None => {}
        }
    }
    found
}

impl MeasuredUsage {
    /// A complete result.
    pub(super) const fn complete(usage: DiskUsage) -> Self {
        Self { usage, incomplete_reason: None }
    }

    /// The sum of `self` and `other`.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            usage: self.usage.plus(other.usage),
            incomplete_reason: self.incomplete_reason.or(other.incomplete_reason),
        }
    }

    /// Records that an entry was not measured, unless it disappeared.
    fn record_error(&mut self, error: Errno) {
        if !matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP) {
            self.incomplete_reason = Some("some of its directories cannot be read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_measured_without_following_anything() {
        let made = tempfile::tempdir().unwrap();
        let dir = made.path();
        assert_eq!(measure(dir), MeasuredUsage::default());
        assert_eq!(measure(&dir.join("none")), MeasuredUsage::default());
        std::fs::create_dir(dir.join("a")).unwrap();
        std::fs::write(dir.join("a/file"), vec![1; 100_000]).unwrap();
        let one = measure(dir);
        assert_eq!((one.usage.inodes, one.incomplete_reason), (2, None));
        assert!((100_000..200_000).contains(&one.usage.bytes), "{one:?}");
        // A hard link costs nothing, and a symbolic link is not followed.
        std::fs::hard_link(dir.join("a/file"), dir.join("a/again")).unwrap();
        assert_eq!(measure(dir), one);
        std::os::unix::fs::symlink("/usr", dir.join("a/usr")).unwrap();
        assert_eq!(measure(dir).usage.inodes, 3);
        // A directory that is too deep makes the result incomplete.
        let mut deep = dir.to_owned();
        for _ in 0..2 * MAX_DEPTH {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        let deep = measure(dir);
        assert_eq!(deep.usage.inodes, 3 + MAX_DEPTH as u64);
        assert!(
            deep.incomplete_reason
                .is_some_and(|incomplete_reason| incomplete_reason.contains(&MAX_DEPTH.to_string())),
            "{deep:?}"
        );
    }
}
