//! The manifest of a skill as a value.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::input::{EnvVariable, Input};
use super::output::{OutputArtifact, OutputFile};
use super::precondition::{RequiredCommand, RequiredFile};
use crate::diagnostic::Diagnostic;

/// The name of a manifest's own file.
pub const SIDECAR_FILE: &str = "skill.manifest.yaml";

/// The maximum size of a manifest in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 32 * 1024;

/// The manifest of a skill.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub(super) version: ManifestVersion,
    pub(super) skill_version: Option<String>,
    pub(super) inputs: Vec<Input>,
    pub(super) env: Vec<EnvVariable>,
    pub(super) commands: Vec<RequiredCommand>,
    pub(super) files: Vec<RequiredFile>,
    pub(super) output_files: Vec<OutputFile>,
    pub(super) output_artifacts: Vec<OutputArtifact>,
    pub(super) execution: Execution,
    pub(super) sensitive: bool,
}

impl Eq for Manifest {}

/// The result of parsing a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedManifest {
    /// The manifest. `None` without a `manifest_version`; the other fields are then ignored.
    pub manifest: Option<Arc<Manifest>>,
    /// Findings; no errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// The manifest is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The version of the format is not supported, so the fields are not reliable.
    #[error("manifest_version {found} is not supported: this program reads versions 1.x")]
    Unsupported {
        /// The declared version.
        found: ManifestVersion,
        /// The same error as a finding, with its position.
        diagnostics: Vec<Diagnostic>,
    },
    /// It breaks rules.
    #[error("{}", diagnostics.iter().filter(|finding| finding.is_error()).map(Diagnostic::message).collect::<Vec<_>>().join("; "))]
    Invalid {
        /// All findings, at least one of them an error.
        diagnostics: Vec<Diagnostic>,
    },
}

impl ManifestError {
    /// All findings, at least one of them an error.
    #[must_use]
    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        match self {
            Self::Unsupported { diagnostics, .. } | Self::Invalid { diagnostics } => diagnostics,
        }
    }
}

impl Manifest {
    /// The version of the manifest format.
    #[must_use]
    pub const fn version(&self) -> ManifestVersion {
        self.version
    }

    /// The skill's own version, as written.
    #[must_use]
    pub fn skill_version(&self) -> Option<&str> {
        self.skill_version.as_deref()
    }

    /// Its inputs: the required ones first, each group in the order of the text.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The input of this name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.name() == name)
    }

    /// The environment variables that it reads: the required ones first.
    #[must_use]
    pub fn env(&self) -> &[EnvVariable] {
        &self.env
    }

    /// The commands that must be in the path.
    #[must_use]
    pub fn commands(&self) -> &[RequiredCommand] {
        &self.commands
    }

    /// The files that must exist.
    #[must_use]
    pub fn files(&self) -> &[RequiredFile] {
        &self.files
    }

    /// The files that it creates.
    #[must_use]
    pub fn output_files(&self) -> &[OutputFile] {
        &self.output_files
    }

    /// Its outputs other than files.
    #[must_use]
    pub fn output_artifacts(&self) -> &[OutputArtifact] {
        &self.output_artifacts
    }

    /// How it behaves when it runs. These are hints, which nothing enforces.
    #[must_use]
    pub const fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Whether it handles sensitive data. Then no approval may be remembered.
    #[must_use]
    pub const fn sensitive(&self) -> bool {
        self.sensitive
    }
}

/// How a skill behaves, as its author declares it: hints for scheduling and approvals. They neither extend nor
/// restrict what a sandbox may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Execution {
    /// Whether it can safely run several times.
    pub idempotent: bool,
    /// Whether it changes or deletes existing data.
    pub destructive: Destructive,
    /// Whether it needs the network.
    pub network: bool,
    /// Whether it asks questions while it runs.
    pub interactive: bool,
    /// The maximum run time.
    pub timeout: Option<Duration>,
}

/// Whether a skill changes or deletes existing data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Destructive {
    /// The author does not specify it. It needs no special approval, and does not count as harmless.
    #[default]
    Unspecified,
    /// It does not.
    No,
    /// It does.
    Yes,
}

/// A version of the manifest format: `1.0`. A patch number is parsed and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ManifestVersion {
    /// A different major version may give fields another meaning.
    pub major: u32,
    /// A later minor version has additional fields.
    pub minor: u32,
}

/// The newest version that is fully supported.
pub(super) const CURRENT: ManifestVersion = ManifestVersion { major: 1, minor: 0 };

/// The text is not a version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a version is two numbers with a dot between them, as in \"1.0\"")]
pub struct ParseManifestVersionError;

impl FromStr for ManifestVersion {
    type Err = ParseManifestVersionError;

    fn from_str(text: &str) -> Result<Self, ParseManifestVersionError> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| digits).ok_or(ParseManifestVersionError)
        };
        let mut parts = text.split('.');
        let major = number(parts.next().unwrap_or_default())?;
        let minor = parts.next().map_or(Ok(0), number)?;
        parts.next().map_or(Ok(0), number)?;
        if parts.next().is_some() { Err(ParseManifestVersionError) } else { Ok(Self { major, minor }) }
    }
}

impl fmt::Display for ManifestVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}
