//! Grants: permissions for more than one call.

use serde::{Deserialize, Serialize};

use crate::session::pinned_skill::PinnedSkill;

/// A permission for more than one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Which calls, in the grammar of a skill's `allowed-tools`: `view`, or `bash_tool(git:*)`.
    pub rule: String,
    /// How long it holds.
    pub scope: GrantScope,
}

/// For how long a grant holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GrantScope {
    /// Until the session is deleted.
    Session,
    /// While this skill is active, with this content.
    Skill(PinnedSkill),
}
