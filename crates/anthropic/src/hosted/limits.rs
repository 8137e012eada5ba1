//! The limits of uploads and downloads.

use std::time::Duration;

/// The limits of [`Skills`](crate::hosted::Skills) and [`Files`](crate::hosted::Files). The client checks them before it sends anything, if
/// the sizes are known then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostedLimits {
    /// The total size of a skill's files, in bytes. 30 MB by default.
    pub skill_bytes: u64,
    /// The number of files in a skill. 10,000 by default.
    pub skill_files: usize,
    /// The size of an uploaded file, in bytes. 500 MB by default.
    pub file_bytes: u64,
    /// The size of a download, in bytes. 500 MB by default.
    pub download_bytes: u64,
    /// The duration of an upload or download, including waits and retries. One hour by default. A stalled transfer ends earlier: see
    /// [`Timeouts::idle`](crate::Timeouts::idle).
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
