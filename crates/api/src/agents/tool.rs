//! The tools of an agent: the toolset of the sandbox, the tools of MCP servers, and tools that the client runs.

use std::collections::BTreeSet;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::RequestError;
use crate::agents::mcp_toolset::McpToolset;
use crate::agents::permission_policy::{PermissionPolicy, ToolsetDefault, read_policy};
use crate::common::input::{Input, ObjectInput};

/// The maximum number of tools of an agent, over all its toolsets.
pub(crate) const MAX_TOOLS: usize = 256;

const MAX_TOOL_NAME: usize = 128;

/// The prefix of the names of MCP tools.
const MCP_PREFIX: &str = "mcp__";

/// One element of an agent's `tools`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum Tool {
    /// The tools that run in the session's sandbox.
    #[serde(rename = "agent_toolset_20260401")]
    Toolset(Toolset),
    /// The tools of an MCP server.
    #[serde(rename = "mcp_toolset")]
    Mcp(McpToolset),
    /// A tool that the client runs. Its calls and results are events.
    #[serde(rename = "custom")]
    Custom(CustomTool),
}

impl<'de> Deserialize<'de> for Tool {
    /// Reads the tool from its raw JSON text, so that a schema keeps the exact text of its author.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Tag {
            r#type: String,
        }
        let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
        let tag: Tag = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        match tag.r#type.as_str() {
            "agent_toolset_20260401" => serde_json::from_str(raw.get()).map(Self::Toolset),
            "mcp_toolset" => serde_json::from_str(raw.get()).map(Self::Mcp),
            "custom" => serde_json::from_str(raw.get()).map(Self::Custom),
            other => return Err(D::Error::custom(format!("`{other}` is not a kind of tool"))),
        }
        .map_err(D::Error::custom)
    }
}

/// The tools of the sandbox, and which of them are enabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolset {
    /// The tools that differ from the default.
    pub configs: Vec<ToolConfig>,
    /// The configuration of all other tools.
    pub default_config: ToolsetDefault,
}

/// The configuration of one tool of a toolset. Its JSON has the name as `type` too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "ToolConfigJson", from = "ToolConfigJson")]
pub struct ToolConfig {
    /// Which tool.
    pub name: BuiltinTool,
    /// Whether the model gets the tool.
    pub enabled: bool,
    /// Whether its calls need a confirmation.
    pub permission_policy: PermissionPolicy,
}

/// [`ToolConfig`] in JSON. The field `type`, which tells the variants of a union apart, repeats the name.
#[derive(Serialize, Deserialize)]
struct ToolConfigJson {
    enabled: bool,
    name: BuiltinTool,
    permission_policy: PermissionPolicy,
    r#type: BuiltinTool,
}

impl From<ToolConfig> for ToolConfigJson {
    fn from(config: ToolConfig) -> Self {
        let ToolConfig { name, enabled, permission_policy } = config;
        Self { enabled, name, permission_policy, r#type: name }
    }
}

impl From<ToolConfigJson> for ToolConfig {
    fn from(json: ToolConfigJson) -> Self {
        Self { name: json.name, enabled: json.enabled, permission_policy: json.permission_policy }
    }
}

/// A tool of `agent_toolset_20260401`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum BuiltinTool {
    Bash,
    Edit,
    Read,
    Write,
    Glob,
    Grep,
    WebFetch,
    WebSearch,
}

impl BuiltinTool {
    /// All built-in tools.
    pub const ALL: [Self; 8] = [
        Self::Bash,
        Self::Edit,
        Self::Read,
        Self::Write,
        Self::Glob,
        Self::Grep,
        Self::WebFetch,
        Self::WebSearch,
    ];

    /// The name by which the model calls the tool.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Edit => "edit",
            Self::Read => "read",
            Self::Write => "write",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::WebFetch => "web_fetch",
            Self::WebSearch => "web_search",
        }
    }
}

/// A tool that the client runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CustomTool {
    /// What the tool does, for the model.
    pub description: String,
    /// The JSON Schema of its input, as the client wrote it.
    pub input_schema: Box<RawValue>,
    /// The name by which the model calls it.
    pub name: String,
}

impl PartialEq for CustomTool {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.description, self.input_schema.get())
            == (&other.name, &other.description, other.input_schema.get())
    }
}

impl Toolset {
    /// The configuration of `tool`.
    #[must_use]
    pub fn config(&self, tool: BuiltinTool) -> ToolConfig {
        let ToolsetDefault { enabled, permission_policy } = self.default_config;
        self.configs.iter().find(|config| config.name == tool).copied().unwrap_or(ToolConfig {
            name: tool,
            enabled,
            permission_policy,
        })
    }

    /// Disables `tool`, because this server cannot run it. A toolset that enables it by name was refused before.
    pub fn disable(&mut self, tool: BuiltinTool) {
        let config = ToolConfig { enabled: false, ..self.config(tool) };
        self.configs.retain(|config| config.name != tool);
        self.configs.push(config);
    }

    /// Whether `tool` has its own entry that enables it.
    #[must_use]
    pub fn names(&self, tool: BuiltinTool) -> bool {
        self.configs.iter().any(|config| config.name == tool && config.enabled)
    }

