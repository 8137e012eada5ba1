//! Why a package is refused.

use std::fmt;

/// Declares the kinds of problems with their stable names, so that the two cannot drift apart.
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
    /// Two places of it contradict each other, or it has bytes that belong to nothing.
    Contradiction = "contradiction",
    /// What is stored is not what was packed.
    Corrupt = "corrupt",
    /// A limit is exceeded.
    Limit = "limit",
    /// The path leads out, or means something else on another system.
    UnsafePath = "unsafe-path",
    /// The path is not marked as UTF-8, or is none.
    Encoding = "encoding",
    /// It is a link.
    Link = "link",
    /// It is a device, a pipe or a socket.
    SpecialFile = "special-file",
    /// It is encrypted.
    Encrypted = "encrypted",
    /// It uses a part of ZIP that is not supported.
    Unsupported = "unsupported",
    /// Two entries have one path, or paths that are one on some file systems.
    Duplicate = "duplicate",
    /// A path is a file's and a folder's.
    FileAndFolder = "file-and-folder",
    /// Which `SKILL.md` is the skill's is not clear, or there is none.
    SkillFile = "skill-file",
    /// The top folder is not named as the skill.
    FolderName = "folder-name",
}

impl fmt::Display for PackageProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a package is refused: a fragment that fits after the entry's name.
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
    /// Two places of it contradict each other, or it has bytes that belong to nothing.
    #[error("contradicts itself: {what}")]
    Contradiction {
        /// What does not fit.
        what: &'static str,
    },
    /// It shares bytes with another entry.
    #[error("shares bytes with the entry `{}`", shown(other))]
    Overlap {
        /// The other entry.
        other: Box<str>,
    },
    /// What is stored is not what was packed.
    #[error("is damaged: {what}; get the package again")]
    Corrupt {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A limit is exceeded.
    #[error("has more than the limit of {limit} {what}")]
    Limit {
        /// What is limited, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The path leads out, or means something else on another system.
    #[error("has a path that is refused: {reason}")]
    UnsafePath {
        /// Why.
        reason: &'static str,
    },
    /// The path is not marked as UTF-8, or is none.
    #[error("has a path that is not marked as UTF-8 or is not: pack it again with a tool that writes UTF-8")]
    Encoding,
    /// It is a link.
    #[error("is a link: pack what it leads to")]
    Link,
    /// It is a device, a pipe or a socket.
    #[error("is neither a file nor a folder")]
    SpecialFile,
    /// It is encrypted.
    #[error("is encrypted: pack it without a password")]
    Encrypted,
    /// It uses a part of ZIP that is not supported.
    #[error("needs {what}, which is not supported: pack it with deflate")]
    Unsupported {
        /// What it uses.
        what: &'static str,
    },
    /// Two entries have one path.
    #[error("is there twice")]
    Duplicate,
    /// Two paths differ only in case or in their Unicode form, which some file systems do not tell apart.
    #[error("differs from `{}` only in case or Unicode form", shown(other))]
    Collision {
        /// The path that came first.
        other: Box<str>,
    },
    /// A path is a file's and a folder's.
    #[error("is both a file and a folder")]
    FileAndFolder,
    /// There is no `SKILL.md`.
    #[error("has no `SKILL.md`, neither at its root nor in one folder at its root")]
    NoSkillFile,
    /// There is more than one `SKILL.md` that could be the skill's.
    #[error("is a second `SKILL.md` beside `{}`: a package holds one skill", shown(other))]
    TwoSkillFiles {
        /// The first one.
        other: Box<str>,
    },
    /// It lies beside the skill's folder.
    #[error("lies outside of the skill's folder `{}`", shown(folder))]
    OutsideFolder {
        /// The skill's folder.
        folder: Box<str>,
    },
    /// The top folder is not named as the skill.
    #[error("is not named as its skill, `{}`: rename the folder or change the `name`", shown(name))]
    FolderName {
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
            Self::FileAndFolder => PackageProblemKind::FileAndFolder,
            Self::NoSkillFile | Self::TwoSkillFiles { .. } | Self::OutsideFolder { .. } => {
                PackageProblemKind::SkillFile
            }
            Self::FolderName { .. } => PackageProblemKind::FolderName,
        }
    }
}

/// A problem with the entry that it is about; without one it is the package's as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) entry: Option<Box<str>>,
    pub(crate) problem: PackageProblem,
}

impl PackageProblem {
    /// The problem of this entry.
    pub(crate) fn of_entry(self, entry: impl Into<Box<str>>) -> Refusal {
        Refusal { entry: Some(entry.into()), problem: self }
    }
}

impl From<PackageProblem> for Refusal {
    fn from(problem: PackageProblem) -> Self {
        Self { entry: None, problem }
    }
}

/// A name from a stranger, fit for a line of a message: bounded, and without what could break the line.
pub(crate) fn shown(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    let mut shown: String = name.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if name.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
