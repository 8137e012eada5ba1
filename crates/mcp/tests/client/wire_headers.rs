//! What the client sends with each message by HTTP, and what it makes of tools: the scenarios of the official conformance suite by their names.
//! `docs/mcp-conformance.md` lists them.

use conjure_mcp::{AddressScope, HttpServer as HttpSpec, McpServerName, McpServerSpec, McpTransport};
use serde_json::{Value, json};

use crate::scripted_http::{HttpServer, Reply, Request};
use crate::support::Session;

pub(crate) const NEWEST: &str = "2026-07-28";

/// The server at this address. The first model call waits for it.
pub(crate) fn http_spec(url: &str, token: Option<&str>) -> McpServerSpec {
    let headers = token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
    let transport = McpTransport::Http(HttpSpec {
        url: url.to_owned(),
        headers: headers.into_iter().collect(),
        addresses: AddressScope::AsWritten,
    });
    McpServerSpec { required: true, ..McpServerSpec::new(McpServerName::new("one").unwrap(), transport) }
}

/// Answers as a server of the newest revision, which checks each message as that revision wants it.
pub(crate) fn answer_mcp(request: &Request, tools: &Value) -> Reply {
    if request.method != "POST" {
        return Reply::status(405).with_header("allow", "POST");
    }
    let message = request.message();
    let meta = &message["params"]["_meta"];
    let version = request.header("mcp-protocol-version");
    if version != meta["io.modelcontextprotocol/protocolVersion"].as_str()
        || !meta["io.modelcontextprotocol/clientCapabilities"].is_object()
    {
        return Reply::error(&message, -32020, "the header and `_meta` do not fit", &Value::Null);
    }
    if version != Some(NEWEST) {
        let data = json!({"supported": [NEWEST], "requested": version});
        return Reply::error(&message, -32022, "Unsupported protocol version", &data);
    }
    let cached = |mut result: Value| {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
        Reply::result(&message, &result)
    };
    match message["method"].as_str().unwrap_or_default() {
        "server/discover" => cached(json!({"supportedVersions": [NEWEST], "capabilities": {"tools": {}}})),
        "tools/list" => cached(json!({"tools": tools})),
        "tools/call" => {
            let said = message["params"]["arguments"].to_string();
            let content = json!([{"type": "text", "text": said}]);
            Reply::result(&message, &json!({"resultType": "complete", "content": content}))
        }
        _ => Reply::error(&message, -32601, "Method not found", &Value::Null).with_status(404),
    }
}

/// A server with these tools, and a session that uses it.
async fn session(tools: Value) -> (HttpServer, Session) {
    let server = HttpServer::start(move |request| answer_mcp(request, &tools)).await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    (server, session)
}

fn tool(name: &str, properties: Value) -> Value {
    json!({"name": name, "description": "What it does.", "inputSchema": {"type": "object", "properties": properties}})
}

#[tokio::test]
async fn tools_call() {
    let numbers = json!({"a": {"type": "number"}, "b": {"type": "number"}});
    let (server, session) = session(json!([tool("add_numbers", numbers)])).await;
    session.call("mcp__one__add_numbers", json!({"a": 5, "b": 3.5})).await.unwrap();
    let calls = server.messages("tools/call");
    let [call] = calls.as_slice() else { panic!("{calls:?}") };
    let params = &call.message()["params"];
    assert_eq!(params["name"], "add_numbers");
    assert_eq!(params["arguments"], json!({"a": 5, "b": 3.5}));
}

