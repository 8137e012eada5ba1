//! An error of artifacts that many can be told of.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{ArtifactError, ArtifactErrorKind};

/// An [`ArtifactError`] that can be cloned and compared: two are the same when they say the same.
#[derive(Clone)]
pub struct ArtifactFailure(Arc<ArtifactError>);

impl ArtifactFailure {
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

impl From<ArtifactError> for ArtifactFailure {
    fn from(error: ArtifactError) -> Self {
        Self(Arc::new(error))
    }
}

impl PartialEq for ArtifactFailure {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

impl Eq for ArtifactFailure {}

impl fmt::Display for ArtifactFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ArtifactFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ArtifactFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
