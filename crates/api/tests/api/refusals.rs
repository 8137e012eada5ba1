//! Messages of refused requests: where the fault is, what it is, how to mend it.

use serde_json::{Value, json};

use crate::golden::read;

fn check(method: &str, path: &str, body: &Value, expected: &str) {
    let error = read(method, path, "", body.to_string().as_bytes()).expect_err(&format!("{path} {body}"));
    assert_eq!(error.to_string(), expected, "{path} {body}");
}

fn agent(more: Value) -> Value {
    let mut agent = json!({"name": "n", "model": "m"});
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    agent
}

#[test]
fn agent_errors_name_the_path() {
    let check = |body: Value, expected: &str| check("POST", "/v1/agents", &body, expected);
    check(json!({"model": "m"}), "name: the field is missing; it is required");
    check(json!([]), "expected an object, found an array");
    check(agent(json!({"name": ""})), "name: the text is empty; give 1 to 256 characters");
    check(agent(json!({"name": 3})), "name: expected a string, found a number");
    check(agent(json!({"name": "ä".repeat(257)})), "name: the text has 257 characters; 1 to 256 are allowed");
    check(
        agent(json!({"system": "x".repeat(100_001)})),
        "system: the text has 100001 characters; 0 to 100000 are allowed",
    );
    check(
        agent(json!({"colour": 1})),
        "colour: the field is unknown; remove it, or give one of the fields `multiagent`, \
         `execution_identity`, `model`, `name`, `description`, `mcp_servers`, `metadata`, `skills`, `system` or `tools`",
    );
    check(
        agent(json!({"model": {"id": "m", "effort": "extreme"}})),
        "model.effort: `extreme` is not allowed; give `low`, `medium`, `high`, `xhigh` or `max`",
    );
    check(
        agent(json!({"model": {"id": "m", "inference_geo": "eu"}})),
        "model.inference_geo: this server does not support regions for inference; leave it out",
    );
    check(
        agent(json!({"multiagent": {"type": "coordinator"}})),
        "multiagent: this server does not support several agents in one session (`multiagent`); leave it out",
    );
    check(
        agent(json!({"mcp_servers": [{"type": "url", "name": "a", "url": "https://a.b"}]})),
        "mcp_servers.0: no `mcp_toolset` in `tools` is of the server `a`; add one, or remove the server",
    );
    check(agent(json!({"metadata": {"a": 1}})), "metadata.a: expected a string, found a number");
    let pairs: serde_json::Map<_, _> = (0..17).map(|n| (n.to_string(), json!(""))).collect();
    check(agent(json!({"metadata": pairs})), "metadata: 17 pairs are too many; at most 16 are allowed");
    check(
        agent(json!({"metadata": {"k".repeat(65): ""}})),
        "metadata: a key has 65 characters; 1 to 64 are allowed",
    );
    check(
        agent(json!({"skills": [{"type": "custom", "skill_id": "a"}, {"type": "custom", "skill_id": "a"}]})),
        "skills.1: the skill `a` is listed twice; name each skill once",
    );
}

