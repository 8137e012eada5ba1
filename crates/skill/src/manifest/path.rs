//! Relative paths and their bases.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The base of a path in a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathBase {
    /// The directory of `SKILL.md`.
    SkillRoot,
    /// The root of the Git repository that the workspace lies in, else the workspace.
    RepoRoot,
    /// The working directory of commands.
    Cwd,
}

impl PathBase {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SkillRoot, Self::RepoRoot, Self::Cwd];

    /// The name as manifests write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SkillRoot => "skill_root",
            Self::RepoRoot => "repo_root",
            Self::Cwd => "cwd",
        }
    }
}

impl fmt::Display for PathBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PathProblem {
    /// It is empty, or consists only of dots.
    #[error("it names nothing beneath its base")]
    Empty,
    /// It begins with `/`.
    #[error("it is absolute: write it relative to its base")]
    Absolute,
    /// It begins with `~`.
    #[error("it begins with `~`, which means nothing here: write it relative to its base")]
    Home,
    /// Its `..` lead out of its base.
    #[error("its `..` lead outside its base")]
    LeadsOut,
    /// It has a control character.
    #[error("it has a control character")]
    Control,
}

/// Checks that a path stays beneath its base.
pub(super) fn check(path: &str) -> Result<(), PathProblem> {
    if path.starts_with('/') {
        return Err(PathProblem::Absolute);
    }
    if path.starts_with('~') {
        return Err(PathProblem::Home);
    }
    if path.contains(char::is_control) {
        return Err(PathProblem::Control);
    }
    let mut depth = 0_usize;
    for segment in path.split('/') {
        depth = match segment {
            "" | "." => depth,
            ".." => depth.checked_sub(1).ok_or(PathProblem::LeadsOut)?,
            _ => depth + 1,
        };
    }
    if depth == 0 { Err(PathProblem::Empty) } else { Ok(()) }
}
