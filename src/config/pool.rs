//! Settings of the pools: sandboxes that are made before a session needs them.

use std::time::Duration;

use conjure_skill::nearest;
use toml::{Table, Value};

/// The keys of `[pool]`.
const KEYS: [&str; 4] = ["jail", "docker", "max_age", "starts_at_once"];

/// More spares than any machine is the better for.
const MOST: usize = 10_000;

/// How many sandboxes are made before a session needs them: the first call of a session takes one of them instead of waiting
/// until its own is made. What is `None` is left to the layer below.
///
/// A spare has what the configuration says of the network, the limits and the isolation; the environment, the skills, and the
/// workspace come when a session takes it, so tenants share one pool and nothing else. It is used once. Sessions that work in a
/// folder of the host's, or have allowed paths, get a sandbox that is made for them, as all do whose pool is empty; engines that
/// share no folders with the host have no spares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// How many jails are ready: none, unless this is set.
    pub jail: Option<usize>,
    /// How many containers are ready: none, unless this is set.
    pub docker: Option<usize>,
    /// When a spare that waits is too old, and replaced: after 30 minutes, unless this is set.
    pub max_age: Option<Duration>,
    /// How many sandboxes of a kind are started at a time, spares and others together: as many as there are processors, unless
    /// this is set. Tenants that wait for one have their parts by weight ([`TenantPolicy::weight`](crate::TenantPolicy::weight));
    /// spares are made when none of them waits.
    pub starts_at_once: Option<usize>,
}

impl PoolSettings {
    /// These laid over `lower`.
    #[must_use]
    pub fn over(self, lower: Self) -> Self {
        Self {
            jail: self.jail.or(lower.jail),
            docker: self.docker.or(lower.docker),
            max_age: self.max_age.or(lower.max_age),
            starts_at_once: self.starts_at_once.or(lower.starts_at_once),
        }
    }

    /// Looks whether they can be used.
    pub(super) fn check(&self) -> Result<(), String> {
        let too_many =
            [self.jail, self.docker, self.starts_at_once].into_iter().flatten().find(|count| *count > MOST);
        if let Some(count) = too_many {
            return Err(format!("{count} is more than {MOST}"));
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

/// The table `[pool]` of the file.
pub(super) fn parse(table: &Table) -> Result<PoolSettings, String> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let near = nearest(key, KEYS).map(|near| format!(", did you mean `{near}`?"));
        return Err(format!("there is no `{key}`{}", near.unwrap_or_default()));
    }
    let count = |key: &str| {
        let count = table.get(key).map(|value| match value {
            Value::Integer(count) => {
                usize::try_from(*count).map_err(|_| format!("`{key}`: {count} is less than 0"))
            }
            other => Err(format!("`{key}`: a whole number is needed, not a {}", other.type_str())),
        });
        count.transpose()
    };
    let max_age = table.get("max_age").map(super::file::seconds);
    let settings = PoolSettings {
        jail: count("jail")?,
        docker: count("docker")?,
        max_age: max_age.transpose().map_err(|reason| format!("`max_age`: {reason}"))?,
        starts_at_once: count("starts_at_once")?,
    };
    settings.check().map(|()| settings)
}
