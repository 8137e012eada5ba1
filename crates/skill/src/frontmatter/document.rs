//! The frontmatter of a `SKILL.md` as a value.

use std::sync::Arc;

use crate::diagnostic::Diagnostic;
use crate::fields::metadata::Metadata;
use crate::fields::name::SkillName;
use crate::manifest::Manifest;

/// The maximum size of a frontmatter in bytes, including its fences.
pub const MAX_FRONTMATTER_BYTES: usize = 1024 * 1024;

/// How strictly a skill must follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As strict as the format's reference validator.
    Strict,
    /// As the format's guide for clients recommends: load what can be understood, with warnings.
    Lenient,
}

/// The fields of a frontmatter. They follow the rules of the [`Mode`] in which they were parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frontmatter {
    pub(super) name: SkillName,
    pub(super) description: String,
    pub(super) license: Option<String>,
    pub(super) compatibility: Option<String>,
    pub(super) allowed_tools: Option<String>,
    pub(super) metadata: Metadata,
    pub(super) manifest: Option<Arc<Manifest>>,
}

/// A parsed `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// The fields.
    pub frontmatter: Frontmatter,
    /// The text below the frontmatter, without the space around it, line ends as `\n`.
    pub body: String,
    /// What was repaired, ignored or is probably a mistake; no errors.
    pub diagnostics: Vec<Diagnostic>,
}

/// The frontmatter is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", diagnostics.iter().map(|finding| finding.message()).collect::<Vec<_>>().join("; "))]
pub struct FrontmatterError {
    /// All findings, at least one of them an error.
    pub diagnostics: Vec<Diagnostic>,
}

impl Frontmatter {
    /// The skill's name.
    #[must_use]
    pub const fn name(&self) -> &SkillName {
        &self.name
    }

    /// What the skill does and when to use it, without the space around it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Its licence.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.license.as_deref()
    }

    /// Its requirements on the environment.
    #[must_use]
    pub fn compatibility(&self) -> Option<&str> {
        self.compatibility.as_deref()
    }

    /// The tools that it asks to use without approval, as written: patterns separated by space.
    #[must_use]
    pub fn allowed_tools(&self) -> Option<&str> {
        self.allowed_tools.as_deref()
    }

    /// Additional properties.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The manifest among the fields. Strict mode refuses such a frontmatter.
    #[must_use]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_deref()
    }
}

impl From<Diagnostic> for FrontmatterError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { diagnostics: vec![diagnostic] }
    }
}
