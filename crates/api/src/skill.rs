//! Skills that clients upload, with their versions.

use serde::{Deserialize, Serialize};

use crate::{SkillId, SkillVersionId, Time};

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "skill")]
pub struct Skill {
    /// The id of the skill.
    pub id: SkillId,
    /// When it was created.
    pub created_at: Time,
    /// A display name.
    pub display_name: String,
    /// Its newest version.
    pub latest_version_id: SkillVersionId,
    /// The source of the skill.
    pub source: SkillSource,
    /// When its newest version was created.
    pub updated_at: Time,
}

/// The source of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SkillSource {
    /// A client uploaded it.
    Custom,
}

/// One version of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "skill_version")]
pub struct SkillVersion {
    /// The id of the version.
    pub id: SkillVersionId,
    /// When it was uploaded.
    pub created_at: Time,
    /// When the model should use it, from its `SKILL.md`.
    pub description: String,
    /// The name of the skill and of its directory, the same in all versions.
    pub name: String,
    /// The skill.
    pub skill_id: SkillId,
}
