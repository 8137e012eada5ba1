//! How much room the packages of one discovery may take on disk together.
//!
//! State: a number, for as long as a discovery runs. Each package is small enough by its own limits; a folder of a
//! thousand of them would still fill the disk, or the memory where temporary files lie in it.

use std::path::Path;

use crate::error::SkillError;

/// What a file system usually gives out at once.
const BLOCK_BYTES: u64 = 4096;

/// How many bytes a file of this size takes on disk. A folder takes a block.
pub(crate) const fn disk_bytes(size: u64) -> u64 {
    let blocks = size.div_ceil(BLOCK_BYTES);
    (if blocks == 0 { 1 } else { blocks }).saturating_mul(BLOCK_BYTES)
}

/// The room that is left.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: u64,
}

impl Budget {
    pub(crate) const fn new(limit: u64) -> Self {
        Self { limit, used: 0 }
    }

    /// Takes room for the package at this path.
    pub(crate) fn take(&mut self, path: &Path, bytes: u64) -> Result<(), SkillError> {
        if bytes > self.limit.saturating_sub(self.used) {
            return Err(SkillError::PackageBudget { path: path.to_owned(), limit: self.limit });
        }
        self.occupy(bytes);
        Ok(())
    }

    /// Counts what is there already, whether or not there is room for it.
    pub(crate) const fn occupy(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
    }

    /// Gives room back.
    pub(crate) const fn give_back(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }
}
