//! What a skill takes: inputs and environment variables.

use serde_json::Value;

use crate::schema::Schema;

/// Whether something can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// The skill fails without it.
    Required,
    /// The skill does without it.
    Optional,
}

/// An input that a skill declares.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) need: Need,
    pub(super) schema: Schema,
    pub(super) sensitive: bool,
}

/// The environment variable by which scripts know an input: `CONJURE_INPUT_` and its name in capitals, with `_` for
/// whatever is neither a letter nor a digit of ASCII.
#[must_use]
pub fn input_variable(name: &str) -> String {
    let capital = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("CONJURE_INPUT_{}", name.chars().map(capital).collect::<String>())
}

/// The value of an input as its variable holds it: a text as it is, others as JSON.
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

    /// Whether it can be left out.
    #[must_use]
    pub const fn need(&self) -> Need {
        self.need
    }

    /// What its values must be like; without one in the manifest, any value is.
    #[must_use]
    pub const fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether its value is kept out of everything that is recorded or shown.
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
    pub(super) need: Need,
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

    /// Whether it can be left out.
    #[must_use]
    pub const fn need(&self) -> Need {
        self.need
    }

    /// Whether its value is kept out of everything that is recorded or shown.
    #[must_use]
    pub const fn sensitive(&self) -> bool {
        self.sensitive
    }
}
