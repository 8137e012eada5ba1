//! Writes the `container` field of a request, the code execution tool, and the betas that both need (`reference/skills-files-api.md`). The
//! functions return plain JSON, for any client.

use conjure_base::ContainerId;
use conjure_conversation::{HostedSkill, HostedSource};
use serde_json::{Value, json};

use crate::config::ApiProfile;
use crate::hosted::{FileId, SkillId};

/// The default maximum number of skills in a request.
pub const MAX_SKILLS: usize = 8;

/// The name under which the model calls the tool.
pub(crate) const TOOL_NAME: &str = "code_execution";

/// The betas of hosted execution, in the order of the reference.
const BETAS: [&str; 3] = ["code-execution-2025-08-25", "skills-2025-10-02", "files-api-2025-04-14"];

/// Who published a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillSource {
    /// The service: `xlsx`, `pptx`, `docx`, `pdf`.
    Anthropic,
    /// The embedder, who uploaded it.
    Custom,
    /// A publisher that this version does not know. A request cannot use such a skill.
    Other(String),
}

impl SkillSource {
    /// The publisher's name on the wire.
    #[must_use]
    pub fn as_wire(&self) -> &str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Custom => "custom",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for SkillSource {
    fn from(name: &str) -> Self {
        match name {
            "anthropic" => Self::Anthropic,
            "custom" => Self::Custom,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// Writes a skill as requests have it.
fn to_json(skill: &HostedSkill) -> Value {
    let source = match skill.source {
        HostedSource::Anthropic => "anthropic",
        HostedSource::Custom => "custom",
    };
    json!({"type": source, "skill_id": skill.id, "version": skill.version})
}

/// Why a request cannot use these skills.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// More skills than the service accepts.
    #[error("{count} hosted skills are too many for one request, which takes {max}; leave some out")]
    TooManySkills {
        /// The number of skills.
        count: usize,
        /// The allowed number.
        max: usize,
    },
    /// A skill without an id or a version.
    #[error("hosted skill number {place} has no {what}; name it, or take `latest` as its version")]
    Empty {
        /// Its position among the skills, from 1.
        place: usize,
        /// `id` or `version`.
        what: &'static str,
    },
    /// A skill that is named twice.
    #[error("the hosted skill `{id}` is named twice; name it once, in one version")]
    Duplicate {
        /// Its id.
        id: SkillId,
    },
}

/// The `container` field of a request with these skills, at most [`MAX_SKILLS`].
///
/// ```
/// use conjure_anthropic::hosted::{HostedSkill, container_config};
///
/// let container = container_config(&[HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_01").with_version("2")])?;
/// assert_eq!(container["skills"][0]["version"], "latest");
/// assert_eq!(container["skills"][1]["skill_id"], "skill_01");
/// # Ok::<(), conjure_anthropic::hosted::ContainerError>(())
/// ```
///
/// # Errors
/// [`ContainerError`].
pub fn container_config(skills: &[HostedSkill]) -> Result<Value, ContainerError> {
    container_config_with_limit(skills, MAX_SKILLS)
}

/// The `container` field with another maximum number of skills.
///
/// # Errors
/// [`ContainerError`].
pub fn container_config_with_limit(skills: &[HostedSkill], max: usize) -> Result<Value, ContainerError> {
    check(skills, max)?;
    Ok(json!({"skills": skills_json(skills)}))
}

/// Writes these skills as requests have them, unchecked.
pub(crate) fn skills_json(skills: &[HostedSkill]) -> Value {
    skills.iter().map(to_json).collect()
}

/// Checks whether a request can use these skills.
fn check(skills: &[HostedSkill], max: usize) -> Result<(), ContainerError> {
    if skills.len() > max {
        return Err(ContainerError::TooManySkills { count: skills.len(), max });
    }
    for (at, skill) in skills.iter().enumerate() {
        let empty = |what| ContainerError::Empty { place: at + 1, what };
        if skill.id.trim().is_empty() {
            return Err(empty("id"));
        }
        if skill.version.trim().is_empty() {
            return Err(empty("version"));
        }
        let is_same = |other: &HostedSkill| other.source == skill.source && other.id == skill.id;
        if skills[..at].iter().any(is_same) {
            return Err(ContainerError::Duplicate { id: SkillId::new(skill.id.as_str()) });
        }
    }
    Ok(())
}

/// Adds the id of a container, so that the request reuses it with its files.
#[must_use]
pub fn with_container_id(container: Value, id: &ContainerId) -> Value {
    match container {
        Value::Object(mut fields) => {
            fields.insert("id".to_owned(), Value::from(id.as_str()));
            Value::Object(fields)
        }
        _ => json!({"id": id.as_str()}),
    }
}

/// The additional headers of a request under the beta profile. The current profile needs none: see [`ApiProfile::hosted_betas`].
#[must_use]
pub fn beta_headers() -> Vec<(String, String)> {
    vec![("anthropic-beta".to_owned(), BETAS.join(","))]
}

impl ApiProfile {
    /// The betas that a request with hosted skills must name.
    #[must_use]
    pub const fn hosted_betas(self) -> &'static [&'static str] {
        match self {
            Self::Beta => &BETAS,
            Self::Current => &[],
        }
    }
}

/// The tool that a request with hosted skills must contain: the shell and the editor. For another version, set its `type`.
#[must_use]
pub fn code_execution_tool() -> Value {
    json!({"type": "code_execution_20250825", "name": TOOL_NAME})
}

/// The content block that puts an uploaded file into the container.
#[must_use]
pub fn container_upload(file: &FileId) -> Value {
    json!({"type": "container_upload", "file_id": file.as_str()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_names_its_skills_and_then_its_id() {
        let skills = [
            HostedSkill::anthropic("xlsx"),
            HostedSkill::anthropic("pptx"),
            HostedSkill::custom("skill_01AbCdEfGhIjKlMnOpQrStUv").with_version("1759178010641129"),
        ];
        let container = container_config(&skills).unwrap();
        let expected = json!([
            {"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
            {"type": "anthropic", "skill_id": "pptx", "version": "latest"},
            {"type": "custom", "skill_id": "skill_01AbCdEfGhIjKlMnOpQrStUv", "version": "1759178010641129"},
        ]);
        assert_eq!(container, json!({"skills": expected}));
        let again = with_container_id(container, &ContainerId::new("container_1"));
        assert_eq!(again, json!({"id": "container_1", "skills": expected}));
        assert_eq!(with_container_id(Value::Null, &ContainerId::new("c")), json!({"id": "c"}));
        assert_eq!(container_config(&[]).unwrap(), json!({"skills": []}));
    }

    #[test]
    fn invalid_skill_selections_are_rejected() {
        let many: Vec<HostedSkill> = (0..9).map(|n| HostedSkill::custom(format!("skill_{n}"))).collect();
        let error = container_config(&many).unwrap_err();
        assert_eq!(error, ContainerError::TooManySkills { count: 9, max: 8 });
        assert!(container_config(&many[..8]).is_ok() && container_config_with_limit(&many, 9).is_ok());
        let error = container_config_with_limit(&many[..3], 2).unwrap_err().to_string();
        assert!(error.starts_with("3 hosted skills") && error.contains("takes 2"), "{error}");
        let named = [HostedSkill::anthropic("xlsx"), HostedSkill::custom(" ")];
        assert_eq!(container_config(&named), Err(ContainerError::Empty { place: 2, what: "id" }));
        let versioned = [HostedSkill::anthropic("xlsx").with_version("")];
        assert_eq!(container_config(&versioned), Err(ContainerError::Empty { place: 1, what: "version" }));
        let duplicate = [HostedSkill::anthropic("xlsx"), HostedSkill::anthropic("xlsx").with_version("1")];
        assert_eq!(container_config(&duplicate), Err(ContainerError::Duplicate { id: "xlsx".into() }));
        let of_two = [HostedSkill::anthropic("xlsx"), HostedSkill::custom("xlsx")];
        assert!(container_config(&of_two).is_ok());
    }

    #[test]
    fn headers_tool_and_upload_match_the_reference() {
        let all = "code-execution-2025-08-25,skills-2025-10-02,files-api-2025-04-14";
        assert_eq!(beta_headers(), [("anthropic-beta".to_owned(), all.to_owned())]);
        assert_eq!(ApiProfile::Beta.hosted_betas().join(","), all);
        assert_eq!(ApiProfile::Current.hosted_betas(), [""; 0]);
        let tool = code_execution_tool();
        assert_eq!(tool, json!({"type": "code_execution_20250825", "name": "code_execution"}));
        let block = container_upload(&FileId::new("file_1"));
        assert_eq!(block, json!({"type": "container_upload", "file_id": "file_1"}));
    }
}
