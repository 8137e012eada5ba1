//! The MCP servers that an editor sends with a session. The user configured them in the editor.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol::v1::schema::{McpServer, McpServerHttp, McpServerStdio};
use conjure_mcp::{
    AddressScope, HttpServer, McpServerName, McpServerSpec, McpTransport, ServerPlace, StdioServer,
};

/// The maximum number of servers of one session.
const MAX_SERVERS: usize = 64;

/// Converts the editor's servers to specifications. Editors choose names for people, so characters that are not allowed in a server name
/// are replaced.
///
/// # Errors
/// The server that cannot be used, and the reason, as text.
pub(crate) fn specs(servers: Vec<McpServer>) -> Result<Vec<McpServerSpec>, String> {
    if servers.len() > MAX_SERVERS {
        return Err(format!("mcpServers: there are {}, and the maximum is {MAX_SERVERS}", servers.len()));
    }
    let mut names = BTreeSet::new();
    let mut specs = Vec::with_capacity(servers.len());
    for server in servers {
        let (label, transport) = match server {
            McpServer::Stdio(program) => (program.name.clone(), stdio(program)),
            McpServer::Http(service) => (service.name.clone(), Ok(http(service))),
            McpServer::Sse(service) => {
                let reason = "servers of the type `sse` are not supported, only `stdio` and `http`; most services have an address for `http` as well";
                (service.name, Err(reason.to_owned()))
            }
            _ => (String::new(), Err("its type is not known".to_owned())),
        };
        let shown = conjure_base::text::truncate(&label, 60).escape_debug().to_string();
        let refused = |reason: String| format!("mcpServers: the server `{shown}` cannot be used: {reason}");
        let transport = transport.map_err(refused)?;
        let name = McpServerName::from_label(&label).map_err(refused)?;
        if !names.insert(name.clone()) {
            return Err(refused(format!(
                "another server has the name `{name}`, too; rename one of them in the editor"
            )));
        }
        // Required servers start with the session, so the first prompt seldom waits for them.
        specs.push(McpServerSpec { required: true, ..McpServerSpec::new(name, transport) });
    }
    Ok(specs)
}

fn stdio(program: McpServerStdio) -> Result<McpTransport, String> {
    let McpServerStdio { command, args, env, .. } = program;
    let command =
        command.into_os_string().into_string().map_err(|path| format!("the path {path:?} is not UTF-8"))?;
    if command.is_empty() {
        return Err("its command is empty".to_owned());
    }
    let env = env.into_iter().map(|variable| (variable.name, variable.value)).collect();
    Ok(McpTransport::Stdio(StdioServer { command, args, env, place: ServerPlace::Sandbox, network: None }))
}

/// Converts an HTTP server. Private addresses are allowed, because the editor's user wrote the URL.
fn http(service: McpServerHttp) -> McpTransport {
    let headers: BTreeMap<String, String> =
        service.headers.into_iter().map(|header| (header.name, header.value)).collect();
    McpTransport::Http(HttpServer { url: service.url, headers, addresses: AddressScope::AsWritten })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(servers: Value) -> Result<Vec<McpServerSpec>, String> {
        specs(serde_json::from_value(servers).unwrap())
    }

    #[test]
    fn programs_and_services_are_servers_under_possible_names() {
        let servers = parse(json!([
            {"name": "My clock", "command": "/usr/bin/clock", "args": ["-u"], "env": [{"name": "A_TOKEN", "value": "s3cret"}]},
            {"type": "http", "name": "issues", "url": "https://mcp.example.com/mcp",
             "headers": [{"name": "Authorization", "value": "Bearer t0ken"}]},
        ]))
        .unwrap();
        let [clock, issues] = servers.as_slice() else { panic!("{servers:?}") };
        let McpTransport::Stdio(program) = &clock.transport else { panic!("{clock:?}") };
        assert_eq!((clock.name.as_str(), program.command.as_str()), ("My_clock", "/usr/bin/clock"));
        assert_eq!(
            (program.args.as_slice(), program.env["A_TOKEN"].as_str()),
            (["-u".to_owned()].as_slice(), "s3cret")
        );
        assert_eq!(program.place, ServerPlace::Sandbox);
        let McpTransport::Http(service) = &issues.transport else { panic!("{issues:?}") };
        assert_eq!(service.headers["Authorization"], "Bearer t0ken");
        assert!(!format!("{servers:?}").contains("s3cret"), "values are not shown");
    }

    #[test]
    fn what_cannot_be_used_is_told_with_its_name() {
        let program = |name: &str| json!({"name": name, "command": "/x", "args": [], "env": []});
        let many: Vec<Value> = (0..=MAX_SERVERS).map(|number| program(&format!("s{number}"))).collect();
        for (servers, part) in [
            (
                json!([{"type": "sse", "name": "old", "url": "https://a/sse", "headers": []}]),
                "`old` cannot be used: servers of the type `sse`",
            ),
            (json!([program("时间")]), "`时间` cannot be the name"),
            (
                json!([program("my clock"), program("my/clock")]),
                "`my/clock` cannot be used: another server has the name `my_clock`",
            ),
            (json!([{"name": "a", "command": "", "args": [], "env": []}]), "its command is empty"),
            (json!(many), "there are 65, and the maximum is 64"),
        ] {
            let refused = parse(servers).unwrap_err();
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
}
