//! The official Python SDK as the oracle: it accepts our bodies and reads streams as we do.
//!
//! The interpreter is `CONJURE_ORACLE_PYTHON`, else `python3`; it must have `anthropic` 2.x. Without it the tests say
//! `SKIPPED`, or fail where `CONJURE_TEST_REQUIRE=all`.

use std::sync::Arc;

use conjure_anthropic::{Caching, Client, ModelOptions};
use conjure_base::{CallId, ContainerId};
use conjure_conversation::{
    Block, Message, Model, Request, Response, ResultContent, ToolDefinition, ToolResult,
};
use serde_json::{Value, json};
use test_support::Python;

use crate::clock::ManualClock;
use crate::events::{block, delta, end, input_delta, message, ping, sse, start, stop, text_delta};
use crate::server::{Server, stream};
use crate::support::{MODEL, ask, config, drain};

/// Checks every body it is given against the SDK's own types, down to the last lazy iterable.
const CHECK_BODIES: &str = r#"
import json, sys
from pydantic import TypeAdapter
if sys.argv[1] == "beta":
    from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
else:
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
KNOWN = set(MessageCreateParamsStreaming.__annotations__) | {
    name for base in MessageCreateParamsStreaming.__orig_bases__ for name in base.__annotations__}
def walk(value):
    if isinstance(value, dict):
        return {key: walk(item) for key, item in value.items()}
    if isinstance(value, (str, bytes, int, float, bool)) or value is None:
        return value
    return [walk(item) for item in value]
adapter = TypeAdapter(MessageCreateParamsNonStreaming)
for line in sys.stdin:
    body = json.loads(line)
    assert set(body) <= KNOWN, set(body) - KNOWN
    assert body.pop("stream") is True
    seen = walk(adapter.validate_python(body))
    assert len(seen["messages"]) == len(body["messages"])
    print("ok")
"#;

/// Says whether the SDK's beta types refuse a body.
const NO_BODY: &str = r#"
import json, sys
from pydantic import TypeAdapter, ValidationError
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
body = json.loads(sys.stdin.readline())
body.pop("stream")
# Its lists are looked at when they are read, by what must be there then.
adapter = TypeAdapter(MessageCreateParamsNonStreaming)
try:
    seen = adapter.validate_python(body)
    list(seen["context_management"]["edits"])
    print("yes")
except ValidationError:
    print("no")
"#;

/// Streams one message for each line of input and prints what the SDK made of it.
const READ_STREAMS: &str = r#"
import json, sys
from anthropic import Anthropic
client = Anthropic(api_key="sk-test", base_url=sys.argv[1], max_retries=0)
for line in sys.stdin:
    with client.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": line.strip()}]) as stream:
        message = stream.get_final_message()
    print(json.dumps(message.to_dict(mode="json"), ensure_ascii=True))
"#;

/// A Python that has the SDK of one profile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sdk {
    /// The variable that names the interpreter.
    variable: &'static str,
    /// The modules that it must import.
    check: &'static str,
    install: &'static str,
}

/// Of the current profile.
pub(crate) const CURRENT: Sdk = Sdk {
    variable: "CONJURE_ORACLE_PYTHON",
    check: "import anthropic; assert anthropic.__version__ >= '2'",
    install: "`anthropic==2.11.0`",
};

/// Of the beta profile, which is older.
pub(crate) const BETA: Sdk = Sdk {
    variable: "CONJURE_ORACLE_PYTHON_BETA",
    check: "import anthropic; assert anthropic.__version__ < '1'",
    install: "`anthropic==0.97.0`",
};

/// The output lines of the script; `None` without the SDK.
async fn python(script: &str, argument: &str, input: String) -> Option<Vec<String>> {
    CURRENT.run(script, argument, input).await
}

