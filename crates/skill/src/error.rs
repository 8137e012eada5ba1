//! Errors of loading a skill or reading its files.

use std::io;
use std::path::{Path, PathBuf};

use crate::diagnostic::{Diagnostic, RuleId, Severity};
use crate::package::{PackageProblem, display_name};

/// An error of this crate, with its path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    /// There is no skill at this path, or no directory to search.
    #[error("no skill at `{}`: {missing}", path.display())]
    NotFound {
        /// The path that does not exist or is not a skill.
        path: PathBuf,
        /// What is missing.
        missing: Missing,
    },
    /// The frontmatter breaks the rules.
    #[error("invalid frontmatter in `{}`: {}", path.display(), first_error(diagnostics))]
    InvalidFrontmatter {
        /// The `SKILL.md`.
        path: PathBuf,
        /// All findings, at least one of them an error.
        diagnostics: Vec<Diagnostic>,
    },
    /// The manifest breaks the rules.
    #[error("invalid manifest in `{}`: {}", path.display(), first_error(diagnostics))]
    InvalidManifest {
        /// The file that it is in.
        path: PathBuf,
        /// All findings, at least one of them an error.
        diagnostics: Vec<Diagnostic>,
    },
    /// The version of the manifest is not supported.
    #[error("unsupported manifest in `{}`: {}", path.display(), first_error(diagnostics))]
    UnsupportedManifest {
        /// The file that it is in.
        path: PathBuf,
        /// All findings, at least one of them an error.
        diagnostics: Vec<Diagnostic>,
    },
    /// The directory does not have the structure of a skill.
    #[error("invalid skill at `{}`: {reason}", path.display())]
    InvalidStructure {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of the skill does not exist.
    #[error("no file `{}` in the skill", path.display())]
    FileNotFound {
        /// The file.
        path: PathBuf,
    },
    /// The operating system denies the permission.
    #[error("may not read `{}`: change its permissions or run as its owner", path.display())]
    PermissionDenied {
        /// The file or directory.
        path: PathBuf,
    },
    /// The path leads out of the skill, or is not a regular file.
    #[error("refused to read `{}`: {reason}", path.display())]
    PathNotAllowed {
        /// The requested path.
        path: PathBuf,
        /// Why it is refused.
        reason: &'static str,
    },
    /// The file is larger than the limit.
    #[error("`{}` is larger than the limit of {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The package is malformed, hostile or too large.
    #[error("refused the package `{}`: {}{problem}", path.display(), subject(entry.as_deref()))]
    InvalidPackage {
        /// The package.
        path: PathBuf,
        /// The entry of the package. Empty for a problem of the whole package.
        entry: Option<Box<str>>,
        /// What is wrong.
        problem: PackageProblem,
    },
    /// There is no space to unpack the package: all packages of one discovery together are too large.
    #[error(
        "no room to unpack `{}`: with those before it, it takes more than the limit of {limit} bytes on disk; \
         unpack some of them, or raise `package_bytes` of the bounds", path.display()
    )]
    PackageBudget {
        /// The package.
        path: PathBuf,
        /// The limit, in bytes on disk: see [`DiscoveryLimits::package_bytes`](crate::DiscoveryLimits::package_bytes).
        limit: u64,
    },
    /// The file could not be written.
    #[error("could not write `{}`", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// Another system error.
    #[error("could not read `{}`", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
}

/// What is missing at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// Nothing is at the path.
    #[error("the path does not exist")]
    Path,
    /// Something exists, but it is neither a directory nor a `SKILL.md`.
    #[error("it is neither a directory nor a `SKILL.md`")]
    Dir,
    /// The directory has no `SKILL.md`.
    #[error("the directory has no `SKILL.md`")]
    SkillFile,
}

/// The kind of a [`SkillError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkillErrorKind {
    /// See [`SkillError::NotFound`].
    NotFound,
    /// See [`SkillError::InvalidFrontmatter`].
    InvalidFrontmatter,
    /// See [`SkillError::InvalidManifest`].
    InvalidManifest,
    /// See [`SkillError::UnsupportedManifest`].
    UnsupportedManifest,
    /// See [`SkillError::InvalidStructure`].
    InvalidStructure,
    /// See [`SkillError::FileNotFound`].
    FileNotFound,
    /// See [`SkillError::PermissionDenied`].
    PermissionDenied,
    /// See [`SkillError::PathNotAllowed`].
    PathNotAllowed,
    /// See [`SkillError::TooLarge`].
    TooLarge,
    /// See [`SkillError::InvalidPackage`].
    InvalidPackage,
    /// See [`SkillError::PackageBudget`].
    PackageBudget,
    /// See [`SkillError::Write`].
    Write,
    /// See [`SkillError::Io`].
    Io,
}

impl SkillError {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> SkillErrorKind {
        match self {
            Self::NotFound { .. } => SkillErrorKind::NotFound,
            Self::InvalidFrontmatter { .. } => SkillErrorKind::InvalidFrontmatter,
            Self::InvalidManifest { .. } => SkillErrorKind::InvalidManifest,
            Self::UnsupportedManifest { .. } => SkillErrorKind::UnsupportedManifest,
            Self::InvalidStructure { .. } => SkillErrorKind::InvalidStructure,
            Self::FileNotFound { .. } => SkillErrorKind::FileNotFound,
            Self::PermissionDenied { .. } => SkillErrorKind::PermissionDenied,
            Self::PathNotAllowed { .. } => SkillErrorKind::PathNotAllowed,
            Self::TooLarge { .. } => SkillErrorKind::TooLarge,
            Self::InvalidPackage { .. } => SkillErrorKind::InvalidPackage,
            Self::PackageBudget { .. } => SkillErrorKind::PackageBudget,
            Self::Write { .. } => SkillErrorKind::Write,
            Self::Io { .. } => SkillErrorKind::Io,
        }
    }

