//! The files that a session produced: in its workspace, or at the vendor that ran its hosted skills.
//!
//! Events name the files; their bytes stay where they were produced.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use conjure_base::{Digest, TurnId};
use serde::{Deserialize, Serialize};

/// The maximum number of files that a session's state lists. When there are more, those of the oldest turns are dropped.
pub const FILE_LIMIT: usize = 10_000;

/// A file that a turn of a session created or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFile {
    /// Where it is stored.
    pub source: FileSource,
    /// Its id there: the path relative to the workspace, or the vendor's file id.
    pub id: String,
    /// Its display name: the path relative to the workspace, or the vendor's file name.
    pub name: String,
    /// Its size in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Its media type.
    pub content_type: String,
    /// The digest of its content at the turn's end, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// What the turn did to it.
    pub change: FileChange,
    /// The turn.
    pub turn: TurnId,
}

/// Drops files until [`FILE_LIMIT`] remain: first those of the oldest turns, and within a turn the deepest paths. A report usually has a
/// shorter path than the files of a package manager.
pub(crate) fn drop_oldest_files(known: &mut BTreeMap<(FileSource, String), SessionFile>) {
    let Some(last) = known.len().checked_sub(FILE_LIMIT + 1) else { return };
    let depth = |id: &str| id.bytes().filter(|byte| *byte == b'/').count();
    let mut ranked: Vec<_> =
        known.iter().map(|(key, file)| ((file.turn, Reverse(depth(&key.1)), Reverse(key)), key)).collect();
    let (dropped, one, _) = ranked.select_nth_unstable_by(last, |(one, _), (other, _)| one.cmp(other));
    let dropped: Vec<_> = dropped.iter().chain([&*one]).map(|(_, key)| (*key).clone()).collect();
    for key in dropped {
        known.remove(&key);
    }
}

/// Where a file of a session is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileSource {
    /// In its workspace.
    Workspace,
    /// At the vendor that ran a hosted skill.
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
    /// The turn created it.
    Created,
    /// It existed before.
    Changed,
}

/// Whether a list of files is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completeness {
    /// It has all files.
    #[default]
    #[serde(rename = "whole")]
    Complete,
    /// The search stopped at a limit, so there may be more files.
    #[serde(rename = "cut")]
    Truncated,
}