impl Sdk {
    /// The output lines of the script; `None` without this SDK.
    pub(crate) async fn run(self, script: &str, argument: &str, input: String) -> Option<Vec<String>> {
        let python = Python::find(self.variable, self.check, self.install).await?;
        let printed = python.run(&["-c", script, argument], &input).await;
        Some(printed.lines().map(str::to_owned).collect())
    }
}

fn parsed(json: &str) -> Block {
    Block::from_json(json).unwrap()
}

/// A conversation with every kind of block that we send.
fn long_request() -> Request {
    let tool = |name: &str| ToolDefinition {
        name: name.to_owned(),
        description: "Does it.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
    };
    let id = |text: &str| CallId::new(text);
    let image = ToolResult {
        content: vec![
            ResultContent::Text { text: "a picture".to_owned() },
            ResultContent::Image { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() },
        ],
        ..ToolResult::text_result(&id("b"), "")
    };
    let messages = vec![
        Message::user(vec![Block::text("Hi"), Block::text("there \u{1F980}")]),
        Message::assistant(vec![
            parsed(r#"{"type":"thinking","thinking":"Hm","signature":"sig"}"#),
            parsed(r#"{"type":"redacted_thinking","data":"AAA="}"#),
            Block::text("I look."),
            parsed(r#"{"type":"tool_use","id":"a","name":"view","input":{"path":"/a"}}"#),
            parsed(r#"{"type":"tool_use","id":"b","name":"view","input":{}}"#),
            parsed(r#"{"type":"tool_use","id":"c","name":"view","input":{"INVALID_JSON":"{"}}"#),
        ]),
        Message::user(vec![
            Block::tool_result(&ToolResult::text_result(&id("a"), "text")),
            Block::tool_result(&image),
            Block::tool_result(&ToolResult::error(&id("c"), "not JSON")),
            Block::text("and hurry"),
        ]),
        Message::assistant(vec![parsed(
            r#"{"type":"server_tool_use","id":"s","name":"code_execution","input":{"code":"1"}}"#,
        )]),
        Message::user(vec![Block::text("go on")]),
    ];
    Request {
        tools: Arc::from([tool("view"), tool("bash_tool")]),
        messages: messages.into_iter().map(Arc::new).collect(),
        ..ask("Hi")
    }
}

#[tokio::test]
async fn our_bodies_pass_the_types_of_the_official_sdk() {
    let server = Server::always("").await;
    let client = Client::with_clock(&config(&server), Arc::new(ManualClock::new())).unwrap();
    let plain = ModelOptions::new(MODEL);
    let rich = plain
        .clone()
        .with_caching(Caching::OneHour)
        .with_field("thinking", json!({"type": "enabled", "budget_tokens": 2048}))
        .and_then(|options| options.with_field("metadata", json!({"user_id": "u"})))
        .and_then(|options| options.with_field("tool_choice", json!({"type": "auto"})))
        .and_then(|options| options.with_field("container", json!({"id": "container_1"})))
        .and_then(|options| options.with_field("stop_sequences", json!(["END"])))
        .unwrap()
        .with_server_tool(json!({"type": "code_execution_20250825", "name": "code_execution"}));
    let mut bodies = Vec::new();
    for options in [plain.clone(), plain.with_caching(Caching::Off), rich] {
        let messages = client.messages(options).unwrap();
        for request in [ask("Hi"), long_request()] {
            bodies.push(String::from_utf8(messages.body(&request)).unwrap());
        }
    }
    let Some(verdicts) = python(CHECK_BODIES, "", bodies.join("\n")).await else { return };
    assert_eq!(verdicts, vec!["ok"; bodies.len()]);
}

#[tokio::test]
async fn bodies_that_ask_for_compaction_pass_the_types_of_the_official_sdk() {
    let server = Server::always("").await;
    let client = Client::with_clock(&config(&server), Arc::new(ManualClock::new())).unwrap();
    let tokens = std::num::NonZeroU64::new(100_000).unwrap();
    let clear = json!({"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]});
    let plain = ModelOptions::new(MODEL).with_compaction(tokens);
    let beside = plain.clone().with_field("context_management", clear).unwrap();
    let mut request = long_request();
    let mut answer = Message::clone(&request.messages[3]);
    answer.content.push(parsed(r#"{"type":"compaction","content":"In short.","encrypted_content":"AA=="}"#));
    request.messages[3] = Arc::new(answer);
    let body = |options| String::from_utf8(client.messages(options).unwrap().body(&request)).unwrap();
    let bodies = [body(plain), body(beside)];
    let edit = r#"{"trigger":{"type":"input_tokens","value":100000},"type":"compact_20260112"}"#;
    let sorted = bodies[0].contains(&format!(r#""context_management":{{"edits":[{edit}]}}"#));
    let written = r#"{"type":"compact_20260112","trigger":{"type":"input_tokens","value":100000}}"#;
    assert!(sorted || bodies[0].contains(written), "{}", bodies[0]);
    let Some(verdicts) = python(CHECK_BODIES, "beta", bodies.join("\n")).await else { return };
    assert_eq!(verdicts, vec!["ok"; bodies.len()]);
    // The judge can say no.
    let refused = bodies[0].replace("input_tokens\"", "pages\"");
    assert_ne!(refused, bodies[0]);
    let judged = python(NO_BODY, "", refused).await.unwrap();
    assert_eq!(judged, ["no"]);
}

/// Streams that both must read alike.
fn streams() -> Vec<(&'static str, String)> {
    let tool = |id: &str| json!({"type": "tool_use", "id": id, "name": "view", "input": {}});
    let text = || block(0, json!({"type": "text", "text": ""}));
    let mut paused = end("pause_turn");
    paused[0]["delta"]["container"] = json!({"id": "container_1", "expires_at": "2026-11-21T00:00:00Z"});
    let mut refused = end("refusal");
    refused[0]["usage"] = json!({"output_tokens": 0, "input_tokens": 11, "cache_read_input_tokens": null});
    let pause: Vec<Value> =
        [start(), text(), text_delta(0, "Working"), stop(0)].into_iter().chain(paused).collect();
    let refusal: Vec<Value> =
        [start(), text(), text_delta(0, "I"), stop(0)].into_iter().chain(refused).collect();
    vec![
        (
            "text",
            message(
                vec![text(), ping(), text_delta(0, "Hel"), text_delta(0, "lo \u{1F980}"), stop(0)],
                "end_turn",
            ),
        ),
        (
            "parallel tools",
            message(
                vec![
                    text(),
                    text_delta(0, "Both."),
                    stop(0),
                    block(1, tool("a")),
                    input_delta(1, ""),
                    input_delta(1, "{\"path\": \"/\u{e9}"),
                    input_delta(1, "\", \"n\": 1.50}"),
                    stop(1),
                    block(2, tool("b")),
                    input_delta(2, ""),
                    stop(2),
                ],
                "tool_use",
            ),
        ),
        (
            "thinking and its signature",
            message(
                vec![
                    block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
                    delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})),
                    delta(0, json!({"type": "thinking_delta", "thinking": "m."})),
                    delta(0, json!({"type": "signature_delta", "signature": "EqQB=="})),
                    stop(0),
                    block(1, json!({"type": "redacted_thinking", "data": "AAA="})),
                    stop(1),
                ],
                "end_turn",
            ),
        ),
        (
            "an unknown block",
            message(
                vec![block(0, json!({"type": "from_next_year", "x": {"y": [1, 2.5]}, "text": "a"})), stop(0)],
                "end_turn",
            ),
        ),
        (
            "max_tokens inside a tool call",
            message(
                vec![
                    block(0, tool("a")),
                    input_delta(0, "{\"path\": \"/a\", \"list\": [1, {\"b\": tru"),
                    stop(0),
                ],
                "max_tokens",
            ),
        ),
        (
            "max_tokens inside a tool call, without its stop",
            message(
                vec![block(0, tool("a")), input_delta(0, "{\"path\": \"/a\", \"text\": \"hel")],
                "max_tokens",
            ),
        ),
        ("pause_turn with a container", sse(&pause)),
        ("refusal with usage overwritten", sse(&refusal)),
        (
            "citations",
            message(
                vec![
                    block(0, json!({"type": "text", "text": "", "citations": []})),
                    text_delta(0, "So it is."),
                    delta(
                        0,
                        json!({"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x",
                        "document_index": 0, "document_title": null, "start_char_index": 0, "end_char_index": 1, "file_id": null}}),
                    ),
                    delta(
                        0,
                        json!({"type": "citations_delta", "citation": {"type": "from_next_year", "x": 1}}),
                    ),
                    stop(0),
                ],
                "end_turn",
            ),
        ),
        (
            "tools of the service",
            message(
                vec![
                    block(
                        0,
                        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}),
                    ),
                    input_delta(0, ""),
                    input_delta(0, "{\"code\": \"1+1\"}"),
                    stop(0),
                    block(
                        1,
                        json!({"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {
                        "type": "bash_code_execution_result", "stdout": "2\n", "stderr": "", "return_code": 0, "content": [
                            {"type": "bash_code_execution_output", "file_id": "file_1"}]}}),
                    ),
                    stop(1),
                ],
                "end_turn",
            ),
        ),
        (
            "carriage returns and spaces",
            message(vec![text(), text_delta(0, "a"), stop(0)], "end_turn").replace("\n\n", "  \r\n\r\n"),
        ),
    ]
}

/// The fields that both sides must agree on.
fn essence(response: &Response) -> Value {
    json!({
        "id": response.id,
        "model": response.model,
        "content": response.content,
        "stop_reason": response.stop_reason,
        "input_tokens": response.usage.input_tokens,
        "output_tokens": response.usage.output_tokens,
        "cache_creation_input_tokens": response.usage.cache_creation_input_tokens,
        "cache_read_input_tokens": response.usage.cache_read_input_tokens,
        "container": response.container.as_ref().map(ContainerId::as_str),
    })
}

#[tokio::test]
async fn the_official_sdk_reads_our_streams_as_we_do() {
    let all = streams();
    let bodies: Vec<String> = all.iter().map(|(_, body)| body.clone()).collect();
    // Each request names in its text which stream it wants.
    let server = Server::start(move |_, request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let content = &body["messages"][0]["content"];
        let wanted = content.as_str().or_else(|| content[0]["text"].as_str()).unwrap();
        vec![crate::server::Part::Bytes(stream(&bodies[wanted.parse::<usize>().unwrap()]))]
    })
    .await;
    let input: String = (0..all.len()).map(|location| format!("{location}\n")).collect();
    let Some(sdk_result) = python(READ_STREAMS, &server.url(), input).await else { return };
    assert_eq!(sdk_result.len(), all.len());
    let client = Client::with_clock(&config(&server), Arc::new(ManualClock::new())).unwrap();
    let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
    for (location, (name, _)) in all.iter().enumerate() {
        let sdk_result: Value = serde_json::from_str(&sdk_result[location]).unwrap();
        let usage = &sdk_result["usage"];
        let sdk_result = json!({
            "id": sdk_result["id"],
            "model": sdk_result["model"],
            "content": sdk_result["content"],
            "stop_reason": sdk_result["stop_reason"],
            "input_tokens": usage["input_tokens"],
            "output_tokens": usage["output_tokens"],
            "cache_creation_input_tokens": usage["cache_creation_input_tokens"],
            "cache_read_input_tokens": usage["cache_read_input_tokens"],
            "container": sdk_result["container"]["id"],
        });
        let actual = drain(messages.stream(ask(&location.to_string()))).await.1.unwrap();
        assert_eq!(essence(&actual), sdk_result, "{name}");
    }
}
