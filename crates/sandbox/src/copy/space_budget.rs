//! [`SpaceBudget`]: the byte budget of content directories that are filled through the guest.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use conjure_base::lock;

use crate::content::ContentDir;
use crate::error::{SandboxError, SandboxErrorKind};

/// The remaining bytes, and the bytes of each installed item.
#[derive(Debug)]
pub(super) struct SpaceBudget {
    remaining: AtomicU64,
    granted: Mutex<BTreeMap<(ContentDir, String), u64>>,
}

/// A reserved part of the budget. Dropping it returns the bytes.
#[derive(Debug)]
pub(super) struct SpaceGrant<'a> {
    budget: &'a SpaceBudget,
    bytes: u64,
}

impl SpaceBudget {
    pub(super) const fn new(bytes: u64) -> Self {
        Self { remaining: AtomicU64::new(bytes), granted: Mutex::new(BTreeMap::new()) }
    }

    /// Reserves bytes for the item `name`.
    pub(super) fn reserve(&self, bytes: u64, name: &str) -> Result<SpaceGrant<'_>, SandboxError> {
        let reserved = self
            .remaining
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |remaining| remaining.checked_sub(bytes));
        reserved.map(|_| SpaceGrant { budget: self, bytes }).map_err(|remaining| {
            let message = format!(
                "`{name}` cannot be given to the sandbox: it takes {bytes} bytes, and of the room for skills and artifacts, \
                 which is as large as the workspace's limit of the disk, {remaining} are left"
            );
            SandboxError::new(SandboxErrorKind::NoSpace, message)
        })
    }
}

impl SpaceBudget {
    /// Returns the bytes of a removed item.
    pub(super) fn release(&self, content_dir: ContentDir, name: &str) {
        let bytes = lock(&self.granted).remove(&(content_dir, name.to_owned()));
        self.remaining.fetch_add(bytes.unwrap_or_default(), Ordering::AcqRel);
    }
}

impl SpaceGrant<'_> {
    /// Assigns the bytes to an installed item, until it is removed.
    pub(super) fn keep(mut self, content_dir: ContentDir, name: String) {
        let bytes = std::mem::take(&mut self.bytes);
        lock(&self.budget.granted).insert((content_dir, name), bytes);
    }
}

impl Drop for SpaceGrant<'_> {
    fn drop(&mut self) {
        self.budget.remaining.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kept_is_given_back() {
        let budget = SpaceBudget::new(10);
        drop(budget.reserve(10, "a").unwrap());
        budget.reserve(6, "b").unwrap().keep(ContentDir::Skills, "b".to_owned());
        let refused = budget.reserve(5, "c").unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::NoSpace);
        assert!(
            refused.to_string().contains("`c`") && refused.to_string().contains("4 are left"),
            "{refused}"
        );
        assert!(budget.reserve(4, "d").is_ok());
        budget.release(ContentDir::Artifacts, "b");
        assert!(budget.reserve(5, "e").is_err());
        budget.release(ContentDir::Skills, "b");
        budget.release(ContentDir::Skills, "b");
        assert!(budget.reserve(10, "f").is_ok() && budget.reserve(11, "g").is_err());
    }
}
