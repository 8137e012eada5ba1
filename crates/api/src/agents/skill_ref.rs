//! The references of an agent to its skills.

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::common::input::Input;

/// The maximum number of skills of an agent.
const MAX_SKILLS: usize = 20;
const MAX_ID: usize = 256;

/// A skill of an agent, with its version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSkill {
    /// The id of the skill.
    pub skill_id: String,
    /// The source of the skill.
    pub r#type: SkillKind,
    /// The version of the skill.
    pub version: String,
}

/// A skill as a client refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRef {
    /// The source of the skill.
    pub kind: SkillKind,
    /// The id of the skill.
    pub skill_id: String,
    /// The version; `None` for the latest.
    pub version: Option<String>,
}

/// The source of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillKind {
    /// A skill of the server's configuration, under the vendor's name for it.
    Anthropic,
    /// A skill that a client uploaded.
    Custom,
}

pub(crate) fn read_skills(input: Input<'_>) -> Result<Vec<SkillRef>, RequestError> {
    let mut skills: Vec<SkillRef> = Vec::new();
    for input in input.array("skills", MAX_SKILLS)? {
        let path = input.path().to_owned();
        let mut object = input.object()?;
        let skill = SkillRef {
            kind: object.kind(&[("anthropic", SkillKind::Anthropic), ("custom", SkillKind::Custom)])?,
            skill_id: object.required("skill_id")?.text(1..=MAX_ID)?,
            version: (object.optional("version").map(|version| version.text(1..=MAX_ID)).transpose()?)
                .filter(|version| version != "latest"),
        };
        object.finish()?;
        if skills.iter().any(|other| (other.kind, &other.skill_id) == (skill.kind, &skill.skill_id)) {
            let message = format!("the skill `{}` is listed twice; name each skill once", skill.skill_id);
            return Err(RequestError::new(path, message));
        }
        skills.push(skill);
    }
    Ok(skills)
}