/// The first message is refused for its version. All messages, that one as well, say who asks in which version.
#[tokio::test]
async fn request_metadata() {
    let tools = json!([tool("echo", json!({}))]);
    let refused = std::sync::atomic::AtomicBool::new(false);
    let server = HttpServer::start(move |request| {
        if request.method == "POST" && !refused.swap(true, std::sync::atomic::Ordering::SeqCst) {
            let data = json!({"supported": [NEWEST], "requested": request.header("mcp-protocol-version")});
            return Reply::error(&request.message(), -32022, "Unsupported protocol version", &data);
        }
        answer_mcp(request, &tools)
    })
    .await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    session.call("mcp__one__echo", json!({})).await.unwrap();
    let mut methods = Vec::new();
    for request in server.requests().iter().filter(|request| request.method == "POST") {
        let message = request.message();
        let meta = &message["params"]["_meta"];
        let version = request.header("mcp-protocol-version").expect("each message has the header");
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], version, "{message}");
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "conjure", "{message}");
        let capabilities = meta["io.modelcontextprotocol/clientCapabilities"].as_object().unwrap();
        for name in ["roots", "sampling", "elicitation"] {
            assert!(capabilities.get(name).is_none_or(Value::is_object), "{message}");
        }
        methods.push((message["method"].as_str().unwrap().to_owned(), version.to_owned()));
    }
    let retried = methods.get(1).unwrap();
    assert_eq!(retried.1, NEWEST, "the second try has a version that the server knows: {methods:?}");
    assert!(methods.iter().any(|(method, _)| method == "tools/call"), "{methods:?}");
}

#[tokio::test]
async fn http_standard_headers() {
    let tools = json!([tool("test_headers", json!({})), tool("my-hyphenated-tool", json!({}))]);
    let (server, session) = session(tools).await;
    session.call("mcp__one__test_headers", json!({})).await.unwrap();
    session.call("mcp__one__my-hyphenated-tool", json!({})).await.unwrap();
    let posts = server.requests().into_iter().filter(|request| request.method == "POST");
    for request in posts {
        let method = request.rpc_method().unwrap();
        assert_eq!(request.header("mcp-method"), Some(method.as_str()));
        assert_eq!(request.header("mcp-protocol-version"), Some(NEWEST), "{method}");
        let name = (method == "tools/call").then(|| request.message()["params"]["name"].to_string());
        assert_eq!(request.header("mcp-name").map(|name| format!("\"{name}\"")), name, "{method}");
    }
    assert_eq!(server.messages("tools/call").len(), 2);
    assert_eq!(server.messages("tools/list").len(), 1);
}

/// The tool whose parameters are headers too, and what they are called.
fn tool_with_headers(name: &str, parameters: &[(&str, &str, Option<&str>)]) -> Value {
    let property = |(name, kind, header): &(&str, &str, Option<&str>)| {
        let mut property = json!({"type": kind});
        if let Some(header) = header {
            property["x-mcp-header"] = json!(header);
        }
        ((*name).to_owned(), property)
    };
    tool(name, Value::Object(parameters.iter().map(property).collect()))
}

#[tokio::test]
async fn http_custom_headers() {
    let full = tool_with_headers(
        "full",
        &[
            ("region", "string", Some("Region")),
            ("priority", "integer", Some("Priority")),
            ("verbose", "boolean", Some("Verbose")),
            ("debug", "boolean", Some("Debug")),
            ("empty", "string", Some("EmptyVal")),
            ("method", "string", Some("Method")),
            ("float_val", "number", None),
            ("foreign", "string", Some("NonAscii")),
            ("padded", "string", Some("Whitespace")),
            ("leading", "string", Some("LeadingSpace")),
            ("trailing", "string", Some("TrailingSpace")),
            ("inner", "string", Some("InternalSpace")),
            ("lines", "string", Some("ControlChar")),
            ("crlf", "string", Some("CrLf")),
            ("tab", "string", Some("Tab")),
            ("query", "string", None),
        ],
    );
    let some = [("region", "string", Some("Region")), ("verbose", "boolean", Some("Verbose"))];
    let (server, session) = session(json!([full, tool_with_headers("some", &some)])).await;
    let arguments = json!({
        "region": "us-west1", "priority": 42, "verbose": false, "debug": true, "empty": "", "method": "a method",
        "float_val": 3.25, "foreign": "Hello, 世界", "padded": " padded ", "leading": " us-west1", "trailing": "us-west1 ",
        "inner": "us west 1", "lines": "line1\nline2", "crlf": "line1\r\nline2", "tab": "\tindented", "query": "SELECT 1",
    });
    session.call("mcp__one__full", arguments.clone()).await.unwrap();
    session.call("mcp__one__some", json!({"region": "us-east1", "verbose": null})).await.unwrap();
    session.call("mcp__one__some", json!({"region": "us-east1"})).await.unwrap();

    let calls = server.messages("tools/call");
    let [full, null, absent] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!(full.message()["params"]["arguments"], arguments, "the body has them too");
    let base64 = |text: &str| {
        use base64::Engine as _;
        format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(text))
    };
    for (header, value) in [
        ("region", "us-west1".to_owned()),
        ("priority", "42".to_owned()),
        ("verbose", "false".to_owned()),
        ("debug", "true".to_owned()),
        ("emptyval", String::new()),
        ("method", "a method".to_owned()),
        ("nonascii", base64("Hello, 世界")),
        ("whitespace", base64(" padded ")),
        ("leadingspace", base64(" us-west1")),
        ("trailingspace", base64("us-west1 ")),
        ("internalspace", "us west 1".to_owned()),
        ("controlchar", base64("line1\nline2")),
        ("crlf", base64("line1\r\nline2")),
        ("tab", base64("\tindented")),
    ] {
        assert_eq!(full.header(&format!("mcp-param-{header}")), Some(value.as_str()), "{header}");
    }
    let mirrored = full.header_names().filter(|name| name.starts_with("mcp-param-")).count();
    assert_eq!(mirrored, 14, "no other parameter is a header");
    assert_eq!(full.header("mcp-method"), Some("tools/call"));
    for call in [null, absent] {
        assert_eq!(call.header("mcp-param-region"), Some("us-east1"));
        assert_eq!(call.header("mcp-param-verbose"), None, "what has no value has no header");
    }
}

