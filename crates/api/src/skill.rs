//! Skills that clients upload, with their versions.

use serde::{Deserialize, Serialize};

use crate::{SkillId, SkillVersionId, Time};

/// A skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "skill")]
pub struct Skill {
    /// Which skill.
    pub id: SkillId,
    /// When it was made.
    pub created_at: Time,
    /// A name for people.
    pub display_name: String,
    /// Its newest version.
    pub latest_version_id: SkillVersionId,
    /// Where it comes from.
    pub source: SkillSource,
    /// When its newest version was made.
    pub updated_at: Time,
}

/// Where a skill comes from.
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
    /// Which version.
    pub id: SkillVersionId,
    /// When it was uploaded.
    pub created_at: Time,
    /// When the model should use it, from its `SKILL.md`.
    pub description: String,
    /// The name of the skill and of its folder, the same in all versions.
    pub name: String,
    /// The skill.
    pub skill_id: SkillId,
}
