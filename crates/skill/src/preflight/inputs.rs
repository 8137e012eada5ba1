//! The input values of a skill.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::manifest::{Input, Manifest, Requirement};
use crate::schema::{Disclosure, SchemaMismatch};

/// Values by the name of the input.
pub type Inputs = BTreeMap<String, Value>;

/// A problem of the given inputs. No message contains a sensitive value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// A required input is missing.
    #[error("the input `{name}` is required and was not given{}", describing(description.as_deref()))]
    Missing {
        /// Its name.
        name: String,
        /// What it is for.
        description: Option<String>,
    },
    /// A value does not match its schema.
    #[error("the input `{name}` is not as the skill asks: {mismatch}")]
    Mismatch {
        /// Its name.
        name: String,
        /// What is wrong.
        mismatch: SchemaMismatch,
    },
    /// The manifest has no such input.
    #[error("the skill has no input `{name}`; it has {}", listed(known))]
    Unknown {
        /// The given name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
}

impl InputProblem {
    /// The name of the input.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Missing { name, .. } | Self::Mismatch { name, .. } | Self::Unknown { name, .. } => name,
        }
    }
}

impl Manifest {
    /// Returns the value of each input: the given value or the default. Given objects and lists also get the
    /// defaults of their properties.
    #[must_use]
    pub fn resolve_inputs(&self, provided: &Inputs) -> Inputs {
        let resolve = |input: &Input| {
            let mut value = provided.get(input.name()).or_else(|| input.schema().default_value()).cloned()?;
            input.schema().fill_in(&mut value);
            Some((input.name().to_owned(), value))
        };
        self.inputs().iter().filter_map(resolve).collect()
    }

    /// Returns the required inputs without default that were not given.
    pub fn missing_inputs<'a>(&'a self, provided: &'a Inputs) -> impl Iterator<Item = InputProblem> + 'a {
        let is_missing = |input: &&Input| {
            let has_value = provided.contains_key(input.name()) || input.schema().default_value().is_some();
            input.requirement() == Requirement::Required && !has_value
        };
        self.inputs().iter().filter(is_missing).map(|input| InputProblem::Missing {
            name: input.name().to_owned(),
            description: input.description().map(str::to_owned),
        })
    }

    /// Returns the given values that do not match their schemas.
    pub fn mismatched_inputs<'a>(&'a self, provided: &'a Inputs) -> impl Iterator<Item = InputProblem> + 'a {
        self.inputs().iter().flat_map(|input| {
            let disclosure = if input.sensitive() { Disclosure::Withheld } else { Disclosure::Shown };
            let mismatches = provided.get(input.name()).map(|value| input.schema().check(value, disclosure));
            mismatches
                .unwrap_or_default()
                .into_iter()
                .map(|mismatch| InputProblem::Mismatch { name: input.name().to_owned(), mismatch })
        })
    }

    /// Returns the given names that are no inputs.
    pub fn unknown_inputs<'a>(&'a self, provided: &'a Inputs) -> impl Iterator<Item = InputProblem> + 'a {
        provided.keys().filter(|name| self.input(name).is_none()).map(|name| InputProblem::Unknown {
            name: name.clone(),
            known: self.inputs().iter().map(|input| input.name().to_owned()).collect(),
        })
    }
}

fn describing(description: Option<&str>) -> String {
    description
        .map(|text| format!(": {}", text.split_whitespace().collect::<Vec<_>>().join(" ")))
        .unwrap_or_default()
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
