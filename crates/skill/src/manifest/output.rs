//! The outputs of a skill.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::path::{self, PathBase, PathProblem};
use crate::allowed_tools::Glob;

/// Files that a skill creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    pub(super) pattern: OutputPattern,
    pub(super) base: PathBase,
    pub(super) description: Option<String>,
}

impl OutputFile {
    /// The path pattern.
    #[must_use]
    pub const fn pattern(&self) -> &OutputPattern {
        &self.pattern
    }

    /// The base of the pattern.
    #[must_use]
    pub const fn base(&self) -> PathBase {
        self.base
    }

    /// What they are.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}

/// Another output of a skill, such as printed text or a changed state.
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

/// A path pattern, in which `{{name}}` stands for the value of an input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutputPattern {
    parts: Vec<PatternPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PatternPart {
    Text(String),
    Variable(String),
}

/// Why a pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputPatternError {
    /// A `{{` is not closed, or the braces are empty.
    #[error("`{{{{` and `}}}}` must enclose the name of an input")]
    Braces,
    /// There is no input of this name.
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
    /// The input's value is a list or an object, which cannot be part of a path.
    #[error("the value of the input `{name}` is a list or an object, which has no place in a path")]
    NotScalar {
        /// Its name.
        name: String,
    },
    /// The path leads out of its base.
    #[error("{0}")]
    Path(#[from] PathProblem),
}

impl OutputPattern {
    /// Parses a pattern.
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
                parts.push(PatternPart::Text(before.to_owned()));
            }
            parts.push(PatternPart::Variable(name.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(PatternPart::Text(rest.to_owned()));
        }
        let pattern = Self { parts };
        // Any value will do for this check: the text around it must not lead out.
        path::check(&pattern.substitute(|_| Some("x".to_owned())).unwrap_or_default())?;
        Ok(pattern)
    }

    /// Returns the names of the inputs in the pattern, in its order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            PatternPart::Variable(name) => Some(name.as_str()),
            PatternPart::Text(_) => None,
        })
    }

    /// Substitutes the values: texts unchanged, numbers and booleans as JSON.
    ///
    /// # Errors
    /// When an input has no value or one that cannot be part of a path, or the path leads out of its base.
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
        let path = self.substitute(|name| match values.get(name)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        });
        let path = path.unwrap_or_default();
        path::check(&path)?;
        Ok(path)
    }

    /// Whether a file matches. `path` is relative to the base. In the pattern, `*` and `?` match within a name,
    /// and `**` matches any directories. A name with other special characters matches only itself.
    ///
    /// # Errors
    /// As for [`OutputPattern::expand`].
    pub fn matches(&self, values: &BTreeMap<String, Value>, path: &Path) -> Result<bool, OutputPatternError> {
        let expected = self.expand(values)?;
        let Some(path) = path.to_str() else { return Ok(false) };
        Ok(match Glob::new(&expected) {
            Ok(glob) => glob.matches(path),
            Err(_) => Path::new(&expected) == Path::new(path),
        })
    }

    fn substitute(&self, mut value: impl FnMut(&str) -> Option<String>) -> Option<String> {
        let parts = self.parts.iter().map(|part| match part {
            PatternPart::Text(text) => Some(text.clone()),
            PatternPart::Variable(name) => value(name),
        });
        parts.collect()
    }
}

impl fmt::Display for OutputPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| match part {
            PatternPart::Text(text) => f.write_str(text),
            PatternPart::Variable(name) => write!(f, "{{{{{name}}}}}"),
        })
    }
}
