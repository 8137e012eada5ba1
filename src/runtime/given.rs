//! What a session is given and its record does not hold: secrets.
//!
//! State: the values, in memory, for as long as the runtime lives or until the session is deleted; gone with the process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use conjure_base::{SessionId, looks_sensitive};
use conjure_conversation::{Profile, Withheld};

use super::error::RuntimeError;

/// What a session is given that its record does not hold, or not any more.
#[derive(Clone, Default)]
pub struct Given {
    environment: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
    rest: Rest,
}

/// What becomes of that which is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Rest {
    #[default]
    Demanded,
    DoneWithout,
}

impl Given {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this variable for commands, also in the place of a recorded one.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// With this value, which commands do not see and nobody is to see.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(name.into(), value.into());
        self
    }

    /// The session does without whatever else it had. What its commands make of a variable that is not set is theirs; a secret
    /// that nobody names cannot be redacted.
    #[must_use]
    pub const fn without_the_rest(mut self) -> Self {
        self.rest = Rest::DoneWithout;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.secrets.is_empty() && self.rest == Rest::Demanded
    }

    /// This, and what is only in `before`.
    pub(crate) fn over(mut self, before: &Self) -> Self {
        for (name, value) in &before.environment {
            self.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &before.secrets {
            self.secrets.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if before.rest == Rest::DoneWithout {
            self.rest = Rest::DoneWithout;
        }
        self
    }

    /// Divides it: the part that may be recorded, and the names of the other.
    pub(crate) fn divided(&self) -> (BTreeMap<String, String>, Withheld) {
        let (withheld, recorded): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.environment.clone().into_iter().partition(|(name, _)| looks_sensitive(name));
        let withheld = Withheld {
            environment: withheld.into_keys().collect(),
            secrets: self.secrets.keys().cloned().collect(),
            inputs: BTreeSet::new(),
        };
        (recorded, withheld)
    }

    /// All of it.
    pub(crate) fn all(self) -> Complete {
        Complete { environment: self.environment, secrets: self.secrets }
    }

    /// The variables and the secrets of a session that was recorded so.
    pub(crate) fn complete(&self, session: SessionId, profile: &Profile) -> Result<Complete, RuntimeError> {
        let lacking = |wanted: &BTreeSet<String>, given: &BTreeMap<String, String>| -> BTreeSet<String> {
            wanted.iter().filter(|name| !given.contains_key(*name)).cloned().collect()
        };
        let missing = Withheld {
            environment: lacking(&profile.withheld.environment, &self.environment),
            secrets: lacking(&profile.withheld.secrets, &self.secrets),
            inputs: BTreeSet::new(),
        };
        if self.rest == Rest::Demanded && !missing.is_empty() {
            return Err(RuntimeError::Missing { session, missing });
        }
        let mut environment = profile.environment.clone();
        environment.extend(self.environment.clone());
        Ok(Complete { environment, secrets: self.secrets.clone() })
    }
}

/// All variables and secrets of a session.
pub(crate) struct Complete {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) secrets: BTreeMap<String, String>,
}

/// Names only.
impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given")
            .field("environment", &self.environment.keys())
            .field("secrets", &self.secrets.keys())
            .field("rest", &self.rest)
            .finish()
    }
}
