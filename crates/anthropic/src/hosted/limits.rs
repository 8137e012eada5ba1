//! The limits of uploads and downloads.

use std::time::Duration;

/// The limits of [`Skills`](crate::hosted::Skills) and [`Files`](crate::hosted::Files), checked before anything is sent
/// where that can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedLimits {
    /// All files of a skill together, in bytes. 30 MB by default.
    pub skill_bytes: u64,
    /// How many files a skill may have. 10,000 by default.
    pub skill_files: usize,
    /// One file that is uploaded, in bytes. 500 MB by default.
    pub file_bytes: u64,
    /// One download, in bytes. 500 MB by default.
    pub download_bytes: u64,
    /// One upload or download, waits and retries included. One hour by default. A stalled transfer ends earlier: see [`Timeouts::idle`](crate::Timeouts::idle).
    pub transfer: Duration,
}

impl Default for HostedLimits {
    fn default() -> Self {
        Self {
            skill_bytes: 30_000_000,
            skill_files: 10_000,
            file_bytes: 500_000_000,
            download_bytes: 500_000_000,
            transfer: Duration::from_secs(3600),
        }
    }
}
