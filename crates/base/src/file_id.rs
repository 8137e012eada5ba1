//! How the system identifies a file, and how a change of a file is noticed. Nothing here reads a file: these are
//! values only.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

/// The device and inode of a file: equal for two names of one file, as long as the file exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device of its file system.
    pub device: u64,
    /// Its number in that file system. The system reuses the numbers of removed files.
    pub inode: u64,
}

/// A point in time as a file system records it, in seconds and nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since the Unix epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds after that second.
    pub nanoseconds: i64,
}

/// Identity, size and times of a file: two equal fingerprints mean that its content is most likely the same.
///
/// File systems record times in steps, of some milliseconds or up to two seconds. A second change within one step of
/// the first, to the same size, gives the same fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileFingerprint {
    /// Which file it is.
    pub id: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// The last change of its content (`mtime`), which its owner can set.
    pub modified: FileTime,
    /// The last change of content, owner, mode or links (`ctime`). No program can set it.
    pub changed: FileTime,
}

impl From<&Metadata> for FileId {
    fn from(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl From<&Metadata> for FileFingerprint {
    fn from(metadata: &Metadata) -> Self {
        Self {
            id: metadata.into(),
            size: metadata.len(),
            modified: FileTime { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec() },
            changed: FileTime { seconds: metadata.ctime(), nanoseconds: metadata.ctime_nsec() },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn links_share_an_id_and_a_change_shows_in_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "a").unwrap();
        let before = FileFingerprint::from(&fs::metadata(&file).unwrap());
        fs::hard_link(&file, &link).unwrap();
        assert_eq!(FileId::from(&fs::metadata(&link).unwrap()), before.id);
        fs::write(&link, "ab").unwrap();
        let after = FileFingerprint::from(&fs::metadata(&file).unwrap());
        assert_eq!((after.id, after.size), (before.id, 2));
        assert_ne!(after, before);
    }
}
