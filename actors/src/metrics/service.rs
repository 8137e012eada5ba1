//! What is counted of files at models' services. It keeps nothing.

use super::names;

/// What became of files at a model's service that were to be deleted with their session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceFiles {
    /// They are deleted.
    Deleted,
    /// They were gone.
    Absent,
    /// They stay: the service refuses.
    GivenUp,
}

impl ServiceFiles {
    /// Counts so many.
    pub fn count(self, files: u64) {
        let outcome = match self {
            Self::Deleted => "deleted",
            Self::Absent => "absent",
            Self::GivenUp => "given_up",
        };
        metrics::counter!(names::SERVICE_FILES, "outcome" => outcome).increment(files);
    }
}
