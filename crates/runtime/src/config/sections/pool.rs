//! Settings of the warm pools: sandboxes that are created before a session needs them.

use std::time::Duration;

use serde::Deserialize;

use crate::config::values;

/// The largest pool size.
const MAX_SANDBOXES: usize = 10_000;

/// How many sandboxes are created before a session needs them. The first call of a session claims one instead of waiting
/// for a new one. A `None` leaves the choice to the layer below.
///
/// A warm sandbox has the network policy, limits and isolation of the configuration. Its environment, skills and
/// workspace are set when a session claims it, so tenants share only the pool. A warm sandbox is used once.
///
/// A session gets a new sandbox instead if the pool is empty, if it works in a directory of the embedder, or if it has
/// allowed paths. An engine that shares no directories with this machine has no warm sandboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, expecting = "a table")]
pub struct PoolSettings {
    /// The number of warm jails. Default: none.
    pub jail: Option<usize>,
    /// The number of warm containers. Default: none.
    pub docker: Option<usize>,
    /// The age at which a warm sandbox is replaced. Default: 30 minutes.
    #[serde(deserialize_with = "values::seconds")]
    pub max_age: Option<Duration>,
    /// How many sandboxes of a kind may start concurrently, including warm ones. Default: the number of processors.
    ///
    /// Tenants that wait are served by weight ([`TenantPolicy::weight`](crate::TenantPolicy::weight)). Warm sandboxes are
    /// started when no tenant waits.
    pub starts_at_once: Option<usize>,
}

impl PoolSettings {
    /// Merges these settings over `lower`.
    #[must_use]
    pub fn merged_over(self, lower: Self) -> Self {
        Self {
            jail: self.jail.or(lower.jail),
            docker: self.docker.or(lower.docker),
            max_age: self.max_age.or(lower.max_age),
            starts_at_once: self.starts_at_once.or(lower.starts_at_once),
        }
    }

    /// Checks the values.
    pub(crate) fn check(&self) -> Result<(), String> {
        let too_many = [self.jail, self.docker, self.starts_at_once]
            .into_iter()
            .flatten()
            .find(|count| *count > MAX_SANDBOXES);
        if let Some(count) = too_many {
            return Err(format!("{count} is more than {MAX_SANDBOXES}"));
        }
        if self.starts_at_once == Some(0) {
            return Err("`starts_at_once` must be at least 1".to_owned());
        }
        if self.max_age.is_some_and(|age| age.is_zero()) {
            return Err("`max_age` must be more than 0 seconds".to_owned());
        }
        Ok(())
    }
}
