//! The requirements of a skill on the machine.

use super::path::PathBase;
use crate::fields::version::Version;

/// A command that must be in `PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredCommand {
    pub(super) command: String,
    pub(super) min_version: Option<Version>,
    pub(super) max_version: Option<Version>,
}

impl RequiredCommand {
    /// Its name.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The oldest accepted version.
    #[must_use]
    pub const fn min_version(&self) -> Option<&Version> {
        self.min_version.as_ref()
    }

    /// The newest accepted version.
    #[must_use]
    pub const fn max_version(&self) -> Option<&Version> {
        self.max_version.as_ref()
    }

    /// Whether the version matters.
    #[must_use]
    pub const fn has_bounds(&self) -> bool {
        self.min_version.is_some() || self.max_version.is_some()
    }
}

/// A file that must exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredFile {
    pub(super) path: String,
    pub(super) base: PathBase,
    pub(super) description: Option<String>,
}

impl RequiredFile {
    /// Its path, relative to the base and beneath it.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The base of the path.
    #[must_use]
    pub const fn base(&self) -> PathBase {
        self.base
    }

    /// What it is for.
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }
}
