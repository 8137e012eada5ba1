//! The files that a session produced: in its workspace, or with the vendor that ran its skills.
//!
//! The record names them; their bytes lie where they were produced.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use conjure_base::{Digest, TurnId};
use serde::{Deserialize, Serialize};

/// The most files of a session that are known at a time. When there are more, those of the oldest turns are forgotten.
pub const FILE_LIMIT: usize = 10_000;

/// A file that a turn of a session created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFile {
    /// Where it lies.
    pub source: FileSource,
    /// What it is called there: the path relative to the workspace, or the vendor's id of the file.
    pub id: String,
    /// Its name for people: the path relative to the workspace, or the name that the vendor says.
    pub name: String,
    /// Bytes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its media type.
    pub content_type: String,
    /// The digest of its content as it was at the turn's end, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What the turn did to it.
    pub change: FileChange,
    /// The turn.
    pub turn: TurnId,
}

/// Leaves [`FILE_LIMIT`] files. Those of the oldest turns go first, and of a turn's those that lie deepest: a report lies higher than what
/// a package manager unpacks.
pub(crate) fn forget_files(known: &mut BTreeMap<(FileSource, String), SessionFile>) {
    let Some(last) = known.len().checked_sub(FILE_LIMIT + 1) else { return };
    let depth = |id: &str| id.bytes().filter(|byte| *byte == b'/').count();
    let mut ranked: Vec<_> =
        known.iter().map(|(key, file)| ((file.turn, Reverse(depth(&key.1)), Reverse(key)), key)).collect();
    let (gone, one, _) = ranked.select_nth_unstable_by(last, |(one, _), (other, _)| one.cmp(other));
    let gone: Vec<_> = gone.iter().chain([&*one]).map(|(_, key)| (*key).clone()).collect();
    for key in gone {
        known.remove(&key);
    }
}

/// Where a file of a session lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileSource {
    /// In its workspace.
    Workspace,
    /// With the vendor that ran a hosted skill.
    Hosted,
}

impl fmt::Display for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Workspace => "workspace",
            Self::Hosted => "hosted",
        })
    }
}

/// What a turn did to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It made it.
    Created,
    /// It was there before.
    Changed,
}

/// Whether a list of files has all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// It has.
    #[default]
    Whole,
    /// There is more than was looked at.
    Cut,
}
