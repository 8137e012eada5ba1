//! Settings of compaction: when the beginning of a long conversation is replaced by a summary.

use std::num::NonZeroU64;

use conjure_conversation::CompactionPolicy;
use serde::Deserialize;

/// When the beginning of a conversation is replaced by a summary. The conversation's model writes the summary. A `None`
/// leaves the choice to the layer below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "a table")]
pub struct CompactionSettings {
    /// The input size in tokens from which it is replaced. The size is what the service counts for a request, including
    /// cached input. Default: four fifths of the model's context, if its size is known.
    pub threshold: Option<u64>,
    /// The least number of last messages that are kept. Default: six.
    pub keep: Option<usize>,
    /// The input size in tokens from which the model's service compacts by itself, if it can (`compact-2026-01-12`).
    /// Default: never. Only one of the two thresholds may be set, since the content would be summarised twice.
    pub service_threshold: Option<u64>,
}

impl CompactionSettings {
    /// Merges these settings over `lower`.
    #[must_use]
    pub fn merged_over(self, lower: Self) -> Self {
        Self {
            threshold: self.threshold.or(lower.threshold),
            keep: self.keep.or(lower.keep),
            service_threshold: self.service_threshold.or(lower.service_threshold),
        }
    }

    /// Checks the values.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.threshold == Some(0) {
            return Err("`threshold` must be at least 1".to_owned());
        }
        if self.service_threshold == Some(0) {
            return Err("`service_threshold` must be at least 1".to_owned());
        }
        if self.threshold.is_some() && self.service_threshold.is_some() {
            return Err("`threshold` and `service_threshold` exclude each other: what both compact is summarised twice".to_owned());
        }
        if self.keep == Some(0) {
            return Err("`keep` must be at least 1".to_owned());
        }
        Ok(())
    }

    /// The threshold of the service's compaction.
    pub(crate) fn service_compaction(self) -> Option<NonZeroU64> {
        self.service_threshold.and_then(NonZeroU64::new)
    }

    /// The resulting policy; `None` without a threshold.
    pub(crate) fn policy(self) -> Option<CompactionPolicy> {
        let policy = CompactionPolicy::with_threshold(self.threshold?);
        Some(self.keep.map_or(policy, |keep| policy.with_kept_messages(keep)))
    }
}