#[test]
fn tool_errors_name_the_path() {
    let check =
        |tools: Value, expected: &str| check("POST", "/v1/agents", &agent(json!({"tools": tools})), expected);
    let toolset = |configs: Value| json!([{"type": "agent_toolset_20260401", "configs": configs}]);
    check(
        toolset(json!([{"name": "bash", "permission_policy": {"type": "auto"}}])),
        "tools.0.configs.0.permission_policy: this server does not support the policy `auto`; use `always_allow` or \
         `always_ask`",
    );
    check(
        toolset(json!([{"name": "bash"}, {"name": "bash"}])),
        "tools.0.configs.1: `bash` has an entry already; give one for each tool",
    );
    check(
        toolset(json!([{"name": "bash", "type": "read"}])),
        "tools.0.configs.0.type: `read` is not allowed; give `bash`",
    );
    check(
        toolset(json!([{"name": "bash", "enabled": "yes"}])),
        "tools.0.configs.0.enabled: expected true or false, found a string",
    );
    check(
        json!([{"type": "mcp_toolset", "mcp_server_name": "a"}]),
        "tools.0.mcp_server_name: `mcp_servers` has no server `a`; add it there, or correct the name",
    );
    check(
        json!([{"type": "custom", "name": "a b", "description": "d", "input_schema": {"type": "object"}}]),
        "tools.0.name: `a b` is not a tool's name; use letters, digits, `_` and `-`",
    );
    check(
        json!([{"type": "custom", "name": "a", "description": "d", "input_schema": {"type": "array"}}]),
        "tools.0.input_schema.type: `array` is not allowed; give `object`",
    );
    check(
        json!([
            {"type": "agent_toolset_20260401"},
            {"type": "custom", "name": "bash", "description": "d", "input_schema": {"type": "object"}},
        ]),
        "tools.1: another tool has the name `bash` already; each name may be there once",
    );
    let custom = |n: usize| json!({"type": "custom", "name": format!("t{n}"), "description": "d", "input_schema": {"type": "object"}});
    let mut many: Vec<Value> = (0..249).map(custom).collect();
    many.push(json!({"type": "agent_toolset_20260401"}));
    check(json!(many), "tools: 257 tools are too many; at most 256 are allowed over all toolsets");
}

#[test]
fn update_errors_are_reported() {
    let check = |path: &str, body: Value, expected: &str| check("POST", path, &body, expected);
    check(
        "/v1/agents/a",
        json!({"name": null}),
        "name: null is not allowed, since it cannot be removed; leave the field out to keep the value",
    );
    check("/v1/agents/a", json!({"version": 0}), "version: 0 is not allowed; give an integer of 1 or more");
    check("/v1/agents/a", json!({"version": -1}), "version: -1 is not allowed; give an integer of 1 or more");
    check(
        "/v1/sessions/s",
        json!({"vault_ids": ["vlt_1"]}),
        "vault_ids: this server does not support a change of a session's vaults (`vault_ids`); leave it out",
    );
    check(
        "/v1/environments/e",
        json!({"scope": "account"}),
        "scope: environments belong to the tenant of the key; leave `scope` out, or give `organization`",
    );
}

#[test]
fn environment_errors_are_reported() {
    let check = |config: Value, expected: &str| {
        check("POST", "/v1/environments", &json!({"name": "n", "config": config}), expected);
    };
    check(
        json!({"type": "cloud", "networking": {"type": "limited"}, "packages": {"pip": ["pandas"]}}),
        "config.packages: the network is `limited` without package managers; set \
         `config.networking.allow_package_managers` to true, or remove the packages",
    );
    check(
        json!({"type": "cloud", "packages": {"brew": []}}),
        "config.packages.brew: the field is unknown; remove it, or give one of the fields `type`, `apt`, `cargo`, `gem`, \
         `go`, `npm` or `pip`",
    );
    check(json!({"type": "moon"}), "config.type: `moon` is not allowed; give `cloud` or `self_hosted`");
}

