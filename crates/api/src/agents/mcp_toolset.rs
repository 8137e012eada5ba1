//! The tools of an MCP server that the model may call.

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::agents::permission_policy::{PermissionPolicy, ToolsetDefault, read_policy};
use crate::common::input::{Input, ObjectInput};

const MAX_TOOL_NAME: usize = 128;
const MAX_CONFIGS: usize = 256;

/// The longest name of a server, in characters. It is a part of the names of its tools, and model services limit those.
const MAX_SERVER_NAME: usize = 40;

/// The tools of an MCP server, and which of them are enabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpToolset {
    /// The tools that differ from the default.
    pub configs: Vec<McpToolConfig>,
    /// The configuration of all other tools.
    pub default_config: ToolsetDefault,
    /// The name of the MCP server.
    pub mcp_server_name: String,
}

/// The configuration of one tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpToolConfig {
    /// Whether the model gets the tool.
    pub enabled: bool,
    /// The server's name for the tool.
    pub name: String,
    /// Whether its calls need a confirmation.
    pub permission_policy: PermissionPolicy,
}

impl McpToolset {
    pub(crate) fn read(mut object: ObjectInput<'_>) -> Result<Self, RequestError> {
        // A server may add tools that the client has never reviewed. So calls ask for confirmation unless the client says otherwise.
        let mut default_config =
            ToolsetDefault { enabled: true, permission_policy: PermissionPolicy::AlwaysAsk };
        if let Some(input) = object.optional("default_config") {
            let mut object = input.object()?;
            if let Some(enabled) = object.optional("enabled") {
                default_config.enabled = enabled.boolean()?;
            }
            if let Some(policy) = read_policy(&mut object)? {
                default_config.permission_policy = policy;
            }
            object.finish()?;
        }
        let mut configs: Vec<McpToolConfig> = Vec::new();
        if let Some(input) = object.optional("configs") {
            for input in input.array("entries", MAX_CONFIGS)? {
                let path = input.path().to_owned();
                let mut object = input.object()?;
                let name = object.required("name")?.text(1..=MAX_TOOL_NAME)?;
                let enabled = object.optional("enabled").map(|enabled| enabled.boolean()).transpose()?;
                let config = McpToolConfig {
                    enabled: enabled.unwrap_or(default_config.enabled),
                    permission_policy: read_policy(&mut object)?.unwrap_or(default_config.permission_policy),
                    name,
                };
                object.finish()?;
                if configs.iter().any(|other| other.name == config.name) {
                    let message = format!("`{}` has an entry already; give one for each tool", config.name);
                    return Err(RequestError::new(path, message));
                }
                configs.push(config);
            }
        }
        let mcp_server_name = read_server_name(&object.required("mcp_server_name")?)?;
        object.finish()?;
        Ok(Self { configs, default_config, mcp_server_name })
    }
}

/// Reads the name of a server.
pub(crate) fn read_server_name(input: &Input<'_>) -> Result<String, RequestError> {
    let name = input.text(1..=MAX_SERVER_NAME)?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    // The names of its tools are `mcp__SERVER__TOOL`.
    if is_name && !name.contains("__") && !name.starts_with('_') && !name.ends_with('_') {
        return Ok(name);
    }
    Err(input.error(format!(
        "`{}` cannot be a server's name here; use letters, digits, `-` and single `_` between them",
        name.escape_debug()
    )))
}