#[tokio::test]
async fn http_invalid_tool_headers() {
    let one =
        |name: &str, kind: &str, header: &str| tool_with_headers(name, &[("value", kind, Some(header))]);
    let two = |name: &str, first: &str, second: &str| {
        tool_with_headers(name, &[("a", "string", Some(first)), ("b", "string", Some(second))])
    };
    let (server, session) = session(json!([
        one("valid_tool", "string", "Region"),
        one("empty", "string", ""),
        one("object", "object", "Data"),
        one("array", "array", "Items"),
        one("null", "null", "Nil"),
        two("same_case", "Region", "Region"),
        two("other_case", "MyField", "myfield"),
        one("space", "string", "My Region"),
        one("colon", "string", "Region:Primary"),
        one("foreign", "string", "Région"),
        one("control", "string", "Region\t1"),
    ]))
    .await;
    assert_eq!(session.tool_names(), ["mcp__one__valid_tool"]);
    session.call("mcp__one__valid_tool", json!({"value": "eu"})).await.unwrap();
    assert_eq!(server.messages("tools/call")[0].header("mcp-param-region"), Some("eu"));
}

#[tokio::test]
async fn json_schema_ref_no_deref() {
    let canary = "/canary/profile-schema.json";
    let server = HttpServer::start(move |request| {
        if request.path() == canary {
            return Reply::json(&json!({"type": "object"}));
        }
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {"userId": {"type": "string", "pattern": "^[a-z0-9-]+$"}},
            "properties": {"id": {"$ref": "#/$defs/userId"}, "profile": {"$ref": format!("{}{canary}", request.origin())}},
            "required": ["id"],
        });
        answer_mcp(request, &json!([{"name": "lookup_user", "inputSchema": schema}]))
    })
    .await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    let shown = session.definition("mcp__one__lookup_user").input_schema;
    assert_eq!(shown["properties"]["profile"]["$ref"], server.at(canary), "the model sees it as it is");
    session.call("mcp__one__lookup_user", json!({"id": "ada", "profile": {}})).await.unwrap();
    assert_eq!(server.asked(canary).len(), 0, "nothing fetches it");
}

/// The schema of a tool reaches the model with all its keywords.
#[tokio::test]
async fn json_schema_2020_12_preservation() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "address", "type": "object", "properties": {"street": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}, "kind": {"const": "person"}},
        "if": {"properties": {"kind": {"const": "person"}}},
        "then": {"required": ["name"]},
        "else": {"required": ["address"]},
        "additionalProperties": false,
    });
    let (_server, session) = session(json!([{"name": "rich", "inputSchema": schema}])).await;
    assert_eq!(session.definition("mcp__one__rich").input_schema, schema);
}
