//! Why a package is refused.

use std::fmt;

/// Declares the kinds of problems with their stable names.
macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The kind of a [`PackageProblem`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum PackageProblemKind {
            $($(#[$doc])* $variant,)*
        }

        impl PackageProblemKind {
            /// The kind as text, in kebab case.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

kinds! {
    /// It is no ZIP archive.
    NotAnArchive = "not-an-archive",
    /// It ends too early.
    Truncated = "truncated",
    /// Two parts contradict each other, or there are unused bytes.
    Contradiction = "contradiction",
    /// The content is corrupt.
    Corrupt = "corrupt",
    /// A limit is exceeded.
    Limit = "limit",
    /// The path leads out, or has another meaning on another system.
    UnsafePath = "unsafe-path",
    /// The path is not UTF-8, or not marked as such.
    Encoding = "encoding",
    /// It is a link.
    Link = "link",
    /// It is a device, a pipe or a socket.
    SpecialFile = "special-file",
    /// It is encrypted.
    Encrypted = "encrypted",
    /// It uses an unsupported ZIP feature.
    Unsupported = "unsupported",
    /// Two entries have the same path, or paths that are equal on some file systems.
    Duplicate = "duplicate",
    /// A path is both a file and a directory.
    FileAndDir = "file-and-folder",
    /// There is no `SKILL.md`, or it is ambiguous.
    SkillFile = "skill-file",
    /// The top directory is not named like the skill.
    DirName = "folder-name",
}

impl fmt::Display for PackageProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a package is refused. The message follows the entry's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackageProblem {
    /// It is no ZIP archive.
    #[error("is not a ZIP archive: it has no end record")]
    NotAnArchive,
    /// It ends too early.
    #[error("is cut off: {what} is missing")]
    Truncated {
        /// What is missing.
        what: &'static str,
    },
    /// Two parts contradict each other, or there are unused bytes.
    #[error("contradicts itself: {what}")]
    Contradiction {
        /// What is inconsistent.
        what: &'static str,
    },
    /// It shares bytes with another entry.
    #[error("shares bytes with the entry `{}`", display_name(other))]
    Overlap {
        /// The other entry.
        other: Box<str>,
    },
    /// The content is corrupt.
    #[error("is damaged: {what}; get the package again")]
    Corrupt {
        /// What is corrupt.
        what: &'static str,
    },
    /// A limit is exceeded.
    #[error("has more than the limit of {limit} {what}")]
    Limit {
        /// The limited quantity, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The path leads out, or has another meaning on another system.
    #[error("has a path that is refused: {reason}")]
    UnsafePath {
        /// The reason.
        reason: &'static str,
    },
    /// The path is not UTF-8, or not marked as such.
    #[error("has a path that is not marked as UTF-8 or is not: pack it again with a tool that writes UTF-8")]
    Encoding,
    /// It is a link.
    #[error("is a link: pack what it leads to")]
    Link,
    /// It is a device, a pipe or a socket.
    #[error("is neither a file nor a directory")]
    SpecialFile,
    /// It is encrypted.
    #[error("is encrypted: pack it without a password")]
    Encrypted,
    /// It uses an unsupported ZIP feature.
    #[error("needs {what}, which is not supported: pack it with deflate")]
    Unsupported {
        /// The feature.
        what: &'static str,
    },
    /// Two entries have the same path.
    #[error("is there twice")]
    Duplicate,
    /// Two paths differ only in case or Unicode form, which some file systems ignore.
    #[error("differs from `{}` only in case or Unicode form", display_name(other))]
    Collision {
        /// The first of the two paths.
        other: Box<str>,
    },
    /// A path is both a file and a directory.
    #[error("is both a file and a directory")]
    FileAndDir,
    /// There is no `SKILL.md`.
    #[error("has no `SKILL.md`, neither at its root nor in one directory at its root")]
    NoSkillFile,
    /// More than one `SKILL.md` could be the skill's.
    #[error("is a second `SKILL.md` beside `{}`: a package holds one skill", display_name(other))]
    TwoSkillFiles {
        /// The first one.
        other: Box<str>,
    },
    /// It is outside the skill's directory.
    #[error("is outside the skill's directory `{}`", display_name(dir))]
    OutsideDir {
        /// The skill's directory.
        dir: Box<str>,
    },
    /// The top directory is not named like the skill.
    #[error("is not named as its skill, `{}`: rename the directory or change the `name`", display_name(name))]
    DirName {
        /// The skill's name.
        name: Box<str>,
    },
}

impl PackageProblem {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> PackageProblemKind {
        match self {
            Self::NotAnArchive => PackageProblemKind::NotAnArchive,
            Self::Truncated { .. } => PackageProblemKind::Truncated,
            Self::Contradiction { .. } | Self::Overlap { .. } => PackageProblemKind::Contradiction,
            Self::Corrupt { .. } => PackageProblemKind::Corrupt,
            Self::Limit { .. } => PackageProblemKind::Limit,
            Self::UnsafePath { .. } => PackageProblemKind::UnsafePath,
            Self::Encoding => PackageProblemKind::Encoding,
            Self::Link => PackageProblemKind::Link,
            Self::SpecialFile => PackageProblemKind::SpecialFile,
            Self::Encrypted => PackageProblemKind::Encrypted,
            Self::Unsupported { .. } => PackageProblemKind::Unsupported,
            Self::Duplicate | Self::Collision { .. } => PackageProblemKind::Duplicate,
            Self::FileAndDir => PackageProblemKind::FileAndDir,
            Self::NoSkillFile | Self::TwoSkillFiles { .. } | Self::OutsideDir { .. } => {
                PackageProblemKind::SkillFile
            }
            Self::DirName { .. } => PackageProblemKind::DirName,
        }
    }
}

/// A problem with its entry. `None`: the whole package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageEntryError {
    pub(crate) entry: Option<Box<str>>,
    pub(crate) problem: PackageProblem,
}

impl PackageProblem {
    /// Names the entry of the problem.
    pub(crate) fn in_entry(self, entry: impl Into<Box<str>>) -> PackageEntryError {
        PackageEntryError { entry: Some(entry.into()), problem: self }
    }
}

impl From<PackageProblem> for PackageEntryError {
    fn from(problem: PackageProblem) -> Self {
        Self { entry: None, problem }
    }
}

/// Shortens a name from an untrusted source, and removes what could break the line of a message.
pub(crate) fn display_name(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    let mut text: String = name.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if name.chars().nth(MAX_CHARS).is_some() {
        text.push('…');
    }
    text
}
