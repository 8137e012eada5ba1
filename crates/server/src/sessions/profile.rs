//! The parts of a session's specification: its instructions, its model and its tools.

use conjure_api::{
    Budget, BuiltinTool, McpToolset, PermissionPolicy as Policy, SessionAgent, Speed, Tool, Toolset,
};
use conjure_base::TenantId;
use conjure_conversation::{
    AgentToolset, PermissionPolicy, RemoteToolServer, ToolDefinition, ToolRule, ToolsetTool,
};
use conjure_runtime::SessionSpec;
use serde_json::Value;

use crate::http::ApiError;

/// The specification of a session with this agent. `note` is appended to the agent's instructions.
///
/// # Errors
/// 400 for a feature that this server does not support.
pub(crate) fn session_spec(
    tenant: &TenantId,
    agent: &SessionAgent,
    note: &str,
) -> Result<SessionSpec, ApiError> {
    let mut client_tools = Vec::new();
    let mut toolset = AgentToolset::none();
    let mut servers = Vec::new();
    for tool in &agent.tools {
        match tool {
            Tool::Toolset(tools) => toolset = agent_toolset(tools),
            Tool::Custom(tool) => client_tools.push(client_tool(tool)?),
            Tool::Mcp(tools) => servers.extend(remote_server(agent, tools)),
        }
    }
    let spec = SessionSpec::new(tenant.clone()).without_skills().model(agent.model.id.as_str());
    let spec = spec.fast(agent.model.speed == Some(Speed::Fast));
    let spec = match agent.model.effort {
        Some(effort) => spec.effort(effort.as_str()),
        None => spec,
    };
    let system = agent.system.iter().map(String::as_str).chain([note]);
    let system: Vec<&str> = system.filter(|text| !text.is_empty()).collect();
    let spec = spec.base_prompt(system.join("\n\n")).toolset(toolset);
    let spec = servers.into_iter().fold(spec, SessionSpec::remote_server);
    Ok(client_tools.into_iter().fold(spec, SessionSpec::client_tool))
}

/// The cost limit of a session, in millionths of a dollar.
pub(crate) const fn cost_micros(budget: Budget) -> u64 {
    budget.max_list_cost.cents.saturating_mul(10_000)
}

/// The custom tools, whose results the client provides.
///
/// # Errors
/// 400 if a schema is not valid JSON.
pub(crate) fn client_tools(tools: &[Tool]) -> Result<Vec<ToolDefinition>, ApiError> {
    let custom = tools.iter().filter_map(|tool| match tool {
        Tool::Custom(tool) => Some(client_tool(tool)),
        Tool::Toolset(_) | Tool::Mcp(_) => None,
    });
    custom.collect()
}

fn client_tool(tool: &conjure_api::CustomTool) -> Result<ToolDefinition, ApiError> {
    let input_schema: Value = serde_json::from_str(tool.input_schema.get())
        .map_err(|error| ApiError::invalid(format!("the schema of the tool `{}`: {error}", tool.name)))?;
    Ok(ToolDefinition { name: tool.name.clone(), description: tool.description.clone(), input_schema })
}

/// The MCP server of a toolset, with the rules for its tools.
fn remote_server(agent: &SessionAgent, tools: &McpToolset) -> Option<RemoteToolServer> {
    let server = agent.mcp_servers.iter().find(|server| server.name == tools.mcp_server_name)?;
    let rule = |enabled, policy| ToolRule { enabled, permission: permission(policy) };
    Some(RemoteToolServer {
        name: server.name.clone(),
        url: server.url.clone(),
        default: rule(tools.default_config.enabled, tools.default_config.permission_policy),
        tools: (tools.configs.iter())
            .map(|config| (config.name.clone(), rule(config.enabled, config.permission_policy)))
            .collect(),
    })
}

fn agent_toolset(tools: &Toolset) -> AgentToolset {
    BuiltinTool::ALL.into_iter().fold(AgentToolset::none(), |toolset, tool| {
        let config = tools.config(tool);
        match ToolsetTool::from_name(tool.as_str()) {
            Some(known) if config.enabled => toolset.with(known, permission(config.permission_policy)),
            _ => toolset,
        }
    })
}

const fn permission(policy: Policy) -> PermissionPolicy {
    match policy {
        Policy::AlwaysAllow => PermissionPolicy::AlwaysAllow,
        Policy::AlwaysAsk => PermissionPolicy::AlwaysAsk,
    }
}
