//! The definitions of the tools of `agent_toolset_20260401`. The names and the fields are those of the published API.

use conjure_conversation::{AgentToolset, ToolDefinition, ToolsetTool};
use serde_json::{Value, json};

/// The definitions of the toolset's tools, in a deterministic order.
#[must_use]
pub fn toolset_definitions(toolset: &AgentToolset) -> Vec<ToolDefinition> {
    toolset.tools().map(toolset_definition).collect()
}

/// The definition that the model gets of a tool.
#[must_use]
pub fn toolset_definition(tool: ToolsetTool) -> ToolDefinition {
    let (description, properties, required) = parts(tool);
    ToolDefinition {
        name: tool.name().to_owned(),
        description: description.to_owned(),
        input_schema: json!({"type": "object", "properties": properties, "required": required}),
    }
}

fn parts(tool: ToolsetTool) -> (&'static str, Value, &'static [&'static str]) {
    match tool {
        ToolsetTool::Bash => (
            "Run commands in a bash shell. There is one shell: its directory, variables, functions and options stay \
             from one call to the next, and background jobs run on. Standard input is empty. If a command does not end \
             in time, the shell is replaced by a new one in the same directory.",
            json!({
                "command": {"type": "string", "description": "The commands to run"},
                "restart": {
                    "type": "boolean",
                    "description": "Replace the shell by a new one first, which ends everything that runs in it",
                },
                "timeout_ms": {
                    "type": "integer",
                    "description": "How long the commands may take, in milliseconds, at most 600000",
                },
            }),
            &[],
        ),
        ToolsetTool::Read => (
            "Read a file. Text is shown with line numbers. Images are shown as images, notebooks as text.",
            json!({
                "file_path": {"type": "string", "description": "The path of the file"},
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description": "[first_line, last_line] of a text, counted from 1. Use -1 for the last line.",
                },
            }),
            &["file_path"],
        ),
        ToolsetTool::Write => (
            "Write a file. An existing file is replaced. Missing directories are created.",
            json!({
                "file_path": {"type": "string", "description": "The path of the file"},
                "content": {"type": "string", "description": "The whole content of the file"},
            }),
            &["file_path", "content"],
        ),
        ToolsetTool::Edit => (
            "Replace text in a file. The old text must occur exactly once, unless all occurrences are replaced.",
            json!({
                "file_path": {"type": "string", "description": "The path of the file"},
                "old_string": {"type": "string", "description": "The text to replace, exactly as it is in the file"},
                "new_string": {"type": "string", "description": "The text to put in its place"},
                "replace_all": {"type": "boolean", "description": "Replace every occurrence"},
            }),
            &["file_path", "old_string", "new_string"],
        ),
        ToolsetTool::Glob => (
            "Find files whose path matches a pattern, such as `**/*.py` or `src/*.{c,h}`. The files that were changed \
             last come first.",
            json!({
                "pattern": {"type": "string", "description": "The pattern, relative to the directory"},
                "path": {"type": "string", "description": "The directory to search. Default: the working directory."},
            }),
            &["pattern"],
        ),
        ToolsetTool::Grep => (
            "Find lines that match a regular expression in text files. Each line is shown as `path:line:text`.",
            json!({
                "pattern": {"type": "string", "description": "The regular expression, without delimiters"},
                "path": {
                    "type": "string",
                    "description": "The file or directory to search. Default: the working directory.",
                },
            }),
            &["pattern"],
        ),
        ToolsetTool::WebFetch => (
            "Get the content of a URL. A page is shown as text.",
            json!({"url": {"type": "string", "description": "The URL, with its scheme"}}),
            &["url"],
        ),
    }
}

#[cfg(test)]
mod tests {
    use conjure_conversation::PermissionPolicy;

    use super::*;

    #[test]
    fn the_definitions_have_the_same_bytes_in_every_request() {
        let tools = toolset_definitions(&AgentToolset::all());
        insta::assert_snapshot!(serde_json::to_string_pretty(&tools).unwrap());
    }

    #[test]
    fn only_the_chosen_tools_are_offered() {
        let toolset = AgentToolset::none().with(ToolsetTool::Grep, PermissionPolicy::AlwaysAsk);
        let names: Vec<String> = toolset_definitions(&toolset).into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, ["grep"]);
    }
}
