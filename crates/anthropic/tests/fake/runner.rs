//! Our loop and the SDK's `tool_runner(thread=False)` over the same turns: the bodies that they send are equal.
//!
//! Left out of the comparison is what each side is free to choose: `system`, `stream`, `metadata`, cache marks, and
//! `is_error: false`, which says nothing. Messages of one role in a row are one, as they are for the service: after a
//! pause the SDK sends two where we send one. Numbers and texts are compared as JSON values.

use std::sync::Arc;

use conjure_anthropic::fake::{FakeMessages, RecordedRequest, Reply};
use conjure_anthropic::{Caching, Client, Config, ModelOptions};
use conjure_conversation::{
    Authorization, Block, CallConcurrency, CallContext, CallTraits, LoopOptions, Message, PromptPrefix,
    Response, ResultContent, SessionView, StopReason, ToolCall, ToolDefinition, ToolResult, ToolRunOutcome,
    ToolRunner, Usage, run_loop,
};
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::oracle::{ask, oracle};
use crate::support::{KEY, call, start};

/// A dot, as PNG in base64.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const QUESTION: &str = "Which weather is it?";
const MAX_TOKENS: u32 = 1000;

/// The tools of both sides; `oracle.py` has the same.
pub(crate) struct Tools;

impl ToolRunner for Tools {
    fn traits(&self, _: &ToolCall) -> CallTraits {
        CallTraits { concurrency: CallConcurrency::Shared, idempotent: true }
    }

    fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Allow })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        Box::pin(async {
            let result = match call.name.as_str() {
                "weather" => {
                    let city = call.input_value()["city"].as_str().unwrap().to_owned();
                    ToolResult::text_result(&call.id, format!("sunny in {city}"))
                }
                "picture" => ToolResult {
                    content: vec![
                        ResultContent::Text { text: "a dot".to_owned() },
                        ResultContent::Image { media_type: "image/png".to_owned(), data: IMAGE.to_owned() },
                    ],
                    ..ToolResult::text_result(&call.id, "")
                },
                "broken" => ToolResult::error(&call.id, "it broke"),
                other => ToolResult::error(&call.id, format!("Error: Tool '{other}' not found")),
            };
            result.into()
        })
    }
}

fn tools() -> Vec<ToolDefinition> {
    let tool = |name: &str, input_schema: Value| ToolDefinition {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        input_schema,
    };
    let empty_schema = || json!({"type": "object", "properties": {}});
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    vec![tool("weather", city), tool("broken", empty_schema()), tool("picture", empty_schema())]
}

fn stopping(content: Vec<Block>, stop_reason: StopReason) -> Reply {
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    Reply::answer(Response { usage, ..Response::new(content, stop_reason) })
}

fn raw(value: &Value) -> Block {
    Block::from_json(value.to_string()).unwrap()
}

fn paris(id: &str) -> Block {
    call(id, "weather", &json!({"city": "Paris"}))
}

fn done() -> Reply {
    Reply::blocks(vec![Block::text("Done.")])
}

