//! How much of a package is taken.

/// The limits within which a package is read and written. What a package claims of itself is checked first, and what
/// it turns out to hold is counted while it is inflated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PackageLimits {
    /// The most bytes of the package itself, which is read into memory. Default: 32 MB.
    pub archive_bytes: u64,
    /// The most files and folders, also those folders that have no entry of their own. Default: 10,000.
    pub entries: usize,
    /// The most bytes of all files together, uncompressed. Default: 30 MB, which is what the hosted service takes.
    pub total_bytes: u64,
    /// The most bytes of one file, uncompressed. Default: 30 MB.
    pub entry_bytes: u64,
    /// How many times larger than its compressed form a file may be. Default: 200.
    pub ratio: u64,
    /// Files up to so many bytes may have any ratio: a short file of equal bytes has a high one and does no harm.
    /// Default: 1 MiB.
    pub ratio_free_bytes: u64,
    /// The most bytes of an entry's path. Default: 512.
    pub path_bytes: usize,
    /// The most segments of an entry's path, the top folder included. Default: 16.
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
    /// Whether so many bytes may come out of so many compressed ones.
    pub(crate) const fn allows_ratio(&self, uncompressed: u64, compressed: u64) -> bool {
        uncompressed <= self.ratio_free_bytes || uncompressed <= compressed.saturating_mul(self.ratio)
    }
}