#[test]
fn session_and_event_errors_are_reported() {
    let session = |more: Value| {
        let mut session = json!({"agent": "agent_1", "environment_id": "env_1"});
        session.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        session
    };
    let create = |more: Value, expected: &str| check("POST", "/v1/sessions", &session(more), expected);
    create(
        json!({"resources": [{"type": "github_repository", "url": "x"}]}),
        "resources.0: this server does not support repositories as resources (`github_repository`); leave it out",
    );
    for (path, expected) in [
        ("a", "resources.0.mount_path: `a` is not absolute; begin it with `/`"),
        (
            "/etc/passwd",
            "resources.0.mount_path: files cannot be mounted within `/etc`; choose another place",
        ),
        ("/proc", "resources.0.mount_path: files cannot be mounted within `/proc`; choose another place"),
        (
            "/a/../etc/b",
            "resources.0.mount_path: `/a/../etc/b` is not the plain path of a file; write it without `.`, `..`, empty and \
             overlong names",
        ),
        (
            "/a//b",
            "resources.0.mount_path: `/a//b` is not the plain path of a file; write it without `.`, `..`, empty and \
             overlong names",
        ),
    ] {
        create(json!({"resources": [{"type": "file", "file_id": "f", "mount_path": path}]}), expected);
    }
    create(
        json!({"budget": {"type": "limit", "max_list_cost": {"amount": "025", "currency": "USD"}}}),
        "budget.max_list_cost.amount: `025` is not a number of cents; write digits without leading zeros: \"2500\"",
    );
    create(
        json!({"agent": {"type": "agent_with_overrides", "id": "a", "model": null}}),
        "agent.model: null is not allowed, since it cannot be removed; leave the field out to keep the value",
    );
    create(
        json!({"initial_events": [{"type": "user.define_outcome"}]}),
        "initial_events.0: this server does not support outcomes (`user.define_outcome`); leave it out",
    );

    let events = |events: Value, expected: &str| {
        check("POST", "/v1/sessions/s/events", &json!({"events": events}), expected);
    };
    let text = json!([{"type": "text", "text": "hi"}]);
    events(json!([]), "events: the list is empty; send at least one event");
    events(
        json!([{"type": "user.message", "content": []}]),
        "events.0.content: the content is empty; give at least one block",
    );
    events(
        json!([{"type": "user.message", "content": [{"type": "search_result"}]}]),
        "events.0.content.0.type: `search_result` is not allowed; give `text`, `image`, `document` or `redacted`",
    );
    events(
        json!([{"type": "user.interrupt", "session_thread_id": "t"}]),
        "events.0.session_thread_id: this server does not support threads of several agents (`session_thread_id`); leave \
         it out",
    );
    events(
        json!([{"type": "user.tool_confirmation", "tool_use_id": "e", "result": "allow", "deny_message": "no"}]),
        "events.0.deny_message: a message goes with `deny` only; remove it, or deny the call",
    );
    let message = json!({"type": "user.message", "content": text.clone()});
    let system = json!({"type": "system.message", "content": text});
    events(
        json!([system, message]),
        "events.0: a `system.message` must be the last event of a request and follow a `user.message`, \
         `user.tool_result` or `user.custom_tool_result`",
    );
}

#[test]
fn body_errors_are_reported() {
    let check = |body: &[u8], expected: &str| {
        let error = read("POST", "/v1/agents", "", body).unwrap_err().to_string();
        assert_eq!(error, expected);
    };
    check(b" ", "the request has no body; send a JSON object");
    check(b"{", "the body is not JSON: EOF while parsing an object at line 1 column 1");
    check(b"{\"a\":1,\"a\":2}", "the field `a` is a duplicate; keep one of them");
    check(b"{\"a\":1} x", "the body is not JSON: trailing characters at line 1 column 9");
}

#[test]
fn query_errors_are_reported() {
    let check = |path: &str, query: &str, expected: &str| {
        assert_eq!(read("GET", path, query, b"").unwrap_err().to_string(), expected, "{path}?{query}");
    };
    check("/v1/agents", "limit=0", "limit: `0` is not allowed; give an integer of 1 to 100");
    check("/v1/agents", "limit=101", "limit: `101` is not allowed; give an integer of 1 to 100");
    check("/v1/agents", "limit=1&limit=2", "limit: the parameter occurs 2 times; give it once");
    check(
        "/v1/environments",
        "colour=red",
        "colour: the parameter is unknown; remove it (known here: `include_archived`, `limit`, `page`)",
    );
    check("/v1/agents", "include_archived=1", "include_archived: `1` is not allowed; give `true` or `false`");
    check(
        "/v1/agents",
        "created_at[gte]=today",
        "created_at[gte]: `today` is not a time; write it as in RFC 3339, such as 2026-11-26T08:00:00Z",
    );
    check(
        "/v1/sessions",
        "deployment_id=depl_1",
        "deployment_id: this server does not support deployments (`deployment_id`); leave it out",
    );
    check("/v1/sessions", "order=up", "order: `up` is not allowed; give `asc` or `desc`");
    check(
        "/v1/sessions",
        "statuses[]=busy",
        "statuses: `busy` is not allowed; give one of `rescheduling`, `running`, `idle`, `terminated`",
    );
    check("/v1/files", "ids[]=a&limit=3", "ids: the parameter excludes `limit` and `page`; leave them out");
    check(
        "/v1/models",
        "after_id=a&before_id=b",
        "before_id: the parameter excludes `after_id`; give one of them",
    );
    check("/v1/models", "after_id=%FF", "the query string is not UTF-8; encode its values as UTF-8");
    read("GET", "/v1/agents", "beta=true", b"").expect("older clients send it");
}

