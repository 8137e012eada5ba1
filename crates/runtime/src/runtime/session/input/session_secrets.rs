//! The secrets, inputs and MCP servers of a session that are never recorded.
//!
//! State: the values, in memory, until the session is deleted or the runtime ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use conjure_base::{SessionId, is_sensitive_variable};
use conjure_conversation::{SecretNames, SessionProfile};
use conjure_mcp::McpServerSpec;
use conjure_skill::{Inputs, Skill};
use serde_json::Value;

use crate::runtime::error::RuntimeError;
use crate::runtime::session::input::value_texts::secrets_in_value;

/// The environment, secrets, inputs and MCP servers of a session that are not recorded.
#[derive(Clone, Default)]
pub struct SessionSecrets {
    environment: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
    inputs: Inputs,
    /// The names of inputs that were given as text and are not parsed yet.
    unparsed_texts: BTreeSet<String>,
    /// Variables that a manifest declares sensitive, even if their names do not look like that.
    sensitive_variables: BTreeSet<String>,
    /// MCP servers of this session alone. `None` keeps the earlier ones.
    mcp_servers: Option<Vec<McpServerSpec>>,
    missing_policy: MissingPolicy,
}

/// How to treat a value that the event log names and that was not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum MissingPolicy {
    #[default]
    Require,
    Skip,
}

impl SessionSecrets {
    /// No values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable for commands; it replaces a recorded one.
    #[must_use]
    pub fn environment(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Adds a secret. Commands do not see it, and it is redacted.
    #[must_use]
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(name.into(), value.into());
        self
    }

