//! The inputs of a skill: values and environment variables.

use serde_json::Value;

use crate::schema::Schema;

/// Whether an input is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requirement {
    /// The skill fails without it.
    Required,
    /// The skill works without it.
    Optional,
}

/// An input that a skill declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) requirement: Requirement,
    pub(super) schema: Schema,
    pub(super) sensitive: bool,
}

/// Returns the environment variable for an input: `CONJURE_INPUT_` and the name in capitals. Characters other than
/// ASCII letters and digits become `_`.
#[must_use]
pub fn input_variable(name: &str) -> String {
    let capital = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("CONJURE_INPUT_{}", name.chars().map(capital).collect::<String>())
}

/// Returns the value of an input for its variable: texts unchanged, other values as JSON.
#[must_use]
pub fn input_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Input {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether it is required.
    #[must_use]
    pub const fn requirement(&self) -> Requirement {
        self.requirement
    }

    /// The schema of its values. Without one in the manifest, any value is valid.
    #[must_use]
    pub const fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether its value is redacted in all records and output.
    #[must_use]
    pub const fn sensitive(&self) -> bool {
        self.sensitive
    }
}

/// An environment variable that a skill reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvVariable {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) requirement: Requirement,
    pub(super) sensitive: bool,
}

impl EnvVariable {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether it is required.
    #[must_use]
    pub const fn requirement(&self) -> Requirement {
        self.requirement
    }

    /// Whether its value is redacted in all records and output.
    #[must_use]
    pub const fn sensitive(&self) -> bool {
        self.sensitive
    }
}
