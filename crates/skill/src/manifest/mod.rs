//! The manifest of a skill: what it needs, what it takes, what it makes and how it behaves.
//!
//! A manifest stands in the frontmatter, or, so that the skill keeps to the format strictly, in the file
//! [`SIDECAR_FILE`] beside `SKILL.md`. What it says was checked when it was read: a [`Manifest`] has no path that leads
//! out of its base, no schema that cannot be applied, and no two inputs of one name. It only says what the skill's
//! author knows: what of it holds is for [preflight](crate::Preflight) to find out, and nothing in it gives a skill more
//! than its host does.
//!
//! Pure values; a crash loses nothing.

mod execution;
mod input;
mod locate;
mod output;
mod path;
mod precondition;
mod read;
mod version;

use std::sync::Arc;

pub use execution::{Destructive, Execution};
pub use input::{EnvVariable, Input, Need, input_text, input_variable};
pub use output::{OutputArtifact, OutputFile, OutputPattern, OutputPatternError};
pub use path::{Base, PathProblem};
pub use precondition::{CommandNeed, FileNeed};
pub(crate) use read::{Origin, declares_manifest, is_manifest_field, read};
pub use version::ManifestVersion;

use crate::diagnostic::Diagnostic;

/// The name of the file that holds a skill's manifest, where it is not in the frontmatter.
pub const SIDECAR_FILE: &str = "skill.manifest.yaml";

/// The most bytes of a manifest.
pub const MAX_MANIFEST_BYTES: u64 = 32 * 1024;

/// What a skill declares of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    version: ManifestVersion,
    skill_version: Option<String>,
    inputs: Vec<Input>,
    env: Vec<EnvVariable>,
    commands: Vec<CommandNeed>,
    files: Vec<FileNeed>,
    output_files: Vec<OutputFile>,
    output_artifacts: Vec<OutputArtifact>,
    execution: Execution,
    sensitive: bool,
}

impl Eq for Manifest {}

/// What was read where a manifest may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedManifest {
    /// The manifest; none of a skill that declares no `manifest_version`, whose fields are not looked at.
    pub manifest: Option<Arc<Manifest>>,
    /// What is remarkable; no errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// Why a manifest is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It is of a version of the format that is not known here, so what it says cannot be relied on.
    #[error("manifest_version {found} is not supported: this program reads versions 1.x")]
    Unsupported {
        /// The version that it declares.
        found: ManifestVersion,
        /// The same as a finding, with its place.
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
    /// Reads the text of a [`SIDECAR_FILE`]. The findings bear no path.
    ///
    /// ```
    /// use conjure_skill::Manifest;
    ///
    /// let parsed = Manifest::parse("manifest_version: \"1.0\"\nexecution:\n  timeout: 30\n")?;
    /// let manifest = parsed.manifest.ok_or("a manifest of no version")?;
    /// assert_eq!(manifest.execution().timeout.map(|timeout| timeout.as_secs()), Some(30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it is no YAML, too large, of an unknown major version, or breaks a rule.
    pub fn parse(text: &str) -> Result<ParsedManifest, ManifestError> {
        read(text, Origin::Sidecar)
    }

    /// The version of the format that it is written in.
    #[must_use]
    pub const fn version(&self) -> ManifestVersion {
        self.version
    }

    /// The skill's own version, as written.
    #[must_use]
    pub fn skill_version(&self) -> Option<&str> {
        self.skill_version.as_deref()
    }

    /// What it takes from whoever uses it: first the required ones, each in the order of the text.
    #[must_use]
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The input of this name.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.name() == name)
    }

    /// The environment variables that it reads: first the required ones.
    #[must_use]
    pub fn env(&self) -> &[EnvVariable] {
        &self.env
    }

    /// The commands that must be in the path.
    #[must_use]
    pub fn commands(&self) -> &[CommandNeed] {
        &self.commands
    }

    /// The files that must exist.
    #[must_use]
    pub fn files(&self) -> &[FileNeed] {
        &self.files
    }

    /// The files that it makes.
    #[must_use]
    pub fn output_files(&self) -> &[OutputFile] {
        &self.output_files
    }

    /// What it makes besides files.
    #[must_use]
    pub fn output_artifacts(&self) -> &[OutputArtifact] {
        &self.output_artifacts
    }

    /// How it behaves when it runs. Hints, not enforcement.
    #[must_use]
    pub const fn execution(&self) -> &Execution {
        &self.execution
    }

    /// Whether it handles sensitive data: no standing grant without a person.
    #[must_use]
    pub const fn sensitive(&self) -> bool {
        self.sensitive
    }
}

#[cfg(test)]
mod tests;
