//! Adds the skills that a request names to a model's options.

use conjure_conversation::HostedSkill;
use serde_json::{Map, Value};

use crate::config::ApiProfile;
use crate::hosted::code_execution_tool;
use crate::hosted::container::{TOOL_NAME, skills_json};
use crate::options::{CONTAINER, ModelOptions};

/// Adds these skills, the code execution tool and the betas to a model's options. Existing values stay: a container id, a tool of the same
/// name, betas. The skills are not checked; the service may refuse them.
pub(crate) fn with_hosted_skills(
    mut options: ModelOptions,
    skills: &[HostedSkill],
    profile: ApiProfile,
) -> ModelOptions {
    for beta in profile.hosted_betas() {
        options = options.with_beta(*beta);
    }
    let has_tool = options.server_tools().iter().any(|tool| tool["name"] == TOOL_NAME);
    if !has_tool {
        options = options.with_server_tool(code_execution_tool());
    }
    let container = container(options.extra().get(CONTAINER), skills_json(skills));
    options.set_field(CONTAINER, container);
    options
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
        let hosted = [HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1")];
        let skills = json!([
            {"type": "anthropic", "skill_id": "xlsx", "version": "latest"},
            {"type": "custom", "skill_id": "skill_1", "version": "latest"},
        ]);
        let own = ModelOptions::new("m").with_beta("mine");
        let beta_options = with_hosted_skills(own, &hosted, ApiProfile::Beta);
        assert_eq!(
            beta_options.betas(),
            ["mine", "code-execution-2025-08-25", "skills-2025-10-02", "files-api-2025-04-14"]
        );
        assert_eq!(beta_options.extra()["container"], json!({"skills": skills}));
        let tool = json!({"type": "code_execution_20250825", "name": "code_execution"});
        assert_eq!(beta_options.server_tools(), std::slice::from_ref(&tool));
        let current = with_hosted_skills(ModelOptions::new("m"), &hosted, ApiProfile::Current);
        assert_eq!(current.betas(), [""; 0]);
        // Twice is once.
        assert_eq!(with_hosted_skills(beta_options.clone(), &hosted, ApiProfile::Beta), beta_options);
    }

    #[test]
    fn what_the_host_wants_itself_stays() {
        let hosted = [HostedSkill::anthropic("xlsx")];
        let skills = json!([{"type": "anthropic", "skill_id": "xlsx", "version": "latest"}]);
        for (named, expected) in [
            (json!("c_1"), json!({"id": "c_1", "skills": skills})),
            (json!({"id": "c_1"}), json!({"id": "c_1", "skills": skills})),
            (json!({"skills": []}), json!({"skills": skills})),
            (json!(null), json!({"skills": skills})),
        ] {
            let options = ModelOptions::new("m").with_field("container", named).unwrap();
            assert_eq!(with_hosted_skills(options, &hosted, ApiProfile::Beta).extra()["container"], expected);
        }
        let own = json!({"type": "code_execution_20260120", "name": "code_execution", "strict": true});
        let options = ModelOptions::new("m").with_server_tool(own.clone());
        assert_eq!(with_hosted_skills(options, &hosted, ApiProfile::Beta).server_tools(), [own]);
    }
}