    fn read(mut object: ObjectInput<'_>) -> Result<Self, RequestError> {
        let default_config = match object.optional("default_config") {
            None => ToolsetDefault { enabled: true, permission_policy: PermissionPolicy::AlwaysAllow },
            Some(input) => {
                let mut object = input.object()?;
                let default = ToolsetDefault {
                    enabled: object.optional("enabled").map_or(Ok(true), |input| input.boolean())?,
                    permission_policy: read_policy(&mut object)?.unwrap_or(PermissionPolicy::AlwaysAllow),
                };
                object.finish()?;
                default
            }
        };
        let mut configs: Vec<ToolConfig> = Vec::new();
        if let Some(input) = object.optional("configs") {
            for input in input.array("entries", MAX_TOOLS)? {
                let path = input.path().to_owned();
                let config = read_config(input, default_config)?;
                if configs.iter().any(|other| other.name == config.name) {
                    let message =
                        format!("`{}` has an entry already; give one for each tool", config.name.as_str());
                    return Err(RequestError::new(path, message));
                }
                configs.push(config);
            }
        }
        object.finish()?;
        Ok(Self { configs, default_config })
    }
}

fn read_config(input: Input<'_>, default: ToolsetDefault) -> Result<ToolConfig, RequestError> {
    let tools = BuiltinTool::ALL.map(|tool| (tool.as_str(), tool));
    let mut object = input.object()?;
    let name = object.required("name")?.one_of(&tools)?;
    if let Some(kind) = object.optional("type") {
        kind.one_of(&[(name.as_str(), ())])?;
    }
    let config = ToolConfig {
        name,
        enabled: object.optional("enabled").map_or(Ok(default.enabled), |input| input.boolean())?,
        permission_policy: read_policy(&mut object)?.unwrap_or(default.permission_policy),
    };
    if matches!(name, BuiltinTool::WebFetch | BuiltinTool::WebSearch) {
        let domains =
            "domains of a web tool; the environment's `networking.allowed_hosts` limits what is reached";
        for field in ["allowed_domains", "blocked_domains"] {
            object.unsupported(field, domains)?;
        }
        object.unsupported("url_sources", "sources of the URLs of a web tool")?;
        object.unsupported("max_content_tokens", "a limit of tokens for a web tool")?;
        object.unsupported("user_location", "a location of the user for a web tool")?;
    }
    object.finish()?;
    Ok(config)
}

impl CustomTool {
    fn read(mut object: ObjectInput<'_>) -> Result<Self, RequestError> {
        let name = object.required("name")?;
        let text = name.text(1..=MAX_TOOL_NAME)?;
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')) {
            return Err(
                name.error(format!("`{text}` is not a tool's name; use letters, digits, `_` and `-`"))
            );
        }
        if text.starts_with(MCP_PREFIX) {
            return Err(name.error(format!(
                "`{text}` begins with `{MCP_PREFIX}`, as tools of MCP servers do; choose another name"
            )));
        }
        let description = object.required("description")?.text(1..=usize::MAX)?;
        let schema = object.required("input_schema")?;
        let input_schema = schema.verbatim()?;
        let mut fields = schema.object()?;
        fields.kind(&[("object", ())])?;
        if let Some(properties) = fields.optional("properties") {
            properties.object()?;
        }
        if let Some(required) = fields.optional("required") {
            for name in required.array("names", usize::MAX)? {
                name.string()?;
            }
        }
        object.finish()?;
        Ok(Self { description, input_schema, name: text })
    }
}

/// Reads an agent's `tools`: at most one toolset, with unique names.
pub(crate) fn read_tools(input: Input<'_>) -> Result<Vec<Tool>, RequestError> {
    #[derive(Clone, Copy)]
    enum Kind {
        Toolset,
        Mcp,
        Custom,
    }
    let mut names = BTreeSet::new();
    let mut tools = Vec::new();
    let mut count = 0;
    for input in input.array("tools", MAX_TOOLS)? {
        let path = input.path().to_owned();
        let mut object = input.object()?;
        let kind = object.kind(&[
            ("agent_toolset_20260401", Kind::Toolset),
            ("custom", Kind::Custom),
            ("mcp_toolset", Kind::Mcp),
        ])?;
        let tool = match kind {
            Kind::Toolset => Tool::Toolset(Toolset::read(object)?),
            Kind::Custom => Tool::Custom(CustomTool::read(object)?),
            Kind::Mcp => Tool::Mcp(McpToolset::read(object)?),
        };
        let tool_names: Vec<&str> = match &tool {
            Tool::Toolset(_) => BuiltinTool::ALL.iter().map(|tool| tool.as_str()).collect(),
            // MCP tools have the prefix `mcp__`, so their names cannot collide.
            Tool::Mcp(_) => Vec::new(),
            Tool::Custom(custom) => vec![custom.name.as_str()],
        };
        count += tool_names.len();
        for name in tool_names {
            if !names.insert(name.to_owned()) {
                let message =
                    format!("another tool has the name `{name}` already; each name may be there once");
                return Err(RequestError::new(path, message));
            }
        }
        tools.push(tool);
    }
    if count > MAX_TOOLS {
        let message =
            format!("{count} tools are too many; at most {MAX_TOOLS} are allowed over all toolsets");
        return Err(RequestError::new("tools", message));
    }
    Ok(tools)
}
