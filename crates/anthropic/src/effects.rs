//! What a call may do at the service, told before it is sent by what it asks for.

use conjure_conversation::{CallEffects, Request};
use serde_json::Value;

use crate::options::{CONTAINER, Options};

/// The field in which a host names servers whose tools the service calls.
const MCP_SERVERS: &str = "mcp_servers";

/// What a call of `request` may do. Searching and reading the web is no effect; running code and calling the tools of others is.
pub(crate) fn effects_of(request: &Request, options: &Options) -> CallEffects {
    let extra = options.extra();
    let acts = extra.contains_key(CONTAINER)
        || extra.contains_key(MCP_SERVERS)
        || options.server_tools().iter().any(is_acting);
    if acts { CallEffects::Possible } else { request.effects() }
}

fn is_acting(tool: &Value) -> bool {
    tool["type"].as_str().is_some_and(|kind| kind.starts_with("code_execution") || kind == "mcp_toolset")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conjure_base::{ContainerId, TurnId};
    use conjure_conversation::HostedSkill;
    use serde_json::json;

    use super::*;
    use crate::config::Profile;
    use crate::hosted::Hosted;

    fn plain() -> Request {
        Request {
            turn: TurnId::FIRST,
            call: 1,
            instructions: Vec::new(),
            tools: Arc::default(),
            messages: Vec::new(),
            container: None,
            hosted: Arc::default(),
        }
    }

    #[test]
    fn a_call_acts_by_what_it_is_configured_with() {
        let tool = |kind: &str| Options::new("m").with_server_tool(json!({"type": kind, "name": "n"}));
        let field = |name: &str| Options::new("m").with_field(name, json!([])).unwrap();
        for (options, expected) in [
            (Options::new("m"), CallEffects::None),
            (tool("web_search_20250305"), CallEffects::None),
            (tool("web_fetch_20250910"), CallEffects::None),
            (field("metadata"), CallEffects::None),
            (tool("code_execution_20250825"), CallEffects::Possible),
            (tool("mcp_toolset"), CallEffects::Possible),
            (field("mcp_servers"), CallEffects::Possible),
            (field("container"), CallEffects::Possible),
            (
                tool("web_search_20250305").with_server_tool(json!({"type": "mcp_toolset"})),
                CallEffects::Possible,
            ),
            (Hosted::default().applied_to(Options::new("m"), Profile::Current), CallEffects::Possible),
        ] {
            assert_eq!(effects_of(&plain(), &options), expected, "{options:?}");
        }
    }

    #[test]
    fn a_call_acts_by_what_its_request_asks_for() {
        let hosted = Request { hosted: [HostedSkill::anthropic("xlsx")].into(), ..plain() };
        let resumed = Request { container: Some(ContainerId::new("c_1")), ..plain() };
        for request in [hosted, resumed] {
            assert_eq!(effects_of(&request, &Options::new("m")), CallEffects::Possible, "{request:?}");
        }
    }
}
