//! Servers that ask a person in the middle of a call. The server of the first tests is one of the official SDK.

use std::path::Path;

use conjure_conversation::{
    CallContext, InputAnswer, InputAnswers, InputForm, InputRequest, ProvidedInput, ToolCall, ToolRunOutcome,
    ToolRunner as _,
};
use conjure_mcp::{McpServerSpec, McpTransport, ServerPlace, StdioServer};
use serde_json::{Value, json};
use test_support::Python;

use crate::scripted_http::{HttpServer, Reply, Request};
use crate::support::{Session, spec};
use crate::wire_headers::{answer_mcp, http_spec};
use crate::wire_schema::{check, entry};

/// A session with a server of the SDK; `None` where the SDK is not there.
async fn asking_session() -> Option<Session> {
    sdk_session("asking_server.py").await
}

/// A session with this server of the SDK; `None` where the SDK is not there.
pub(crate) async fn sdk_session(server: &str) -> Option<Session> {
    let python =
        Python::find("CONJURE_ORACLE_PYTHON_MCP", "import mcp.server.mcpserver", "`mcp` 2.3.0").await?;
    Some(Session::start([python_server(&python, server)]).await)
}

/// The server `git`, which is this program.
pub(crate) fn python_server(python: &Python, server: &str) -> McpServerSpec {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/client").join(server);
    let transport = McpTransport::Stdio(StdioServer {
        command: python.program().to_owned(),
        args: vec![program.display().to_string()],
        env: [].into(),
        place: ServerPlace::Sandbox,
        network: None,
    });
    McpServerSpec { transport, ..spec("git", &[]) }
}

async fn run(session: &Session, tool: &str, input: Value, provided: Option<ProvidedInput>) -> ToolRunOutcome {
    let context = CallContext { provided_input: provided, ..CallContext::default() };
    session.toolbox.run(&ToolCall::new("toolu_1", tool, &input), context).await
}

/// What the call asks; it must ask.
pub(crate) async fn asked(
    session: &Session,
    tool: &str,
    input: Value,
    provided: Option<ProvidedInput>,
) -> InputRequest {
    let request = match run(session, tool, input, provided).await {
        ToolRunOutcome::InputRequired(request) => Ok(*request),
        ToolRunOutcome::Ended(result) => Err(result.text()),
    };
    request.unwrap()
}

/// What the call returns; it must not ask.
pub(crate) async fn ended(
    session: &Session,
    tool: &str,
    input: Value,
    provided: Option<ProvidedInput>,
) -> String {
    let text = match run(session, tool, input, provided).await {
        ToolRunOutcome::Ended(result) => Ok(result.text()),
        ToolRunOutcome::InputRequired(request) => Err(request),
    };
    text.unwrap()
}

pub(crate) fn accept(request: &InputRequest, content: Value) -> Option<ProvidedInput> {
    let answer = InputAnswer::Accept { content: Some(content) };
    Some(ProvidedInput { answers: request.answer_all(&answer), state: request.state.clone() })
}

pub(crate) fn message(request: &InputRequest) -> &str {
    &request.questions.values().next().unwrap().message
}

#[tokio::test]
async fn a_question_of_the_official_sdk_is_asked_and_its_answer_reaches_the_tool() {
    let Some(session) = asking_session().await else { return };
    let (tool, input) = ("mcp__git__delete_branch", json!({"remote": "origin"}));
    let request = asked(&session, tool, input.clone(), None).await;
    assert_eq!((request.asked_by.as_str(), message(&request)), ("git", "Which branch?"));
    let question = request.questions.values().next().unwrap();
    let InputForm::Form { requested_schema } = &question.form else { panic!("{question:?}") };
    assert_eq!(requested_schema["properties"]["name"]["type"], "string");

    // Another process of the server gets the answer: nothing but the record is needed to go on.
    let Some(later) = asking_session().await else { return };
    let answer = accept(&request, json!({"name": "old", "force": true}));
    assert_eq!(ended(&later, tool, input.clone(), answer).await, "deleted origin/old force=True");
    let declined = |answer: &InputAnswer| {
        Some(ProvidedInput { answers: request.answer_all(answer), state: request.state.clone() })
    };
    let text = ended(&later, tool, input.clone(), declined(&InputAnswer::Decline)).await;
    assert_eq!(text, "nothing deleted: decline");
    let text = ended(&later, tool, input, declined(&InputAnswer::Cancel)).await;
    assert_eq!(text, "nothing deleted: cancel");
}