/// Each case, and how many requests each side makes in it.
fn cases() -> Vec<(&'static str, Vec<Reply>, usize)> {
    let thinking = json!({"type": "thinking", "thinking": "hmm ☃", "signature": "c2lnbmVk"});
    let redacted = json!({"type": "redacted_thinking", "data": "eHl6"});
    let server =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    vec![
        (
            "parallel tools",
            vec![
                Reply::blocks(vec![
                    Block::text("I look."),
                    paris("toolu_1"),
                    call("toolu_2", "weather", &json!({"city": "Łódź \"1\"\n"})),
                    call("toolu_3", "picture", &json!({})),
                ]),
                Reply::blocks(vec![paris("toolu_4")]),
                done(),
            ],
            3,
        ),
        ("an error result", vec![Reply::blocks(vec![call("toolu_1", "broken", &json!({}))]), done()], 2),
        (
            "an error beside a good result, and an unknown tool",
            vec![
                Reply::blocks(vec![
                    call("toolu_1", "broken", &json!({})),
                    paris("toolu_2"),
                    call("toolu_3", "nobody", &json!({"x": [1, 2.5, null]})),
                ]),
                done(),
            ],
            2,
        ),
        ("an image result", vec![Reply::blocks(vec![call("toolu_1", "picture", &json!({}))]), done()], 2),
        ("thinking", vec![Reply::blocks(vec![raw(&thinking), raw(&redacted), paris("toolu_1")]), done()], 2),
        (
            "max_tokens inside a tool call",
            vec![
                stopping(vec![Block::text("I"), paris("toolu_1")], StopReason::MaxTokens)
                    .with_unfinished_input(2),
            ],
            1,
        ),
        ("max_tokens behind a tool call", vec![stopping(vec![paris("toolu_1")], StopReason::MaxTokens)], 1),
        (
            "pause_turn",
            vec![
                stopping(vec![Block::text("I search."), raw(&server), raw(&found)], StopReason::PauseTurn),
                stopping(vec![Block::text("More.")], StopReason::PauseTurn),
                Reply::blocks(vec![paris("toolu_1")]),
                done(),
            ],
            4,
        ),
        ("refusal", vec![stopping(vec![Block::text("No."), paris("toolu_1")], StopReason::Refusal)], 1),
        (
            "unknown blocks",
            vec![
                Reply::blocks(vec![
                    raw(
                        &json!({"type": "of_next_year", "deep": {"b": [1, {"a": null}], "a": 1.5}, "text": "x"}),
                    ),
                    paris("toolu_1"),
                ]),
                done(),
            ],
            2,
        ),
        ("no reason, with a call", vec![stopping(vec![paris("toolu_1")], StopReason::Missing)], 1),
        (
            "a reason of next year",
            vec![stopping(vec![paris("toolu_1")], StopReason::Unknown("whim".to_owned()))],
            1,
        ),
    ]
}

/// The body as far as both sides must agree on it.
fn compared(request: &RecordedRequest) -> Value {
    let mut body: Value = serde_json::from_slice(request.body()).unwrap();
    let fields = body.as_object_mut().unwrap();
    for own in ["system", "stream", "metadata"] {
        fields.remove(own);
    }
    strip(&mut body);
    let mut joined: Vec<Value> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        match joined.last_mut().filter(|last| last["role"] == message["role"]) {
            Some(last) => {
                let more = message["content"].as_array().unwrap().clone();
                last["content"].as_array_mut().unwrap().extend(more);
            }
            None => joined.push(message.clone()),
        }
    }
    body["messages"] = joined.into();
    body
}

/// Removes empty fields everywhere except in inputs.
fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            if fields.get("is_error") == Some(&Value::Bool(false)) {
                fields.remove("is_error");
            }
            fields.iter_mut().filter(|(name, _)| *name != "input").for_each(|(_, value)| strip(value));
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

async fn run_ours(fake: &FakeMessages) {
    let config = Config::new(SecretString::from(KEY)).with_base_url(fake.base_url());
    let options = ModelOptions::new("m").with_max_tokens(MAX_TOKENS).with_caching(Caching::FiveMinutes);
    let model = Client::new(&config).unwrap().messages(options).unwrap();
    let composition = PromptPrefix { instructions: vec!["Be brief.".to_owned()], tools: Arc::from(tools()) };
    let question = Message::user(vec![Block::text(QUESTION)]);
    run_loop(vec![question], &model, &composition, &Tools, LoopOptions::default()).await.unwrap();
}

#[tokio::test]
async fn our_loop_and_the_sdks_send_equal_bodies() {
    let Some(python) = oracle().await else { return };
    let mut sides = Vec::new();
    let mut inputs = Vec::new();
    for (name, turns, expected) in cases() {
        let own = start(FakeMessages::builder().turns(turns.clone())).await;
        run_ours(&own).await;
        let own: Vec<Value> = own.requests().iter().map(compared).collect();
        assert_eq!(own.len(), expected, "{name}: ours");
        for stream in [false, true] {
            let sdk_server = start(FakeMessages::builder().turns(turns.clone())).await;
            inputs.push(json!({
                "url": sdk_server.base_url(), "key": KEY, "stream": stream, "question": QUESTION, "image": IMAGE,
                "max_tokens": MAX_TOKENS, "tools": tools(),
            }));
            sides.push((format!("{name}, streamed by the SDK: {stream}"), own.clone(), sdk_server));
        }
    }
    // One process for all, since the SDK takes long to load.
    ask(&python, "runners", &inputs.into()).await;
    for (name, own, sdk_server) in sides {
        let requests = sdk_server.requests();
        for request in &requests {
            assert_eq!(request.status(), Some(200), "{name}: {}", String::from_utf8_lossy(request.body()));
        }
        assert_eq!(own, requests.iter().map(compared).collect::<Vec<_>>(), "{name}");
    }
}
