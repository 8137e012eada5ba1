//! Each message that the client sends is one of the specification's schema.

use std::path::Path;

use conjure_mcp::{McpServerSpec, McpTransport, ServerPlace, StdioServer};
use serde_json::{Value, json};
use test_support::Python;

use crate::scripted_http::HttpServer;
use crate::support::{Session, spec, wait};
use crate::wire_headers::{answer_mcp, http_spec};

/// A message, who sent it, and the method of the request that it answers.
pub(crate) fn entry(from: &str, answers: Option<&str>, message: &Value) -> Value {
    json!({"from": from, "answers": answers, "message": message})
}

/// What is wrong with these messages; `None` where nothing can tell. The official SDK's types of the revision decide.
async fn problems(entries: &[Value]) -> Option<Vec<String>> {
    let check = "import jsonschema, mcp_types._v2026_07_28";
    let packages = "`mcp` 2.3.0 and `jsonschema`";
    let python = Python::find("CONJURE_ORACLE_PYTHON_MCP", check, packages).await?;
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/wire_schema.py");
    let problems = python.run_json(&[program.to_str().unwrap()], &json!(entries)).await;
    serde_json::from_value(problems).unwrap()
}

/// Checks that these messages fit the schema.
pub(crate) async fn check(entries: &[Value]) {
    let problems = problems(entries).await.unwrap_or_default();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// The methods of these messages, each once.
fn methods(messages: &[Value]) -> Vec<String> {
    let mut methods: Vec<String> =
        messages.iter().filter_map(|message| message["method"].as_str().map(str::to_owned)).collect();
    methods.sort();
    methods.dedup();
    methods
}

#[tokio::test]
async fn messages_by_standard_streams_fit_the_schema() {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client/newest_server.py");
    let transport = McpTransport::Stdio(StdioServer {
        command: "python3".to_owned(),
        args: [&program, &record].map(|path| path.display().to_string()).into(),
        env: [].into(),
        place: ServerPlace::Sandbox,
        network: None,
    });
    let server =
        McpServerSpec { transport, tool_timeout: std::time::Duration::from_millis(300), ..spec("one", &[]) };
    let session = Session::start([server]).await;
    assert_eq!(session.tool_names(), ["mcp__one__echo", "mcp__one__wait"]);
    session.call("mcp__one__echo", json!({"text": "ä"})).await.unwrap();
    // The timeout cancels the call at the server.
    session.call("mcp__one__wait", json!({})).await.unwrap_err();
    let read = || -> Vec<Value> {
        let lines = std::fs::read_to_string(&record).unwrap();
        // The last line may be written just now.
        let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let expected =
        ["notifications/cancelled", "server/discover", "subscriptions/listen", "tools/call", "tools/list"];
    wait(|| methods(&read()).len() >= expected.len()).await;
    let sent = read();
    assert_eq!(methods(&sent), expected);
    let entries: Vec<Value> = sent.iter().map(|message| entry("client", None, message)).collect();
    check(&entries).await;
}

#[tokio::test]
async fn messages_by_http_fit_the_schema() {
    let tools = json!([{"name": "echo", "inputSchema": {"type": "object"}}]);
    let server = HttpServer::start(move |request| answer_mcp(request, &tools)).await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    session.call("mcp__one__echo", json!({"text": "ä"})).await.unwrap();
    let sent: Vec<Value> = server
        .requests()
        .iter()
        .filter(|request| request.method == "POST")
        .map(crate::scripted_http::Request::message)
        .collect();
    assert_eq!(methods(&sent), ["server/discover", "tools/call", "tools/list"]);
    let entries: Vec<Value> = sent.iter().map(|message| entry("client", None, message)).collect();
    check(&entries).await;
}

#[tokio::test]
async fn a_message_that_does_not_fit_the_schema_is_found() {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let request =
        |params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let result = |result: Value| json!({"jsonrpc": "2.0", "id": 1, "result": result});
    let good = [
        entry("client", None, &request(json!({"name": "echo", "_meta": meta}))),
        entry("server", Some("tools/call"), &result(json!({"resultType": "complete", "content": []}))),
    ];
    let bad = [
        entry("client", None, &request(json!({"_meta": meta}))),
        entry("client", None, &request(json!({"name": "echo"}))),
        entry("client", None, &request(json!({"name": 1, "_meta": meta}))),
        entry(
            "client",
            None,
            &json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": meta}}),
        ),
        entry("client", None, &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        entry("server", Some("tools/call"), &result(json!({"content": []}))),
        entry("server", Some("tools/list"), &result(json!({"resultType": "complete", "tools": []}))),
        entry("server", Some("tools/list"), &json!({"jsonrpc": "2.0", "id": 1, "error": {"code": "no"}})),
    ];
    for (entries, are_good) in [(good.as_slice(), true), (bad.as_slice(), false)] {
        for one in entries {
            let Some(problems) = problems(std::slice::from_ref(one)).await else { return };
            assert_eq!(problems.is_empty(), are_good, "{one}: {problems:?}");
        }
    }
}

/// The page of scenarios names only tests that are there.
#[test]
fn the_tests_that_the_page_of_scenarios_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/mcp-conformance.md")).unwrap();
    let names: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let (file, test) = name.split_once("::").unwrap();
        let dir = if file == "mcp_http" { "../../tests/sdk" } else { "tests/client" };
        let code = std::fs::read_to_string(root.join(dir).join(format!("{file}.rs"))).unwrap();
        assert!(code.contains(&format!("fn {test}()")), "there is no test {name}");
    }
    for row in page.lines().filter(|row| row.contains("| passes")) {
        assert!(row.contains("::"), "no test shows it: {row}");
    }
}
