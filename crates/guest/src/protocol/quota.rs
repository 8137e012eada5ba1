//! The disk quota of a directory.
//!
//! On ordinary file systems, the kernel enforces no quota for a directory. So the guest measures the directory often,
//! and ends programs when it is too large. Usage is the number of disk blocks of files and directories:
//! - A sparse file counts only its written blocks.
//! - A file with several names counts once.
//! - A deleted file counts as long as a command has it open.
//! - Other file systems that are mounted beneath the directory do not count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The disk quota of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// The directory's absolute path: one of the roots of the handshake.
    pub path: String,
    /// The maximum usage.
    pub allowed: DiskUsage,
    /// What counts towards the maximum.
    #[serde(default, rename = "counted")]
    pub basis: QuotaBasis,
}

/// What counts towards a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaBasis {
    /// Everything in the directory.
    #[default]
    Everything,
    /// Only what the directory uses more than at the start of the guest. The guest measures it before the handshake
    /// ends.
    Growth,
}

/// The disk usage of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DiskUsage {
    /// The size on the disk in bytes.
    pub bytes: u64,
    /// The number of files, directories, links and the like, each counted once.
    pub inodes: u64,
}

impl DiskUsage {
    /// Whether neither bytes nor inodes exceed `allowed`.
    #[must_use]
    pub const fn is_within(&self, allowed: &Self) -> bool {
        self.bytes <= allowed.bytes && self.inodes <= allowed.inodes
    }
}

/// The usage of a directory that exceeds its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuotaExcess {
    /// The usage. Far above the quota, it is a lower bound.
    pub used: DiskUsage,
    /// The maximum usage.
    pub allowed: DiskUsage,
}

impl fmt::Display for QuotaExcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, allowed } = self;
        match (used.bytes > allowed.bytes, used.inodes > allowed.inodes) {
            (true, false) => write!(f, "{} of {} bytes of its quota", used.bytes, allowed.bytes),
            (false, true) => {
                write!(f, "{} of {} files and directories of its quota", used.inodes, allowed.inodes)
            }
            _ => write!(
                f,
                "{} of {} bytes and {} of {} files and directories of its quota",
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
        assert_eq!(told(100, 11), "11 of 10 files and directories of its quota");
        assert_eq!(told(101, 11), "101 of 100 bytes and 11 of 10 files and directories of its quota");
        assert!(DiskUsage { bytes: 100, inodes: 10 }.is_within(&allowed));
    }
}
