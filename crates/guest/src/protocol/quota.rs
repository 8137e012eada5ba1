//! How much of the disk a folder may take: part of the greeting, and of what is said when it was too much.
//!
//! The kernel enforces no such limit for a folder of an ordinary file system, so the guest looks often and ends what runs.
//! What counts: the blocks that files and folders take on the disk. So a sparse file counts with what was written of it,
//! a file with several names counts once, and one that has no name any more counts for as long as a command has it
//! open. What lies on other file systems that are mounted beneath the folder does not count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a folder may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The folder's absolute path: the root of the greeting that it is about.
    pub path: String,
    /// The most that it may take.
    pub allowed: DiskUsage,
    /// Of what.
    #[serde(default)]
    pub counted: Counted,
}

/// What counts for a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// All that is in the folder.
    #[default]
    Everything,
    /// What it takes more than when the guest started, which measures it before it greets.
    Growth,
}

/// What a folder takes of the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, folders, links and the like, each counted once.
    pub inodes: u64,
}

impl DiskUsage {
    /// Whether it is no more than `allowed`, of either.
    #[must_use]
    pub const fn is_within(&self, allowed: &Self) -> bool {
        self.bytes <= allowed.bytes && self.inodes <= allowed.inodes
    }
}

/// A folder that takes more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuotaExcess {
    /// What it takes. What is far beyond the quota is not counted to its end.
    pub used: DiskUsage,
    /// What it may take.
    pub allowed: DiskUsage,
}

impl fmt::Display for QuotaExcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, allowed } = self;
        match (used.bytes > allowed.bytes, used.inodes > allowed.inodes) {
            (true, false) => write!(f, "{} of {} bytes of its quota", used.bytes, allowed.bytes),
            (false, true) => {
                write!(f, "{} of {} files and folders of its quota", used.inodes, allowed.inodes)
            }
            _ => write!(
                f,
                "{} of {} bytes and {} of {} files and folders of its quota",
                used.bytes, allowed.bytes, used.inodes, allowed.inodes
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_names_what_is_too_much() {
        let allowed = DiskUsage { bytes: 100, inodes: 10 };
        let told = |bytes, inodes| {
            let used = DiskUsage { bytes, inodes };
            assert!(!used.is_within(&allowed));
            QuotaExcess { used, allowed }.to_string()
        };
        assert_eq!(told(101, 10), "101 of 100 bytes of its quota");
        assert_eq!(told(100, 11), "11 of 10 files and folders of its quota");
        assert_eq!(told(101, 11), "101 of 100 bytes and 11 of 10 files and folders of its quota");
        assert!(DiskUsage { bytes: 100, inodes: 10 }.is_within(&allowed));
    }
}
