//! Settings of compaction: when the beginning of a long conversation is replaced by a summary.

use std::num::NonZeroU64;

use conjure_conversation::CompactionPolicy;
use conjure_skill::nearest;
use toml::{Table, Value};

/// The keys of `[compaction]`.
const KEYS: [&str; 3] = ["threshold", "keep", "service_threshold"];

/// When the beginning of a conversation is replaced by a summary, which its own model writes. What is `None` is left to the layer
/// below.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactionSettings {
    /// From how many tokens of input on, as the service counts a request with all that it read from its cache. Never, unless this
    /// is set.
    pub threshold: Option<u64>,
    /// How many of the last messages stay at least: six, unless this is set.
    pub keep: Option<usize>,
    /// From how many tokens of input on the model's service compacts by itself, where it can (`compact-2026-01-12`): never, unless this
    /// is set. It is one or the other: what both compact is summarised twice.
    pub service_threshold: Option<u64>,
}

impl CompactionSettings {
    /// These laid over `lower`.
    #[must_use]
    pub fn over(self, lower: Self) -> Self {
        Self {
            threshold: self.threshold.or(lower.threshold),
            keep: self.keep.or(lower.keep),
            service_threshold: self.service_threshold.or(lower.service_threshold),
        }
    }

    /// Looks whether they can be used.
    pub(super) fn check(&self) -> Result<(), String> {
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

    /// From how many tokens on the service compacts.
    pub(super) fn of_service(self) -> Option<NonZeroU64> {
        self.service_threshold.and_then(NonZeroU64::new)
    }

    /// What they come to; none where no threshold is set.
    pub(super) fn policy(self) -> Option<CompactionPolicy> {
        let policy = CompactionPolicy::at(self.threshold?);
        Some(self.keep.map_or(policy, |keep| policy.keeping(keep)))
    }
}

/// The table `[compaction]` of the file.
pub(super) fn parse(table: &Table) -> Result<CompactionSettings, String> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let near = nearest(key, KEYS).map(|near| format!(", did you mean `{near}`?"));
        return Err(format!("there is no `{key}`{}", near.unwrap_or_default()));
    }
    let count = |key: &str| match table.get(key) {
        None => Ok(None),
        Some(Value::Integer(count)) => {
            u64::try_from(*count).map(Some).map_err(|_| format!("`{key}`: {count} is less than 0"))
        }
        Some(other) => Err(format!("`{key}`: a whole number is needed, not a {}", other.type_str())),
    };
    let keep = count("keep")?.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let (threshold, service_threshold) = (count("threshold")?, count("service_threshold")?);
    let settings = CompactionSettings { threshold, keep, service_threshold };
    settings.check().map(|()| settings)
}
