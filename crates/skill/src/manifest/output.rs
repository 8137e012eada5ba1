//! What a skill makes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::path::{self, Base, PathProblem};
use crate::allowed_tools::Glob;

/// Files that a skill makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    pub(super) pattern: OutputPattern,
    pub(super) base: Base,
    pub(super) description: Option<String>,
}

impl OutputFile {
    /// Where.
    #[must_use]
    pub const fn pattern(&self) -> &OutputPattern {
        &self.pattern
    }

    /// What the pattern is relative to.
    #[must_use]
    pub const fn base(&self) -> Base {
        self.base
    }

    /// What they are.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}

/// Something else that a skill makes: what it prints, a state that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputArtifact {
    pub(super) name: String,
    pub(super) description: Option<String>,
}

impl OutputArtifact {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}

/// A path in which `{{name}}` stands for the value of an input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutputPattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Text(String),
    Variable(String),
}

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputPatternError {
    /// A `{{` is not closed, or nothing stands between the braces.
    #[error("`{{{{` and `}}}}` stand around the name of an input")]
    Braces,
    /// No input has this name.
    #[error("`{{{{{name}}}}}` names no input of this manifest")]
    UnknownVariable {
        /// The name.
        name: String,
    },
    /// The input has no value.
    #[error("the input `{name}` has no value")]
    NoValue {
        /// Its name.
        name: String,
    },
    /// The input's value is a list or an object, which has no place in a path.
    #[error("the value of the input `{name}` is a list or an object, which has no place in a path")]
    NotScalar {
        /// Its name.
        name: String,
    },
    /// The path leads elsewhere.
    #[error("{0}")]
    Path(#[from] PathProblem),
}

impl OutputPattern {
    /// Reads a pattern.
    pub(super) fn new(text: &str) -> Result<Self, OutputPatternError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after.split_once("}}").ok_or(OutputPatternError::Braces)?;
            let name = name.trim();
            if name.is_empty() || name.contains(['{', '}']) {
                return Err(OutputPatternError::Braces);
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Variable(name.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        let pattern = Self { parts };
        // Any name will do for what a value may be: the text around it must not lead out by itself.
        path::check(&pattern.filled(|_| Some("x".to_owned())).unwrap_or_default())?;
        Ok(pattern)
    }

    /// The names that stand between braces, in the order of the text.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The path for these values: texts as they are, numbers and truths as JSON writes them.
    ///
    /// # Errors
    /// When an input has no value or one that has no place in a path, or the path leads out of its base with it.
    pub fn expand(&self, values: &BTreeMap<String, Value>) -> Result<String, OutputPatternError> {
        for name in self.variables() {
            match values.get(name) {
                None | Some(Value::Null) => {
                    return Err(OutputPatternError::NoValue { name: name.to_owned() });
                }
                Some(Value::Array(_) | Value::Object(_)) => {
                    return Err(OutputPatternError::NotScalar { name: name.to_owned() });
                }
                Some(_) => {}
            }
        }
        let path = self.filled(|name| match values.get(name)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        });
        let path = path.unwrap_or_default();
        path::check(&path)?;
        Ok(path)
    }

    /// Whether a file is one of these, by its path relative to the base. In the pattern `*` and `?` stand for any part of a name, and
    /// `**` for any folders; a name with other special characters only for itself.
    ///
    /// # Errors
    /// As for [`OutputPattern::expand`].
    pub fn fits(&self, values: &BTreeMap<String, Value>, path: &Path) -> Result<bool, OutputPatternError> {
        let expected = self.expand(values)?;
        let Some(path) = path.to_str() else { return Ok(false) };
        Ok(match Glob::new(&expected) {
            Ok(glob) => glob.matches(path),
            Err(_) => Path::new(&expected) == Path::new(path),
        })
    }

    fn filled(&self, mut value: impl FnMut(&str) -> Option<String>) -> Option<String> {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => Some(text.clone()),
            Part::Variable(name) => value(name),
        });
        parts.collect()
    }
}

impl fmt::Display for OutputPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Variable(name) => write!(f, "{{{{{name}}}}}"),
        })
    }
}
