//! The MCP servers of an agent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::RequestError;
use crate::agents::mcp_toolset::read_server_name;
use crate::agents::tool::Tool;
use crate::common::input::{Input, ObjectInput, Patch};

const MAX_SERVERS: usize = 20;
const MAX_URL: usize = 2_048;

/// An MCP server, by its URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "url")]
pub struct McpServer {
    /// The name by which toolsets refer to the server.
    pub name: String,
    /// The URL of the server.
    pub url: String,
}

/// Reads the list `mcp_servers`. Names must differ, and URLs must be HTTP addresses.
pub(crate) fn read_mcp_servers(input: Input<'_>) -> Result<Vec<McpServer>, RequestError> {
    let mut servers: Vec<McpServer> = Vec::new();
    for input in input.array("servers", MAX_SERVERS)? {
        let path = input.path().to_owned();
        let mut object = input.object()?;
        object.kind(&[("url", ())])?;
        let name = read_server_name(&object.required("name")?)?;
        let url = read_http_url(&object.required("url")?)?;
        object.finish()?;
        if servers.iter().any(|other| other.name == name) {
            let message =
                format!("another server has the name `{name}` already; each name may be there once");
            return Err(RequestError::new(path, message));
        }
        servers.push(McpServer { name, url });
    }
    Ok(servers)
}

/// Reads a patch of the list `mcp_servers`.
pub(crate) fn patch_mcp_servers(object: &mut ObjectInput<'_>) -> Result<Patch<Vec<McpServer>>, RequestError> {
    object.patch("mcp_servers", read_mcp_servers)
}

/// Reads an absolute HTTP address.
pub(crate) fn read_http_url(input: &Input<'_>) -> Result<String, RequestError> {
    let url = input.text(1..=MAX_URL)?;
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let is_url = host.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && url.chars().all(|char| char.is_ascii_graphic());
    if is_url {
        return Ok(url);
    }
    Err(input.error("the value is not a URL; give an absolute URL such as `https://mcp.example.com/mcp`"))
}

/// Checks that servers and toolsets match: each server has exactly one toolset, and each toolset has a server.
///
/// # Errors
/// If one of them does not match. The error names it.
pub fn check_mcp(servers: &[McpServer], tools: &[Tool]) -> Result<(), RequestError> {
    let mut used = BTreeSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let Tool::Mcp(toolset) = tool else { continue };
        let name = toolset.mcp_server_name.as_str();
        if !servers.iter().any(|server| server.name == name) {
            let message = format!("`mcp_servers` has no server `{name}`; add it there, or correct the name");
            return Err(RequestError::new(format!("tools.{index}.mcp_server_name"), message));
        }
        if !used.insert(name) {
            let message = format!("another `mcp_toolset` has the server `{name}` already; merge the two");
            return Err(RequestError::new(format!("tools.{index}.mcp_server_name"), message));
        }
    }
    match servers.iter().position(|server| !used.contains(server.name.as_str())) {
        None => Ok(()),
        Some(index) => Err(RequestError::new(
            format!("mcp_servers.{index}"),
            format!(
                "no `mcp_toolset` in `tools` is of the server `{}`; add one, or remove the server",
                servers.get(index).map(|server| server.name.as_str()).unwrap_or_default()
            ),
        )),
    }
}
