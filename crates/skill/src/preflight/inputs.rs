//! The values that a skill's inputs have.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::manifest::{Input, Manifest, Need};
use crate::schema::{Disclosure, Mismatch};

/// Values by the name of the input.
pub type Inputs = BTreeMap<String, Value>;

/// What is wrong with the inputs that were given. No message has a value that is sensitive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputProblem {
    /// An input that is required was not given.
    #[error("the input `{name}` is required and was not given{}", describing(description.as_deref()))]
    Missing {
        /// Its name.
        name: String,
        /// What it is for.
        description: Option<String>,
    },
    /// A value is not as its schema says.
    #[error("the input `{name}` is not as the skill asks: {mismatch}")]
    Mismatch {
        /// Its name.
        name: String,
        /// What is wrong.
        mismatch: Mismatch,
    },
    /// The manifest knows no such input.
    #[error("the skill has no input `{name}`; it has {}", listed(known))]
    Unknown {
        /// The name that was given.
        name: String,
        /// The names that there are.
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
    /// The value of each input: those that were given, and the defaults where none was. Values that were given and are
    /// objects or lists have the defaults of their properties, too.
    #[must_use]
    pub fn resolve_inputs(&self, given: &Inputs) -> Inputs {
        let value_of = |input: &Input| {
            let mut value = given.get(input.name()).or_else(|| input.schema().default_value()).cloned()?;
            input.schema().fill_in(&mut value);
            Some((input.name().to_owned(), value))
        };
        self.inputs().iter().filter_map(value_of).collect()
    }

    /// The inputs that are required, have no default and were not given.
    pub fn missing_inputs<'a>(&'a self, given: &'a Inputs) -> impl Iterator<Item = InputProblem> + 'a {
        let is_missing = |input: &&Input| {
            let has_value = given.contains_key(input.name()) || input.schema().default_value().is_some();
            input.need() == Need::Required && !has_value
        };
        self.inputs().iter().filter(is_missing).map(|input| InputProblem::Missing {
            name: input.name().to_owned(),
            description: input.description().map(str::to_owned),
        })
    }

    /// What about the given values is not as the schemas say.
    pub fn mismatched_inputs<'a>(&'a self, given: &'a Inputs) -> impl Iterator<Item = InputProblem> + 'a {
        self.inputs().iter().flat_map(|input| {
            let disclosure = if input.sensitive() { Disclosure::Withheld } else { Disclosure::Shown };
            let mismatches = given.get(input.name()).map(|value| input.schema().check(value, disclosure));
            mismatches
                .unwrap_or_default()
                .into_iter()
                .map(|mismatch| InputProblem::Mismatch { name: input.name().to_owned(), mismatch })
        })
    }

    /// The given names that are no input's.
    pub fn unknown_inputs<'a>(&'a self, given: &'a Inputs) -> impl Iterator<Item = InputProblem> + 'a {
        given.keys().filter(|name| self.input(name).is_none()).map(|name| InputProblem::Unknown {
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
