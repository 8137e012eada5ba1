//! How an agent names its skills.

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::common::input::Input;

/// The most skills that an agent may have.
const MAX_SKILLS: usize = 20;
const MAX_ID: usize = 256;

/// A skill of an agent, with its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSkill {
    /// Which skill.
    pub skill_id: String,
    /// Where the skill comes from.
    pub r#type: SkillKind,
    /// Which version of it.
    pub version: String,
}

/// A skill as a client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRef {
    /// Where the skill comes from.
    pub kind: SkillKind,
    /// Which skill.
    pub skill_id: String,
    /// Which version; nothing means the latest.
    pub version: Option<String>,
}

/// Where a skill comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillKind {
    /// A skill that the server's configuration has under the vendor's name for it.
    Anthropic,
    /// A skill that somebody uploaded.
    Custom,
}

pub(crate) fn read_skills(input: Input<'_>) -> Result<Vec<SkillRef>, RequestError> {
    let mut skills: Vec<SkillRef> = Vec::new();
    for input in input.array("skills", MAX_SKILLS)? {
        let place = input.place().to_owned();
        let mut object = input.object()?;
        let skill = SkillRef {
            kind: object.kind(&[("anthropic", SkillKind::Anthropic), ("custom", SkillKind::Custom)])?,
            skill_id: object.required("skill_id")?.text(1..=MAX_ID)?,
            version: (object.optional("version").map(|version| version.text(1..=MAX_ID)).transpose()?)
                .filter(|version| version != "latest"),
        };
        object.finish()?;
        if skills.iter().any(|other| (other.kind, &other.skill_id) == (skill.kind, &skill.skill_id)) {
            let message = format!("the skill `{}` is there already; name each skill once", skill.skill_id);
            return Err(RequestError::new(place, message));
        }
        skills.push(skill);
    }
    Ok(skills)
}
