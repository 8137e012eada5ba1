//! The definitions of the four built-in tools, with the schemas of specification 8, and the parser of tool calls.

use conjure_conversation::{Block, BlockError, ToolCall, ToolDefinition};
use serde_json::{Value, json};

/// The built-in tools, in the order of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuiltinTool {
    /// `view`: shows files, images and directories.
    View,
    /// `bash_tool`: runs a command.
    Bash,
    /// `create_file`: writes a file.
    CreateFile,
    /// `str_replace`: edits a file.
    StrReplace,
}

impl BuiltinTool {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::View, Self::Bash, Self::CreateFile, Self::StrReplace];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Bash => "bash_tool",
            Self::CreateFile => "create_file",
            Self::StrReplace => "str_replace",
        }
    }

    /// The tool with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The definition that the model gets.
    #[must_use]
    pub fn definition(self) -> ToolDefinition {
        match self {
            Self::View => view_tool(),
            Self::Bash => bash_tool(),
            Self::CreateFile => create_file_tool(),
            Self::StrReplace => str_replace_tool(),
        }
    }
}

/// Which built-in tools the model gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOptions {
    /// The built-in tools. The definitions are in the order of [`BuiltinTool::ALL`], each once.
    pub builtin: Vec<BuiltinTool>,
}

/// All four built-in tools.
impl Default for ToolOptions {
    fn default() -> Self {
        Self { builtin: BuiltinTool::ALL.to_vec() }
    }
}

/// The definitions of the chosen tools, in a deterministic order.
#[must_use]
pub fn tool_definitions(options: &ToolOptions) -> Vec<ToolDefinition> {
    BuiltinTool::ALL
        .into_iter()
        .filter(|tool| options.builtin.contains(tool))
        .map(BuiltinTool::definition)
        .collect()
}

/// The `tools` array of a request, for an embedder with its own client (specification 10.1).
#[must_use]
pub fn build_tools_param(tools: &[ToolDefinition]) -> Value {
    tools
        .iter()
        .map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
        })
        .collect()
}

/// The definition of `view` (specification 8.1).
#[must_use]
pub fn view_tool() -> ToolDefinition {
    define(
        BuiltinTool::View,
        "View file contents or directory listings. Supports text files, images (base64), and directories (up to \
         2 levels deep).",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Absolute path to file or directory"},
                "view_range": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 2,
                    "maxItems": 2,
                    "description":
                        "Optional [start_line, end_line] for text files. Use -1 for end_line to read to end.",
                },
            },
            "required": ["path"],
        }),
    )
}

/// The definition of `bash_tool` (specification 8.2).
#[must_use]
pub fn bash_tool() -> ToolDefinition {
    define(
        BuiltinTool::Bash,
        "Execute a bash command in the container environment.",
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The bash command to execute"},
                "description": {"type": "string", "description": "Why this command is being run"},
            },
            "required": ["command", "description"],
        }),
    )
}

/// The definition of `create_file` (specification 8.3).
#[must_use]
pub fn create_file_tool() -> ToolDefinition {
    define(
        BuiltinTool::CreateFile,
        "Create a new file with the specified content.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Path where the file should be created"},
                "file_text": {"type": "string", "description": "Content to write to the file"},
                "description": {"type": "string", "description": "Why this file is being created"},
            },
            "required": ["path", "file_text", "description"],
        }),
    )
}

/// The definition of `str_replace` (specification 8.4).
#[must_use]
pub fn str_replace_tool() -> ToolDefinition {
    define(
        BuiltinTool::StrReplace,
        "Replace a unique string in a file with another string.",
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Path to the file to edit"},
                "old_str": {
                    "type": "string",
                    "description": "String to replace (must be unique in file)",
                },
                "new_str": {"type": "string", "description": "Replacement string"},
                "description": {"type": "string", "description": "Why this edit is being made"},
            },
            "required": ["path", "old_str", "description"],
        }),
    )
}

fn define(tool: BuiltinTool, description: &str, input_schema: Value) -> ToolDefinition {
    ToolDefinition { name: tool.name().to_owned(), description: description.to_owned(), input_schema }
}

/// The error of parsing a block that is not a tool call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseToolUseError {
    /// The JSON is not a content block.
    #[error(transparent)]
    NotABlock(#[from] BlockError),
    /// The block's type is not `tool_use`.
    #[error("not a tool call: the block's type is not `tool_use`")]
    NotAToolUse,
}

/// Parses the tool call of a `tool_use` block. Its input is kept byte for byte (specification 5.5).
///
/// # Errors
/// When `json` is not a content block, or has another type.
pub fn parse_tool_use(json: &str) -> Result<ToolCall, ParseToolUseError> {
    Block::from_json(json)?.tool_call().cloned().ok_or(ParseToolUseError::NotAToolUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_have_the_same_bytes_in_every_request() {
        let tools = tool_definitions(&ToolOptions::default());
        insta::assert_snapshot!(serde_json::to_string_pretty(&tools).unwrap());
    }

    #[test]
    fn the_tools_param_holds_each_tool_once_in_order() {
        let options = ToolOptions {
            builtin: vec![BuiltinTool::StrReplace, BuiltinTool::View, BuiltinTool::StrReplace],
        };
        let param = build_tools_param(&tool_definitions(&options));
        let names: Vec<&str> =
            param.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["view", "str_replace"]);
        assert_eq!(param[0]["input_schema"]["required"], json!(["path"]));
    }

    #[test]
    fn tools_are_found_by_name() {
        for tool in BuiltinTool::ALL {
            assert_eq!(BuiltinTool::from_name(tool.name()), Some(tool));
            assert_eq!(tool.definition().name, tool.name());
        }
        assert_eq!(BuiltinTool::from_name("bash"), None);
    }

    #[test]
    fn a_call_is_read_with_its_input_as_written() {
        let call = parse_tool_use(
            r#"{"type":"tool_use","id":"toolu_1","name":"view","input":{"path":"/a", "n":1.0}}"#,
        )
        .unwrap();
        assert_eq!((call.id.as_str(), call.name.as_str()), ("toolu_1", "view"));
        assert_eq!(call.input.get(), r#"{"path":"/a", "n":1.0}"#);
    }

    #[test]
    fn other_blocks_are_refused() {
        assert_eq!(parse_tool_use(r#"{"type":"text","text":"a"}"#), Err(ParseToolUseError::NotAToolUse));
        for json in ["", "1", "{}", r#"{"type":"tool_use","id":"a","name":"view"}"#] {
            assert!(matches!(parse_tool_use(json), Err(ParseToolUseError::NotABlock(_))), "{json}");
        }
    }
}
