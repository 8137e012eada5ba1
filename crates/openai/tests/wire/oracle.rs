//! The official Python SDK as the oracle: of our requests, and of what the fake streams.

use std::sync::Arc;

use conjure_base::CallId;
use conjure_conversation::{
    ApiErrorKind, Block, Message, Model as _, Request, ResultContent, StopReason, ToolDefinition, ToolResult,
};
use conjure_openai::fake::{FakeError, FakeOpenAi, Reply};
use conjure_openai::{Chat, Responses};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use test_support::Python;

use crate::support::{KEY, answered, ask, body, call, client, request, result, start, thinking, user};

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/oracle.py");

async fn python() -> Option<Python> {
    let check = "import openai; assert openai.__version__ >= '3.54'";
    Python::find("CONJURE_ORACLE_PYTHON", check, "`openai==3.54.0`").await
}

fn tools(names: &[&str]) -> Arc<[ToolDefinition]> {
    let tool = |name: &&str| ToolDefinition {
        name: (*name).to_owned(),
        description: "Does it.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}),
    };
    names.iter().map(tool).collect()
}

/// The conversations that the SDK's program sends, too.
fn conversations() -> Vec<Request> {
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let picture = Block::from_json(picture.to_string()).unwrap();
    let history = vec![
        Message::user(vec![Block::text("Look:"), picture]),
        Message::assistant(vec![
            thinking("Hm"),
            Block::text("I look."),
            call("a", "bash", &json!({"command": "ls"})),
            call("b", "view", &json!({})),
        ]),
        Message::user(vec![
            Block::tool_result(&ToolResult::error(&CallId::new("a"), "no")),
            result("b", "seen"),
            Block::text("and hurry"),
        ]),
    ];
    vec![
        Request { tools: tools(&[]), ..request(vec![user("Hi")]) },
        Request { tools: tools(&["bash", "view"]), ..request(vec![user("Hi")]) },
        Request { tools: tools(&["bash", "view"]), ..request(history) },
    ]
}

#[tokio::test]
async fn our_requests_are_what_a_user_of_the_sdk_would_send() {
    let Some(python) = python().await else { return };
    let fake =
        start(FakeOpenAi::builder().faults((0..12).map(|_| Reply::blocks(vec![Block::text("x")])))).await;
    let sent = python.run_json(&[ORACLE, "send", &fake.base_url(), KEY], &json!({})).await;
    assert_eq!((sent, fake.received()), (json!("ok"), 6));
    for (place, request) in conversations().into_iter().enumerate() {
        let mut chat = Chat::options("m");
        let mut responses = Responses::options("m");
        if place == 1 {
            chat = chat.with_max_tokens(100).with_parallel_tool_calls(false);
            chat = chat.with_field("temperature", json!(0.5)).unwrap();
            responses = responses.with_max_tokens(100).with_parallel_tool_calls(false);
            responses = responses.with_field("temperature", json!(0.5)).unwrap();
        }
        ask(&Chat::new(client(&fake), chat), request.clone()).await.unwrap();
        ask(&Responses::new(client(&fake), responses), request).await.unwrap();
        assert_eq!(body(&fake, 6 + 2 * place), body(&fake, place), "Chat, conversation {place}");
        assert_eq!(body(&fake, 7 + 2 * place), body(&fake, 3 + place), "Responses, conversation {place}");
    }
    for request in fake.requests() {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert_eq!(request.status(), Some(200));
    }
}

