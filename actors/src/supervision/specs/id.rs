//! The ids of a supervisor's children, and the errors of specs.

use std::fmt;
use std::sync::Arc;

/// The name of a child among its siblings: 1 to 128 bytes without control characters and without `/`, which separates
/// the ids of a path. Children of other supervisors may have the same id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(Arc<str>);

impl ChildId {
    /// Creates an id from `text`.
    ///
    /// # Errors
    /// If `text` is empty, longer than 128 bytes, or contains `/` or a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Self, SpecError> {
        let text = text.as_ref();
        let fits = (1..=128).contains(&text.len())
            && !text.chars().any(|character| character == '/' || character.is_control());
        if fits { Ok(Self(Arc::from(text))) } else { Err(SpecError::BadId { text: text.to_owned() }) }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An invalid spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text is not a valid child id.
    #[error("`{text}` is not a child's id: it must be 1 to 128 bytes without `/` and control characters")]
    BadId {
        /// The text.
        text: String,
    },
    /// Two children of one supervisor have the same id.
    #[error("there are two children `{id}`")]
    DuplicateId {
        /// The id.
        id: ChildId,
    },
    /// A significant child needs a supervisor with automatic shutdown.
    #[error("child `{id}` is significant, but its supervisor never shuts down because of a child")]
    NeedsAutoShutdown {
        /// The child.
        id: ChildId,
    },
}