    /// The path that it is about.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::NotFound { path, .. }
            | Self::InvalidFrontmatter { path, .. }
            | Self::InvalidManifest { path, .. }
            | Self::UnsupportedManifest { path, .. }
            | Self::InvalidStructure { path, .. }
            | Self::FileNotFound { path }
            | Self::PermissionDenied { path }
            | Self::PathNotAllowed { path, .. }
            | Self::TooLarge { path, .. }
            | Self::InvalidPackage { path, .. }
            | Self::PackageBudget { path, .. }
            | Self::Write { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    /// Whether a retry may succeed without a change: only after a temporary system error.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Io { source, .. } | Self::Write { source, .. } if source.kind() == io::ErrorKind::Interrupted)
    }

    /// Converts the error to findings: those of the frontmatter, or one with the error's message. Findings that
    /// the reference validator also reports have its messages.
    #[must_use]
    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        let (rule, message) = match &self {
            Self::InvalidFrontmatter { .. }
            | Self::InvalidManifest { .. }
            | Self::UnsupportedManifest { .. } => (RuleId::FrontmatterSyntax, String::new()),
            Self::NotFound { path, missing } => match missing {
                Missing::Path => (RuleId::PathMissing, format!("Path does not exist: {}", path.display())),
                Missing::Dir => (RuleId::NotADirectory, format!("Not a directory: {}", path.display())),
                Missing::SkillFile => {
                    (RuleId::SkillFileMissing, "Missing required file: SKILL.md".to_owned())
                }
            },
            Self::FileNotFound { .. } => (RuleId::SkillFileMissing, self.to_string()),
            Self::PermissionDenied { .. } | Self::Io { .. } => (RuleId::Unreadable, with_source(&self)),
            Self::InvalidPackage { .. } => (RuleId::PackageInvalid, self.to_string()),
            Self::PackageBudget { .. } => (RuleId::PackageBudget, self.to_string()),
            Self::Write { .. } => (RuleId::Unwritable, with_source(&self)),
            Self::InvalidStructure { .. } | Self::PathNotAllowed { .. } => {
                (RuleId::SkillFileKind, self.to_string())
            }
            Self::TooLarge { .. } => (RuleId::FileTooLarge, self.to_string()),
        };
        match self {
            Self::InvalidFrontmatter { diagnostics, .. }
            | Self::InvalidManifest { diagnostics, .. }
            | Self::UnsupportedManifest { diagnostics, .. } => diagnostics,
            other => vec![Diagnostic::new(rule, Severity::Error, message, other.path())],
        }
    }

    /// Creates the error for these findings about a file. At least one of them is an error.
    pub(crate) fn from_findings(path: PathBuf, diagnostics: Vec<Diagnostic>) -> Self {
        let diagnostics: Vec<_> = diagnostics.into_iter().map(|finding| finding.in_file(&path)).collect();
        let mut errors = diagnostics.iter().filter(|finding| finding.is_error()).map(Diagnostic::rule);
        if errors.clone().any(|rule| rule == RuleId::ManifestVersion) {
            Self::UnsupportedManifest { path, diagnostics }
        } else if errors.all(RuleId::is_of_manifest) {
            Self::InvalidManifest { path, diagnostics }
        } else {
            Self::InvalidFrontmatter { path, diagnostics }
        }
    }

    /// Replaces the path of the file that the findings are about.
    pub(crate) fn moved(self, path_of: impl FnOnce(&Path) -> PathBuf) -> Self {
        match self {
            Self::InvalidFrontmatter { path, diagnostics }
            | Self::InvalidManifest { path, diagnostics }
            | Self::UnsupportedManifest { path, diagnostics } => {
                Self::from_findings(path_of(&path), diagnostics)
            }
            other => other,
        }
    }

    /// Converts a system error about a path.
    pub(crate) fn from_io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::FileNotFound { path },
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { path },
            _ => Self::Io { path, source },
        }
    }
}

/// The start of a message about an entry, or about the package.
fn subject(entry: Option<&str>) -> String {
    match entry {
        Some(entry) => format!("its entry `{}` ", display_name(entry)),
        None => "it ".to_owned(),
    }
}

/// The message with that of the system error.
pub(crate) fn with_source(error: &SkillError) -> String {
    match error {
        SkillError::Io { source, .. } | SkillError::Write { source, .. } => format!("{error}: {source}"),
        other => other.to_string(),
    }
}

/// The first error among the findings, with its position, in one line.
fn first_error(diagnostics: &[Diagnostic]) -> String {
    let Some(first) = diagnostics.iter().find(|finding| finding.is_error()) else {
        return "unknown".to_owned();
    };
    let more = diagnostics.iter().filter(|finding| finding.is_error()).count() - 1;
    let place = first.position().map(|at| format!("line {}: ", at.line)).unwrap_or_default();
    let rest = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    format!("{place}{}{rest}", first.message())
}
