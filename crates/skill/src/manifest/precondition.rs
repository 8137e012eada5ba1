//! What must be there before a skill can run.

use super::path::Base;
use crate::version::Version;

/// A command that must be in the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandNeed {
    pub(super) command: String,
    pub(super) min_version: Option<Version>,
    pub(super) max_version: Option<Version>,
}

impl CommandNeed {
    /// Its name.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The oldest version that will do.
    #[must_use]
    pub const fn min_version(&self) -> Option<&Version> {
        self.min_version.as_ref()
    }

    /// The newest version that will do.
    #[must_use]
    pub const fn max_version(&self) -> Option<&Version> {
        self.max_version.as_ref()
    }

    /// Whether it matters which version the command has.
    #[must_use]
    pub const fn has_bounds(&self) -> bool {
        self.min_version.is_some() || self.max_version.is_some()
    }
}

/// A file that must exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNeed {
    pub(super) path: String,
    pub(super) base: Base,
    pub(super) description: Option<String>,
}

impl FileNeed {
    /// Its path, relative to the base and beneath it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the path is relative to.
    #[must_use]
    pub const fn base(&self) -> Base {
        self.base
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}
