//! Determines before sending whether a call can have side effects at the service.

use conjure_conversation::{Request, SideEffects};
use serde_json::Value;

use crate::options::{CONTAINER, ModelOptions};

/// The field for MCP servers whose tools the service calls.
const MCP_SERVERS: &str = "mcp_servers";

/// The side effects that a call of `request` may have. Running code and calling tools of MCP servers are side effects. Searching and
/// reading the web are not.
pub(crate) fn effects_of(request: &Request, options: &ModelOptions) -> SideEffects {
    let extra = options.extra();
    let acts = extra.contains_key(CONTAINER)
        || extra.contains_key(MCP_SERVERS)
        || options.server_tools().iter().any(is_acting);
    if acts { SideEffects::Possible } else { request.side_effects() }
}

fn is_acting(tool: &Value) -> bool {
    tool["type"].as_str().is_some_and(|kind| kind.starts_with("code_execution") || kind == "mcp_toolset")
}

#[cfg(test)]
mod tests {
    use conjure_base::ContainerId;
    use conjure_conversation::HostedSkill;
    use serde_json::json;

    use super::*;

    fn plain() -> Request {
        Request::new(Vec::new())
    }

    #[test]
    fn side_effects_follow_from_the_configuration() {
        let tool = |kind: &str| ModelOptions::new("m").with_server_tool(json!({"type": kind, "name": "n"}));
        let field = |name: &str| ModelOptions::new("m").with_field(name, json!([])).unwrap();
        for (options, expected) in [
            (ModelOptions::new("m"), SideEffects::None),
            (tool("web_search_20250305"), SideEffects::None),
            (tool("web_fetch_20250910"), SideEffects::None),
            (field("metadata"), SideEffects::None),
            (tool("code_execution_20250825"), SideEffects::Possible),
            (tool("mcp_toolset"), SideEffects::Possible),
            (field("mcp_servers"), SideEffects::Possible),
            (field("container"), SideEffects::Possible),
            (
                tool("web_search_20250305").with_server_tool(json!({"type": "mcp_toolset"})),
                SideEffects::Possible,
            ),
        ] {
            assert_eq!(effects_of(&plain(), &options), expected, "{options:?}");
        }
    }

    #[test]
    fn side_effects_follow_from_the_request() {
        let hosted = Request { hosted: [HostedSkill::anthropic("xlsx")].into(), ..plain() };
        let resumed = Request { container: Some(ContainerId::new("c_1")), ..plain() };
        for request in [hosted, resumed] {
            assert_eq!(effects_of(&request, &ModelOptions::new("m")), SideEffects::Possible, "{request:?}");
        }
    }
}