    /// Adds the value of an input that a manifest of the session's skills declares; it replaces a recorded one.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let name = name.into();
        self.unparsed_texts.remove(&name);
        self.inputs.insert(name, value.into());
        self
    }

    /// Adds an input as text, as on a command line. The text is parsed by the schema in the manifest that declares the
    /// input.
    #[must_use]
    pub fn input_text(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let name = name.into();
        self.unparsed_texts.insert(name.clone());
        self.inputs.insert(name, Value::String(text.into()));
        self
    }

    /// Sets the MCP servers that this session has in addition to the recorded ones. They replace all servers that an earlier call
    /// set. Each of them replaces a configured server of the same name.
    #[must_use]
    pub fn mcp_servers(mut self, servers: impl IntoIterator<Item = McpServerSpec>) -> Self {
        self.mcp_servers = Some(servers.into_iter().collect());
        self
    }

    /// The MCP servers of this session alone.
    pub(crate) fn own_servers(&self) -> &[McpServerSpec] {
        self.mcp_servers.as_deref().unwrap_or_default()
    }

    /// Parses the texts of inputs whose schemas are in these skills.
    pub(crate) fn parse_texts(&mut self, skills: &[Arc<Skill>]) {
        for name in std::mem::take(&mut self.unparsed_texts) {
            let schema = skills.iter().find_map(|skill| Some(skill.manifest()?.input(&name)?.schema()));
            if let (Some(schema), Some(value)) = (schema, self.inputs.get_mut(&name))
                && let Value::String(text) = &*value
            {
                *value = schema.value_of_text(text);
            }
        }
    }

    /// Allows the session to start even if other recorded names have no value. Commands then lack those variables, and
    /// missing secrets cannot be redacted.
    #[must_use]
    pub const fn allow_missing(mut self) -> Self {
        self.missing_policy = MissingPolicy::Skip;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.environment.is_empty()
            && self.secrets.is_empty()
            && self.inputs.is_empty()
            && self.sensitive_variables.is_empty()
            && self.mcp_servers.is_none()
            && self.missing_policy == MissingPolicy::Require
    }

    /// These values merged over those of `before`.
    pub(crate) fn merged_over(mut self, before: &Self) -> Self {
        for (name, value) in &before.environment {
            self.environment.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &before.secrets {
            self.secrets.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (name, value) in &before.inputs {
            if !self.inputs.contains_key(name) {
                self.inputs.insert(name.clone(), value.clone());
                self.unparsed_texts.extend(before.unparsed_texts.get(name).cloned());
            }
        }
        self.sensitive_variables.extend(before.sensitive_variables.iter().cloned());
        self.mcp_servers = self.mcp_servers.or_else(|| before.mcp_servers.clone());
        if before.missing_policy == MissingPolicy::Skip {
            self.missing_policy = MissingPolicy::Skip;
        }
        self
    }

    /// The values of inputs.
    pub(crate) const fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// The names of the variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        self.environment.keys().map(String::as_str)
    }

    /// Marks those of these variables as sensitive that are given here.
    pub(crate) fn mark_sensitive<'n>(&mut self, variables: impl IntoIterator<Item = &'n String>) {
        let given = variables.into_iter().filter(|name| self.environment.contains_key(*name));
        self.sensitive_variables.extend(given.cloned());
    }

    /// Keeps only the inputs of these names. Recorded inputs need not be kept here.
    #[must_use]
    pub(crate) fn with_inputs_of(mut self, names: &BTreeSet<String>) -> Self {
        self.inputs.retain(|name, _| names.contains(name));
        self
    }

    /// Splits off the variables that may be recorded. Returns the names of everything else.
    pub(crate) fn split_recorded(&self) -> (BTreeMap<String, String>, SecretNames) {
        let is_withheld = |name: &str, value: &str| {
            is_sensitive_variable(name, value) || self.sensitive_variables.contains(name)
        };
        let (withheld, recorded): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.environment.clone().into_iter().partition(|(name, value)| is_withheld(name, value));
        let withheld = SecretNames {
            environment: withheld.into_keys().collect(),
            secrets: self.secrets.keys().cloned().collect(),
            inputs: BTreeSet::new(),
        };
        (recorded, withheld)
    }

    /// All values. Inputs that are given here are never recorded, so all of them are treated as secrets.
    pub(crate) fn into_complete(self) -> CompleteSecrets {
        let mut secrets = self.secrets;
        let of_servers = self.mcp_servers.iter().flatten().flat_map(McpServerSpec::secrets);
        secrets.extend(of_servers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        secrets.extend(sensitive_vars(&self.environment, &self.sensitive_variables));
        secrets.extend(self.inputs.iter().flat_map(|(name, value)| secrets_in_value(name, value)));
        CompleteSecrets { environment: self.environment, secrets }
    }

    /// All variables and secrets of a session with this profile.
    pub(crate) fn complete_for(
        &self,
        session: SessionId,
        profile: &SessionProfile,
    ) -> Result<CompleteSecrets, RuntimeError> {
        let lacking = |wanted: &BTreeSet<String>, given: &BTreeMap<String, String>| -> BTreeSet<String> {
            wanted.iter().filter(|name| !given.contains_key(*name)).cloned().collect()
        };
        let missing = SecretNames {
            environment: lacking(&profile.secret_names.environment, &self.environment),
            secrets: lacking(&profile.secret_names.secrets, &self.secrets),
            inputs: profile
                .secret_names
                .inputs
                .iter()
                .filter(|name| !self.inputs.contains_key(*name))
                .cloned()
                .collect(),
        };
        if self.missing_policy == MissingPolicy::Require && !missing.is_empty() {
            return Err(RuntimeError::MissingSecrets { session, missing });
        }
        let mut environment = profile.environment.clone();
        environment.extend(self.environment.clone());
        Ok(CompleteSecrets { environment, secrets: self.secrets.clone() })
    }
}

impl CompleteSecrets {
    /// Marks these variables as sensitive, whatever their origin.
    pub(crate) fn mark_sensitive(&mut self, variables: &BTreeSet<String>) {
        self.secrets.extend(sensitive_vars(&self.environment, variables));
    }
}

/// The values of these variables as secrets. Their names differ from those of an embedder's secrets.
fn sensitive_vars<'a>(
    environment: &'a BTreeMap<String, String>,
    names: &'a BTreeSet<String>,
) -> impl Iterator<Item = (String, String)> + 'a {
    names.iter().filter_map(|name| Some((format!("variable {name}"), environment.get(name)?.clone())))
}

/// All variables and secrets of a session.
pub(crate) struct CompleteSecrets {
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) secrets: BTreeMap<String, String>,
}

/// Shows names only.
impl fmt::Debug for SessionSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionSecrets")
            .field("environment", &self.environment.keys())
            .field("secrets", &self.secrets.keys())
            .field("inputs", &self.inputs.keys())
            .field("mcp_servers", &self.own_servers().iter().map(|server| &server.name).collect::<Vec<_>>())
            .field("missing_policy", &self.missing_policy)
            .finish()
    }
}
