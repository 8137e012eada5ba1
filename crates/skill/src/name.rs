//! A skill's name.

use std::fmt;

/// A validated skill name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillName(String);

/// A text that is no skill name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SkillNameError(String);

impl SkillName {
    /// Checks the name.
    ///
    /// # Errors
    /// When it is empty.
    pub fn new(text: impl Into<String>) -> Result<Self, SkillNameError> {
        let text = text.into();
        if text.is_empty() { Err(SkillNameError("empty".to_owned())) } else { Ok(Self(text)) }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
