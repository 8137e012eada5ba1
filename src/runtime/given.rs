//! What a session is given and its record does not hold: secrets.
//!
//! State: the values, in memory, for as long as the runtime lives or until the session is deleted; gone with the process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use conjure_base::{SessionId, looks_sensitive};
use conjure_conversation::{Profile, Withheld};
use conjure_skill::{Inputs, Skill};
use serde_json::Value;

use super::error::RuntimeError;
use super::inputs::secrets_of;

/// What a session is given that its record does not hold, or not any more.
#[derive(Clone, Default)]
pub struct Given {
    environment: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
    inputs: Inputs,
    /// The names of inputs whose values are texts that no schema has read yet.
    unread: BTreeSet<String>,
    /// Variables that are secret by what a manifest says, whatever their names look like.
    hidden: BTreeSet<String>,
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

    /// With this value for an input that a manifest of its skills declares, also in the place of a recorded one.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let name = name.into();
        self.unread.remove(&name);
        self.inputs.insert(name, value.into());
        self
    }

    /// The same with a text as people write it on a command line: it is read as the manifest asks that declares the input.
    #[must_use]
    pub fn input_text(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let name = name.into();
        self.unread.insert(name.clone());
        self.inputs.insert(name, Value::String(text.into()));
        self
    }

    /// Reads the texts of which it is known now how.
    pub(crate) fn read_texts(&mut self, skills: &[Arc<Skill>]) {
        for name in std::mem::take(&mut self.unread) {
            let schema = skills.iter().find_map(|skill| Some(skill.manifest()?.input(&name)?.schema()));
            if let (Some(schema), Some(value)) = (schema, self.inputs.get_mut(&name))
                && let Value::String(text) = &*value
            {
                *value = schema.value_of_text(text);
            }
        }
    }

    /// The session does without whatever else it had. What its commands make of a variable that is not set is theirs; a secret
    /// that nobody names cannot be redacted.
    #[must_use]
    pub const fn without_the_rest(mut self) -> Self {
        self.rest = Rest::DoneWithout;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.environment.is_empty()
            && self.secrets.is_empty()
            && self.inputs.is_empty()
            && self.hidden.is_empty()
            && self.rest == Rest::Demanded
    }

    /// This, and what is only in `before`.
    pub(crate) fn over(mut self, before: &Self) -> Self {
        for (name, value) in &before.environment {
            self.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &before.secrets {
            self.secrets.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &before.inputs {
            if !self.inputs.contains_key(name) {
                self.inputs.insert(name.clone(), value.clone());
                self.unread.extend(before.unread.get(name).cloned());
            }
        }
        self.hidden.extend(before.hidden.iter().cloned());
        if before.rest == Rest::DoneWithout {
            self.rest = Rest::DoneWithout;
        }
        self
    }

    /// The values of inputs.
    pub(crate) const fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The names of variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.environment.keys().map(String::as_str)
    }

    /// Takes in that these variables are secret, as far as they are given here.
    pub(crate) fn hide<'n>(&mut self, variables: impl IntoIterator<Item = &'n String>) {
        let given = variables.into_iter().filter(|name| self.environment.contains_key(*name));
        self.hidden.extend(given.cloned());
    }

    /// The same with no other inputs than those of these names: what is recorded need not be known here.
    #[must_use]
    pub(crate) fn with_inputs_of(mut self, names: &BTreeSet<String>) -> Self {
        self.inputs.retain(|name, _| names.contains(name));
        self
    }

    /// Divides it: the variables that may be recorded, and the names of what may not be.
    pub(crate) fn divided(&self) -> (BTreeMap<String, String>, Withheld) {
        let is_withheld =
            |name: &str, value: &str| looks_sensitive(name, value) || self.hidden.contains(name);
        let (withheld, recorded): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.environment.clone().into_iter().partition(|(name, value)| is_withheld(name, value));
        let withheld = Withheld {
            environment: withheld.into_keys().collect(),
            secrets: self.secrets.keys().cloned().collect(),
            inputs: BTreeSet::new(),
        };
        (recorded, withheld)
    }

    /// All of it. What is given of inputs here is not recorded, so all of that is secret.
    pub(crate) fn all(self) -> Complete {
        let mut secrets = self.secrets;
        secrets.extend(hidden(&self.environment, &self.hidden));
        secrets.extend(self.inputs.iter().flat_map(|(name, value)| secrets_of(name, value)));
        Complete { environment: self.environment, secrets }
    }

    /// The variables and the secrets of a session that was recorded so.
    pub(crate) fn complete(&self, session: SessionId, profile: &Profile) -> Result<Complete, RuntimeError> {
        let lacking = |wanted: &BTreeSet<String>, given: &BTreeMap<String, String>| -> BTreeSet<String> {
            wanted.iter().filter(|name| !given.contains_key(*name)).cloned().collect()
        };
        let missing = Withheld {
            environment: lacking(&profile.withheld.environment, &self.environment),
            secrets: lacking(&profile.withheld.secrets, &self.secrets),
            inputs: profile
                .withheld
                .inputs
                .iter()
                .filter(|name| !self.inputs.contains_key(*name))
                .cloned()
                .collect(),
        };
        if self.rest == Rest::Demanded && !missing.is_empty() {
            return Err(RuntimeError::Missing { session, missing });
        }
        let mut environment = profile.environment.clone();
        environment.extend(self.environment.clone());
        Ok(Complete { environment, secrets: self.secrets.clone() })
    }
}

impl Complete {
    /// Takes in that these variables are secret, whoever gave them.
    pub(crate) fn hide(&mut self, variables: &BTreeSet<String>) {
        self.secrets.extend(hidden(&self.environment, variables));
    }
}

/// The values of these variables as secrets, by names that no secret of a host's has.
fn hidden<'a>(
    environment: &'a BTreeMap<String, String>,
    names: &'a BTreeSet<String>,
) -> impl Iterator<Item = (String, String)> + 'a {
    names.iter().filter_map(|name| Some((format!("variable {name}"), environment.get(name)?.clone())))
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
            .field("inputs", &self.inputs.keys())
            .field("rest", &self.rest)
            .finish()
    }
}
