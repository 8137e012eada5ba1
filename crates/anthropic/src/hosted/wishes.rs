//! What a session wants of the service's containers: a value that a model of ours is given, once.

use serde_json::{Map, Value};

use crate::config::Profile;
use crate::hosted::container::{TOOL_NAME, skills_json};
use crate::hosted::{CodeExecution, ContainerError, HostedSkill, MOST_SKILLS, code_execution_tool};
use crate::options::{CONTAINER, Options};

/// The skills and the tool of hosted execution. See [`Messages::with_hosted`](crate::Messages::with_hosted).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosted {
    skills: Vec<HostedSkill>,
    tool: CodeExecution,
}

impl Hosted {
    /// These skills, at most [`MOST_SKILLS`], and the tool in its default version. Without any skill it is the tool alone.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn new(skills: impl IntoIterator<Item = HostedSkill>) -> Result<Self, ContainerError> {
        Self::with_limit(skills, MOST_SKILLS)
    }

    /// The same with another limit on the number of skills.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn with_limit(
        skills: impl IntoIterator<Item = HostedSkill>,
        most: usize,
    ) -> Result<Self, ContainerError> {
        let skills: Vec<HostedSkill> = skills.into_iter().collect();
        crate::hosted::container::check(&skills, most)?;
        Ok(Self { skills, tool: CodeExecution::default() })
    }

    /// These skills, which the service may refuse.
    pub(crate) fn unchecked(skills: &[HostedSkill]) -> Self {
        Self { skills: skills.to_vec(), tool: CodeExecution::default() }
    }

    /// With the tool in this version.
    #[must_use]
    pub fn with_tool(mut self, tool: CodeExecution) -> Self {
        self.tool = tool;
        self
    }

    /// The skills, in their order.
    #[must_use]
    pub fn skills(&self) -> &[HostedSkill] {
        &self.skills
    }

    /// The version of the tool.
    #[must_use]
    pub const fn tool(&self) -> &CodeExecution {
        &self.tool
    }

    /// The options of a model whose requests ask for all this. What the options hold already stays: another container's
    /// id, a tool of the same name, betas.
    pub(crate) fn applied_to(&self, options: Options, profile: Profile) -> Options {
        let mut options =
            profile.hosted_betas().iter().fold(options, |options, beta| options.with_beta(*beta));
        let is_there = options.server_tools().iter().any(|tool| tool["name"] == TOOL_NAME);
        if !is_there {
            options = options.with_server_tool(code_execution_tool(&self.tool));
        }
        if !self.skills.is_empty() {
            let container = container(options.extra().get(CONTAINER), skills_json(&self.skills));
            options.set_field(CONTAINER, container);
        }
        options
    }
}

/// The host's own wishes with these skills.
fn container(named: Option<&Value>, skills: Value) -> Value {
    let mut fields = match named {
        Some(Value::Object(fields)) => fields.clone(),
        Some(Value::String(id)) => Map::from_iter([("id".to_owned(), Value::from(id.as_str()))]),
        _ => Map::new(),
    };
    fields.insert("skills".to_owned(), skills);
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_ask_for_skills_tool_and_betas_by_profile() {
        let hosted = Hosted::new([HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1")]).unwrap();
        let skills = json!([
            {"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
            {"type": "custom", "skill_id": "skill_1", "version": "latest"},
        ]);
        let of_beta = hosted.applied_to(Options::new("m").with_beta("mine"), Profile::Beta);
        assert_eq!(
            of_beta.betas(),
            ["mine", "code-execution-2025-08-25", "skills-2025-10-02", "files-api-2025-04-14"]
        );
        assert_eq!(of_beta.extra()["container"], json!({"skills": skills}));
        let tool = json!({"type": "code_execution_20250825", "name": "code_execution"});
        assert_eq!(of_beta.server_tools(), std::slice::from_ref(&tool));
        let current = hosted.clone().with_tool(CodeExecution::V20260521);
        let current = current.applied_to(Options::new("m"), Profile::Current);
        assert_eq!(current.betas(), [""; 0]);
        assert_eq!(current.server_tools()[0]["type"], "code_execution_20260521");
        // Twice is once.
        assert_eq!(hosted.applied_to(of_beta.clone(), Profile::Beta), of_beta);
    }

    #[test]
    fn what_the_host_wants_itself_stays() {
        let hosted = Hosted::new([HostedSkill::anthropic("xlsx")]).unwrap();
        let skills = json!([{"type": "anthropic", "skill_id": "xlsx", "version": "latest"}]);
        for (named, expected) in [
            (json!("c_1"), json!({"id": "c_1", "skills": skills})),
            (json!({"id": "c_1"}), json!({"id": "c_1", "skills": skills})),
            (json!({"skills": []}), json!({"skills": skills})),
            (json!(null), json!({"skills": skills})),
        ] {
            let options = Options::new("m").with_field("container", named).unwrap();
            assert_eq!(hosted.applied_to(options, Profile::Beta).extra()["container"], expected);
        }
        let own = json!({"type": "code_execution_20260120", "name": "code_execution", "strict": true});
        let options = hosted.applied_to(Options::new("m").with_server_tool(own.clone()), Profile::Beta);
        assert_eq!(options.server_tools(), [own]);
        // The tool alone.
        let alone = Hosted::default().applied_to(Options::new("m"), Profile::Beta);
        assert_eq!((alone.extra().get("container"), alone.server_tools().len()), (None, 1));
        assert!(Hosted::new((0..9).map(|n| HostedSkill::custom(n.to_string()))).is_err());
        assert!(Hosted::with_limit((0..9).map(|n| HostedSkill::custom(n.to_string())), 9).is_ok());
    }
}
