//! The tools of the server: those of the sandbox, tools that read skills for clients without the skills extension, and an agent.

use std::sync::Arc;

use conjure_base::text::strip_deceptive;
use conjure_conversation::{ResultContent, ToolCall, ToolDefinition, ToolResult};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool as WireTool, ToolAnnotations};
use serde_json::{Value, json};

use super::skill_files::SkillFiles;

/// Lists skills.
pub(super) const SKILL_LIST: &str = "skill_list";
/// Reads a file of a skill.
pub(super) const SKILL_READ: &str = "skill_read";
/// Runs a script of a skill in the sandbox.
pub(super) const SKILL_RUN_SCRIPT: &str = "skill_run_script";
/// Answers a prompt in a new conversation.
pub(super) const RUN_AGENT: &str = "run_agent";

/// The names of the sandbox's tools that run a script and that load its skill.
pub(super) const RUN_SCRIPT: &str = "skills_run_script";
pub(super) const LOAD: &str = "skills_load";

/// All tools, in order.
pub(super) fn list(skills: &SkillFiles, sandbox: &[ToolDefinition], has_agent: bool) -> Vec<WireTool> {
    let mut tools = Vec::new();
    if !skills.is_empty() {
        tools.push(wire(
            SKILL_LIST,
            "Lists the skills: instructions, scripts and files for certain jobs. Look here before a job that a skill may be for.",
            json!({"type": "object", "properties": {}}),
            true,
        ));
        tools.push(wire(
            SKILL_READ,
            "Reads a file of a skill. Read SKILL.md, which is the default, before you do what the skill is for.",
            json!({
                "type": "object",
                "properties": {
                    "skill": {"type": "string", "description": "The skill's name"},
                    "path": {"type": "string", "description": "The file, such as references/forms.md; SKILL.md by default"},
                },
                "required": ["skill"],
            }),
            true,
        ));
    }
    for tool in sandbox {
        match tool.name.as_str() {
            RUN_SCRIPT => {
                let text = "Runs a script of a skill in the sandbox. The skill's SKILL.md tells which scripts there are.";
                tools.push(wire(SKILL_RUN_SCRIPT, text, tool.input_schema.clone(), false));
            }
            // These tools are for conversations that Conjure runs itself.
            name if name.starts_with("skills_") => {}
            name => tools.push(wire(name, &tool.description, tool.input_schema.clone(), name == "view")),
        }
    }
    if has_agent {
        tools.push(wire(
            RUN_AGENT,
            "Gives a task to an agent with a model, skills and a sandbox of its own, and returns its answer. It knows nothing of this \
             conversation: the prompt must hold everything.",
            json!({
                "type": "object",
                "properties": {"prompt": {"type": "string", "description": "The whole task"}},
                "required": ["prompt"],
            }),
            false,
        ));
    }
    tools
}

fn wire(name: &str, description: &str, schema: Value, only_reads: bool) -> WireTool {
    let schema: JsonObject = match schema {
        Value::Object(members) => members,
        _ => JsonObject::new(),
    };
    let mut tool = WireTool::new(name.to_owned(), description.to_owned(), Arc::new(schema));
    tool.annotations = Some(ToolAnnotations::new().read_only(only_reads));
    tool
}

/// The list of skills, as text.
pub(super) fn skill_list(skills: &SkillFiles) -> String {
    let lines =
        skills.iter().map(|skill| format!("- {}: {}", skill.name(), strip_deceptive(skill.description())));
    lines.collect::<Vec<_>>().join("\n")
}

/// The sandbox calls for one call of a client. A script's skill is loaded before the script runs.
pub(super) fn sandbox_calls(name: &str, input: &Value, number: u64) -> Vec<ToolCall> {
    let call = |name: &str, input: &Value| ToolCall::new(format!("mcp_{number}_{name}"), name, input);
    if name != SKILL_RUN_SCRIPT {
        return vec![call(name, input)];
    }
    let skill = input.get("skill").or_else(|| input.get("name")).cloned().unwrap_or(Value::Null);
    vec![call(LOAD, &json!({"names": [skill], "mode": "add"})), call(RUN_SCRIPT, input)]
}

/// Converts a result for the client.
pub(super) fn to_wire(result: &ToolResult) -> CallToolResult {
    let content = result.content.iter().map(|part| match part {
        ResultContent::Text { text } => ContentBlock::text(text.clone()),
        ResultContent::Image { media_type, data } => ContentBlock::image(data.clone(), media_type.clone()),
        ResultContent::Document { media_type, data } => {
            let blob = rmcp::model::ResourceContents::blob(data.clone(), "conjure://result")
                .with_mime_type(media_type.clone());
            ContentBlock::resource(blob)
        }
    });
    let content = content.collect();
    if result.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) }
}

/// An error result for the client's model.
pub(super) fn failed(reason: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(reason.into())])
}