#[tokio::test]
async fn our_bodies_pass_the_types_of_the_sdk() {
    let Some(python) = python().await else { return };
    let turns = [
        Reply::blocks(vec![
            thinking("Hm"),
            Block::text("I run."),
            call("call_1", "bash", &json!({"command": "x"})),
        ]),
        Reply::blocks(vec![Block::text("Done.")]),
    ];
    let fake = start(FakeOpenAi::builder().turns(turns)).await;
    let image = ResultContent::Image { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
    let chat = Chat::new(client(&fake), Chat::options("m"));
    let responses = Responses::new(client(&fake), Responses::options("m"));
    let mut bodies = Vec::new();
    for request in conversations() {
        bodies.push(json!(["chat", serde_json::from_slice::<Value>(&chat.body(&request)).unwrap()]));
        bodies
            .push(json!(["responses", serde_json::from_slice::<Value>(&responses.body(&request)).unwrap()]));
    }
    // With answers in their native form, and an image in a result.
    for (name, first) in [
        ("chat", ask(&chat, request(vec![user("Hi")])).await.unwrap()),
        ("responses", ask(&responses, request(vec![user("Hi")])).await.unwrap()),
    ] {
        let seen = ToolResult {
            content: vec![image.clone()],
            ..ToolResult::text_result(&CallId::new("call_1"), "")
        };
        let history = vec![user("Hi"), answered(&first), Message::user(vec![Block::tool_result(&seen)])];
        let request = request(history);
        let body = if name == "chat" { chat.body(&request) } else { responses.body(&request) };
        bodies.push(json!([name, serde_json::from_slice::<Value>(&body).unwrap()]));
    }
    let count = bodies.len();
    let verdicts = python.run_json(&[ORACLE, "check"], &json!(bodies)).await;
    assert_eq!(verdicts, json!(vec!["ok"; count]));
    // The judge can say no.
    let wrong = json!([
        ["chat", {"model": "m", "messages": [{"role": "tool", "content": "x"}], "stream": true}],
        ["responses", {"model": "m", "input": 7, "stream": true}],
        ["chat", {"model": "m", "messages": [], "stream": true, "container": "x"}],
    ]);
    let verdicts = python.run_json(&[ORACLE, "check"], &wrong).await;
    assert!(verdicts.as_array().unwrap().iter().all(|verdict| verdict != "ok"), "{verdicts}");
}

fn rich() -> Reply {
    Reply::blocks(vec![
        thinking("hmm, let me think"),
        Block::text("Grüße aus 東京"),
        call("call_1", "bash", &json!({"command": "ls", "n": [1, 2]})),
        call("call_2", "bash", &json!({})),
    ])
}

#[tokio::test]
async fn the_sdks_strict_helpers_read_what_the_fake_streams_as_we_do() {
    let Some(python) = python().await else { return };
    let fake = start(FakeOpenAi::builder().turns([rich()])).await;
    let calls = json!({"calls": ["chat-stream", "chat", "responses-stream", "responses"]});
    let read = python.run_json(&[ORACLE, "read", &fake.base_url(), KEY], &calls).await;
    for chat in [&read[0], &read[1]] {
        let message = &chat["choices"][0]["message"];
        assert_eq!(message["content"], "Grüße aus 東京", "{read}");
        assert_eq!(message["reasoning_content"], "hmm, let me think");
        assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"command":"ls","n":[1,2]}"#);
        assert_eq!(message["tool_calls"][1]["id"], "call_2");
        assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(
            (&chat["usage"]["prompt_tokens"], &chat["usage"]["completion_tokens"]),
            (&json!(10), &json!(10))
        );
    }
    for response in [&read[2], &read[3]] {
        assert_eq!(response["status"], "completed", "{read}");
        let kinds: Vec<&str> = response["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
        assert_eq!(response["output"][0]["summary"][0]["text"], "hmm, let me think");
        assert_eq!(response["output"][1]["content"][0]["text"], "Grüße aus 東京");
        assert_eq!(response["output"][2]["arguments"], r#"{"command":"ls","n":[1,2]}"#);
        assert_eq!(response["usage"]["input_tokens"], 10);
    }
}

#[tokio::test]
async fn every_event_has_the_members_that_the_sdks_types_require() {
    let Some(python) = python().await else { return };
    let refused = Reply::answer(conjure_conversation::Response {
        stop_reason: StopReason::Refusal,
        ..conjure_conversation::Response::text("I will not.")
    });
    let cut = Reply::answer(conjure_conversation::Response {
        stop_reason: StopReason::MaxTokens,
        ..conjure_conversation::Response::text("It is")
    });
    let replies = [rich(), rich(), refused.clone(), refused, cut.clone(), cut];
    let fake = start(FakeOpenAi::builder().faults(replies)).await;
    let mut events = Vec::new();
    for _ in 0..3 {
        for (name, path) in [("chat", "/chat/completions"), ("responses", "/responses")] {
            let body = match name {
                "chat" => {
                    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": true,
                    "stream_options": {"include_usage": true}})
                }
                _ => json!({"model": "m", "input": "Hi", "stream": true}),
            };
            let stream = crate::refusals::exchange(&fake, path, KEY, &body).await;
            let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
            let data = data.filter(|data| *data != "[DONE]");
            events.extend(data.map(|data| json!([name, serde_json::from_str::<Value>(data).unwrap()])));
        }
    }
    assert!(events.len() > 60, "{}", events.len());
    assert_eq!(python.run_json(&[ORACLE, "events"], &json!(events)).await, json!([]));
    // The judge can say no.
    let wrong = json!([["responses", {"type": "response.output_text.delta", "delta": "x"}], ["chat", {"choices": []}]]);
    assert_eq!(python.run_json(&[ORACLE, "events"], &wrong).await.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_sdk_retries_and_reports_as_it_does_with_the_service() {
    let Some(python) = python().await else { return };
    let fault = |kind: ApiErrorKind| {
        Reply::error(FakeError::new(&kind, "so it is")).with_header("retry-after-ms", "1")
    };
    let broken = Reply::blocks(vec![Block::text("abcd")])
        .error_after_events(4, FakeError::new(&ApiErrorKind::Api, "it broke"));
    let fake = start(FakeOpenAi::builder().faults([
        fault(ApiErrorKind::RateLimit),
        fault(ApiErrorKind::Overloaded),
        Reply::blocks(vec![Block::text("Four.")]),
        fault(ApiErrorKind::InvalidRequest),
        fault(ApiErrorKind::NotFound),
        broken.clone(),
        broken,
    ]))
    .await;
    let calls =
        json!({"retries": 2, "calls": ["chat", "chat", "responses", "chat-stream", "responses-stream"]});
    let read = python.run_json(&[ORACLE, "read", &fake.base_url(), KEY], &calls).await;
    assert_eq!(read[0]["choices"][0]["message"]["content"], "Four.", "{read}");
    assert_eq!(read[1]["error"], "BadRequestError");
    assert_eq!((&read[2]["error"], &read[2]["code"]), (&json!("NotFoundError"), &json!("model_not_found")));
    assert_eq!(read[3]["error"], "APIError", "{read}");
    assert!(read[3]["text"].as_str().unwrap().contains("it broke"), "{read}");
    assert!(read[4]["text"].as_str().unwrap().contains("Didn't receive a `response.completed`"), "{read}");
    assert_eq!(fake.received(), 7);
    let wrong_key =
        python.run_json(&[ORACLE, "read", &fake.base_url(), "wrong"], &json!({"calls": ["chat"]})).await;
    assert_eq!(wrong_key[0]["error"], "AuthenticationError");
}

#[tokio::test]
async fn dropping_a_call_ends_its_request() {
    let fake = start(FakeOpenAi::builder().faults([Reply::silence()])).await;
    let chat = Chat::new(client(&fake), Chat::options("m"));
    let mut stream = chat.stream(request(vec![user("Hi")]));
    assert!(stream.next().await.unwrap().is_ok());
    let received = fake.until_received(1);
    tokio::select! {
        () = received => {}
        event = stream.next() => panic!("there is no answer: {event:?}"),
    }
    drop(stream);
    fake.stop().await;
}