#[tokio::test]
async fn a_tool_may_ask_again() {
    let Some(session) = asking_session().await else { return };
    let first = asked(&session, "mcp__git__explain", json!({}), None).await;
    let answer = accept(&first, json!({"name": "old"}));
    let second = asked(&session, "mcp__git__explain", json!({}), answer).await;
    assert_eq!(message(&second), "Why old?");
    let answer = accept(&second, json!({"reason": "merged"}));
    assert_eq!(ended(&session, "mcp__git__explain", json!({}), answer).await, "old: merged");
}

/// A service by HTTP whose tool `ask` is answered like this.
async fn scripted(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> (HttpServer, Session) {
    let tools = json!([{"name": "ask", "inputSchema": {"type": "object"}}]);
    let server = HttpServer::start(move |request| {
        if request.method == "POST" && request.rpc_method().as_deref() == Some("tools/call") {
            let message = request.message();
            return Reply::result(&message, &answer(&message["params"]));
        }
        answer_mcp(request, &tools)
    })
    .await;
    let session = Session::start([http_spec(&server.at("/mcp"), None)]).await;
    (server, session)
}

fn form(message: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

#[tokio::test]
async fn sep_2322_client_request_state() {
    let (server, session) = scripted(|params| match params["requestState"].as_str() {
        None => json!({"resultType": "input_required", "requestState": "first"}),
        Some("first") => {
            let requests = json!({"one": form("Which?")});
            json!({"resultType": "input_required", "inputRequests": requests, "requestState": "second"})
        }
        Some(state) => {
            let text = format!("{state} {}", params["inputResponses"]);
            json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
        }
    })
    .await;
    let request = asked(&session, "mcp__one__ask", json!({"a": 1}), None).await;
    let text =
        ended(&session, "mcp__one__ask", json!({"a": 1}), accept(&request, json!({"name": "x"}))).await;
    assert_eq!(text, r#"second {"one":{"action":"accept","content":{"name":"x"}}}"#);
    let calls: Vec<Value> = server.messages("tools/call").iter().map(Request::message).collect();
    let states: Vec<&Value> = calls.iter().map(|call| &call["params"]["requestState"]).collect();
    assert_eq!(states, [&Value::Null, &json!("first"), &json!("second")]);
    let ids: std::collections::HashSet<String> = calls.iter().map(|call| call["id"].to_string()).collect();
    assert_eq!(ids.len(), 3, "each try has an id of its own");
    assert!(calls.iter().all(|call| call["params"]["arguments"] == json!({"a": 1})), "{calls:?}");
    let entries: Vec<Value> = calls.iter().map(|call| entry("client", None, call)).collect();
    check(&entries).await;
}

#[tokio::test]
async fn questions_that_no_person_should_see_are_refused() {
    let ask = |requests: Value| json!({"resultType": "input_required", "inputRequests": requests});
    let page = |url: &str| json!({"a": {"method": "elicitation/create", "params": {"mode": "url", "message": "Go", "url": url}}});
    let many: serde_json::Map<String, Value> = (0..100).map(|id| (id.to_string(), form("?"))).collect();
    for (answer, expected) in [
        (ask(page("javascript:alert(1)")), "an address that is no web page"),
        (ask(Value::Object(many)), "asks 100 questions at once"),
        (ask(json!({"a": {"method": "roots/list"}})), "what this client does not offer"),
        (ask(json!({"a": {"method": "roots/list"}, "b": form("?")})), "a person and this client at once"),
        (json!({"resultType": "input_required", "requestState": "again"}), "again and again"),
        (
            json!({"resultType": "input_required", "inputRequests": {"a": form("?")}, "requestState": "x".repeat(300_000)}),
            "bytes of state",
        ),
    ] {
        let (_server, session) = scripted(move |_| answer.clone()).await;
        let text = ended(&session, "mcp__one__ask", json!({}), None).await;
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (_server, session) = scripted(move |_| ask(json!({"a": form("a\u{1b}[2Jb")}))).await;
    let request = asked(&session, "mcp__one__ask", json!({}), None).await;
    assert_eq!(message(&request), "a\\u{1b}[2Jb", "nothing that moves a cursor");
    let nothing = Some(ProvidedInput { answers: InputAnswers::new(), state: None });
    asked(&session, "mcp__one__ask", json!({}), nothing).await;
}