#[test]
fn mcp_server_errors_are_reported() {
    let server = |name: &str, url: &str| json!({"type": "url", "name": name, "url": url});
    let agent = |servers: Value, tools: Value| json!({"name": "n", "model": "m", "mcp_servers": servers, "tools": tools});
    let toolset = |name: &str| json!({"type": "mcp_toolset", "mcp_server_name": name});
    let check = |servers: Value, tools: Value, expected: &str| {
        check("POST", "/v1/agents", &agent(servers, tools), expected);
    };
    let a = || server("a", "https://a.b/mcp");
    check(
        json!([server("a__b", "https://a.b")]),
        json!([]),
        "mcp_servers.0.name: `a__b` cannot be a server's name here; use letters, digits, `-` and single `_` between them",
    );
    for url in ["a.b", "ftp://a.b", "https://", "https:///x", "https://a b", "https://ä.b"] {
        check(
            json!([server("a", url)]),
            json!([toolset("a")]),
            "mcp_servers.0.url: the value is not a URL; give an absolute URL such as `https://mcp.example.com/mcp`",
        );
    }
    check(
        json!([a(), a()]),
        json!([toolset("a")]),
        "mcp_servers.1: another server has the name `a` already; each name may be there once",
    );
    check(
        json!([a()]),
        json!([toolset("a"), toolset("a")]),
        "tools.1.mcp_server_name: another `mcp_toolset` has the server `a` already; merge the two",
    );
    check(
        json!([a()]),
        json!([{"type": "mcp_toolset", "mcp_server_name": "a", "configs": [{"name": "t"}, {"name": "t"}]}]),
        "tools.0.configs.1: `t` has an entry already; give one for each tool",
    );
    check(
        json!([]),
        json!([{"type": "custom", "name": "mcp__a__t", "description": "d", "input_schema": {"type": "object"}}]),
        "tools.0.name: `mcp__a__t` begins with `mcp__`, as tools of MCP servers do; choose another name",
    );
}

#[test]
fn credential_errors_contain_no_secrets() {
    let check = |auth: Value, expected: &str| {
        check("POST", "/v1/vaults/v/credentials", &json!({"auth": auth}), expected);
    };
    let url = "https://mcp.example.com/mcp";
    check(
        json!({"type": "static_bearer", "mcp_server_url": url}),
        "auth.token: the field is missing; it is required",
    );
    check(
        json!({"type": "static_bearer", "token": "hunter\n2", "mcp_server_url": url}),
        "auth.token: the secret has line breaks or other characters that are not allowed in a header; give it exactly as it was issued",
    );
    check(
        json!({"type": "environment_variable", "secret_name": "A", "secret_value": "hunter2"}),
        "auth: this server does not support credentials of the type `environment_variable`; leave it out",
    );
    check(
        json!({"type": "mcp_oauth", "access_token": "a", "mcp_server_url": url, "expires_at": "1970-01-01T00:00:00Z"}),
        "auth.expires_at: the time has passed; give a token that is still valid, or leave the field out",
    );
    check(
        json!({"type": "mcp_oauth", "access_token": "a", "mcp_server_url": url,
            "refresh": {"client_id": "c", "refresh_token": "r", "token_endpoint": "here", "token_endpoint_auth": {"type": "none"}}}),
        "auth.refresh.token_endpoint: the value is not a URL; give an absolute URL such as `https://mcp.example.com/mcp`",
    );
}
