//! Limits of packages: of each package, and of the disk space of all packages of one discovery.

use std::path::Path;

use crate::error::SkillError;

/// The limits for reading and writing a package. Declared sizes are checked first. The real sizes are counted
/// during inflation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PackageLimits {
    /// The maximum size of the package in bytes. It is read into memory. Default: 32 MB.
    pub archive_bytes: u64,
    /// The maximum number of files and directories, including directories without an entry of their own. Default: 10,000.
    pub entries: usize,
    /// The maximum total size of all files in bytes, uncompressed. Default: 30 MB, the limit of the hosted
    /// service.
    pub total_bytes: u64,
    /// The maximum size of a file in bytes, uncompressed. Default: 30 MB.
    pub entry_bytes: u64,
    /// The maximum compression ratio of a file. Default: 200.
    pub ratio: u64,
    /// Files up to this size in bytes may have any ratio. A short file of equal bytes has a high one and is
    /// harmless. Default: 1 MiB.
    pub ratio_free_bytes: u64,
    /// The maximum length of an entry's path in bytes. Default: 512.
    pub path_bytes: usize,
    /// The maximum number of segments of an entry's path, including the top directory. Default: 16.
    pub path_depth: usize,
}

impl Default for PackageLimits {
    fn default() -> Self {
        Self {
            archive_bytes: 32_000_000,
            entries: 10_000,
            total_bytes: 30_000_000,
            entry_bytes: 30_000_000,
            ratio: 200,
            ratio_free_bytes: 1024 * 1024,
            path_bytes: 512,
            path_depth: 16,
        }
    }
}

impl PackageLimits {
    /// Whether this compression ratio is allowed.
    pub(crate) const fn allows_ratio(&self, uncompressed: u64, compressed: u64) -> bool {
        uncompressed <= self.ratio_free_bytes || uncompressed <= compressed.saturating_mul(self.ratio)
    }
}

/// The usual block size of file systems.
const BLOCK_BYTES: u64 = 4096;

/// Returns the disk space of a file of this size, in bytes. A directory uses one block.
pub(crate) const fn disk_bytes(size: u64) -> u64 {
    let blocks = size.div_ceil(BLOCK_BYTES);
    (if blocks == 0 { 1 } else { blocks }).saturating_mul(BLOCK_BYTES)
}

/// The disk space for all packages of one discovery. The limits of a single package would still allow a thousand
/// packages to fill the disk.
#[derive(Debug)]
pub(crate) struct DiskBudget {
    limit: u64,
    used: u64,
}

impl DiskBudget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    /// Reserves space for the package at this path.
    pub(crate) fn take(&mut self, path: &Path, bytes: u64) -> Result<(), SkillError> {
        if bytes > self.limit.saturating_sub(self.used) {
            return Err(SkillError::PackageBudget { path: path.to_owned(), limit: self.limit });
        }
        self.count_existing(bytes);
        Ok(())
    }

    /// Counts existing files, even beyond the limit.
    pub(crate) const fn count_existing(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Releases space.
    pub(crate) const fn release(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }
}
