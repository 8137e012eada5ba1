//! Agents and environments, and their parts: models, tools, MCP servers, skills.

pub(crate) mod agent;
pub(crate) mod environment;
pub(crate) mod mcp_server;
pub(crate) mod mcp_toolset;
pub(crate) mod model_config;
pub(crate) mod permission_policy;
pub(crate) mod skill_ref;
pub(crate) mod tool;
