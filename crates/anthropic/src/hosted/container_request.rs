//! [`ContainerRequest`]: the container settings of a model, that is its skills and the code execution tool.

use serde_json::{Map, Value};

use crate::config::ApiProfile;
use crate::hosted::container::{TOOL_NAME, skills_json};
use crate::hosted::{CodeExecution, ContainerError, HostedSkill, MAX_SKILLS, code_execution_tool};
use crate::options::{CONTAINER, ModelOptions};

/// The skills and the code execution tool of a request. See
/// [`Messages::with_container_request`](crate::Messages::with_container_request).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerRequest {
    skills: Vec<HostedSkill>,
    tool: CodeExecution,
}

impl ContainerRequest {
    /// Creates a request for these skills, at most [`MAX_SKILLS`], and the tool in its default version. Without skills it asks for the tool
    /// alone.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn new(skills: impl IntoIterator<Item = HostedSkill>) -> Result<Self, ContainerError> {
        Self::with_limit(skills, MAX_SKILLS)
    }

    /// Like [`ContainerRequest::new`], with another maximum number of skills.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn with_limit(
        skills: impl IntoIterator<Item = HostedSkill>,
        max: usize,
    ) -> Result<Self, ContainerError> {
        let skills: Vec<HostedSkill> = skills.into_iter().collect();
        crate::hosted::container::check(&skills, max)?;
        Ok(Self { skills, tool: CodeExecution::default() })
    }

    /// Creates a request without checking the skills; the service may refuse them.
    pub(crate) fn unchecked(skills: &[HostedSkill]) -> Self {
        Self { skills: skills.to_vec(), tool: CodeExecution::default() }
    }

    /// Sets the version of the tool.
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

    /// Adds skills, tool and betas to a model's options. Existing values stay: a container id, a tool of the same name, betas.
    pub(crate) fn applied_to(&self, options: ModelOptions, profile: ApiProfile) -> ModelOptions {
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

/// Adds the skills to the embedder's own `container`.
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
        let hosted =
            ContainerRequest::new([HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1")]).unwrap();
        let skills = json!([
            {"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
            {"type": "custom", "skill_id": "skill_1", "version": "latest"},
        ]);
        let beta_options = hosted.applied_to(ModelOptions::new("m").with_beta("mine"), ApiProfile::Beta);
        assert_eq!(
            beta_options.betas(),
            ["mine", "code-execution-2025-08-25", "skills-2025-10-02", "files-api-2025-04-14"]
        );
        assert_eq!(beta_options.extra()["container"], json!({"skills": skills}));
        let tool = json!({"type": "code_execution_20250825", "name": "code_execution"});
        assert_eq!(beta_options.server_tools(), std::slice::from_ref(&tool));
        let current = hosted.clone().with_tool(CodeExecution::V20260521);
        let current = current.applied_to(ModelOptions::new("m"), ApiProfile::Current);
        assert_eq!(current.betas(), [""; 0]);
        assert_eq!(current.server_tools()[0]["type"], "code_execution_20260521");
        // Twice is once.
        assert_eq!(hosted.applied_to(beta_options.clone(), ApiProfile::Beta), beta_options);
    }

    #[test]
    fn what_the_host_wants_itself_stays() {
        let hosted = ContainerRequest::new([HostedSkill::anthropic("xlsx")]).unwrap();
        let skills = json!([{"type": "anthropic", "skill_id": "xlsx", "version": "latest"}]);
        for (named, expected) in [
            (json!("c_1"), json!({"id": "c_1", "skills": skills})),
            (json!({"id": "c_1"}), json!({"id": "c_1", "skills": skills})),
            (json!({"skills": []}), json!({"skills": skills})),
            (json!(null), json!({"skills": skills})),
        ] {
            let options = ModelOptions::new("m").with_field("container", named).unwrap();
            assert_eq!(hosted.applied_to(options, ApiProfile::Beta).extra()["container"], expected);
        }
        let user_settings =
            json!({"type": "code_execution_20260120", "name": "code_execution", "strict": true});
        let options = hosted
            .applied_to(ModelOptions::new("m").with_server_tool(user_settings.clone()), ApiProfile::Beta);
        assert_eq!(options.server_tools(), [user_settings]);
        // The tool alone.
        let without_skills = ContainerRequest::default().applied_to(ModelOptions::new("m"), ApiProfile::Beta);
        assert_eq!((without_skills.extra().get("container"), without_skills.server_tools().len()), (None, 1));
        assert!(ContainerRequest::new((0..9).map(|n| HostedSkill::custom(n.to_string()))).is_err());
        assert!(ContainerRequest::with_limit((0..9).map(|n| HostedSkill::custom(n.to_string())), 9).is_ok());
    }
}
