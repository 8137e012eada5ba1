//! An error about artifacts that can be sent to several callers.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactErrorKind};

/// An [`ArtifactError`] that can be cloned and compared. Two are equal if their texts are.
#[derive(Clone)]
pub struct SharedArtifactError(Arc<ArtifactError>);

impl SharedArtifactError {
    /// The error.
    #[must_use]
    pub fn error(&self) -> &ArtifactError {
        &self.0
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ArtifactErrorKind {
        self.0.kind()
    }
}

impl From<ArtifactError> for SharedArtifactError {
    fn from(error: ArtifactError) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for SharedArtifactError {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

impl Eq for SharedArtifactError {}

impl fmt::Display for SharedArtifactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SharedArtifactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for SharedArtifactError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
