//! What the fake refuses, as the service does.

use conjure_openai::fake::{FakeOpenAi, FakeOpenAiBuilder, Reply};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::KEY;

async fn fake() -> FakeOpenAi {
    let builder: FakeOpenAiBuilder = FakeOpenAi::builder().key(KEY).model("m");
    builder.turns([Reply::blocks(vec![conjure_conversation::Block::text("x")])]).start().await.unwrap()
}

/// The status and the message of the response.
async fn post(fake: &FakeOpenAi, path: &str, key: &str, body: &Value) -> (u16, String) {
    let answer = exchange(fake, path, key, body).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    (status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// The whole response, with its head.
pub(crate) async fn exchange(fake: &FakeOpenAi, path: &str, key: &str, body: &Value) -> String {
    let url = fake.base_url();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST /v1{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn chat_requests_are_checked() {
    let fake = fake().await;
    let user = json!({"role": "user", "content": "Hi"});
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": arguments}});
    let called = |calls: Value| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let seen = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let messages = |messages: Value| json!({"model": "m", "messages": messages});
    let with = |name: &str, value: Value| {
        let mut body = messages(json!([user]));
        body[name] = value;
        body
    };
    for (body, expected) in [
        (messages(json!([user])), ""),
        (
            messages(json!([user, called(json!([call("a", "{}"), call("b", "{}")])), seen("b"), seen("a")])),
            "",
        ),
        (with("tools", json!([tool("t")])), ""),
        (messages(json!([])), "empty array"),
        (json!({"model": "m"}), "Missing required parameter: 'messages'"),
        (with("model", json!("other")), "does not exist"),
        (with("container", json!("x")), "Unknown parameter"),
        (with("stream_options", json!({"include_usage": true})), "only allowed when 'stream'"),
        (with("tool_choice", json!("auto")), "only allowed when 'tools'"),
        (with("tools", json!([tool("a.b")])), "does not match pattern"),
        (with("tools", json!([tool(&"x".repeat(65))])), "at most 64"),
        (with("tools", json!([tool("t"), tool("t")])), "unique"),
        (with("max_tokens", json!(0)), "at least 1"),
        (messages(json!([user, called(json!([call("a", "{}")]))])), "did not have response messages: a"),
        (
            messages(json!([user, called(json!([call("a", "{}")])), user])),
            "did not have response messages: a",
        ),
        (messages(json!([user, seen("a")])), "must be a response to a preceeding message"),
        (messages(json!([user, called(json!([call("a", "{")])), seen("a")])), "not valid JSON"),
        (messages(json!([user, {"role": "assistant", "content": null}])), "expected a string, got null"),
        (
            messages(json!([{"role": "user", "content": [{"type": "tool_result"}]}])),
            "Invalid value: 'tool_result'",
        ),
        (messages(json!([{"role": "robot", "content": "x"}])), "Supported values for 'messages[0].role'"),
    ] {
        let (status, message) = post(&fake, "/chat/completions", KEY, &body).await;
        let is_right =
            if expected.is_empty() { status == 200 } else { status >= 400 && message.contains(expected) };
        // Some histories have more answers than there are turns.
        let is_over = expected.is_empty() && message.contains("the fake has 1 turns");
        assert!(is_right || is_over, "{body}: {status} {message}");
    }
    assert_eq!(post(&fake, "/chat/completions", "wrong", &messages(json!([user]))).await.0, 401);
    assert_eq!(post(&fake, "/completions", KEY, &json!({})).await.0, 404);
}

#[tokio::test]
async fn requests_of_the_responses_api_are_checked() {
    let fake = fake().await;
    let user = json!({"type": "message", "role": "user", "content": "Hi"});
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "{}"});
    let seen = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "x"});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"});
    let input = |input: Value| json!({"model": "m", "input": input, "store": false});
    let tool = |more: Value| {
        let mut body = input(json!("Hi"));
        body["tools"] = json!([{"type": "function", "name": "t"}]);
        for (name, value) in more.as_object().unwrap() {
            body["tools"][0][name] = value.clone();
        }
        body
    };
    for (body, expected) in [
        (input(json!("Hi")), ""),
        (input(json!([user, reasoning, call("a"), seen("a")])), ""),
        (tool(json!({"parameters": {"type": "object"}, "strict": false})), ""),
        (tool(json!({"parameters": {"type": "object"}})), "tools[0].strict"),
        (tool(json!({"parameters": {"type": "object"}, "strict": true})), "additionalProperties"),
        (input(json!([])), "Missing required parameter: 'input'"),
        (input(json!([user, seen("a")])), "No tool call found"),
        (input(json!([user, call("a")])), "No tool output found for function call a"),
        (input(json!([user, reasoning])), "without its required following item"),
        (input(json!([reasoning, user])), "without its required following item"),
        (input(json!([{"type": "poem"}])), "'poem'"),
        (
            input(
                json!([{"type": "message", "role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]),
            ),
            "Invalid value: 'input_text'",
        ),
        (json!({"model": "m", "input": "Hi", "previous_response_id": "resp_1"}), "not found"),
        (json!({"model": "m", "input": "Hi", "messages": []}), "Unknown parameter"),
    ] {
        let (status, message) = post(&fake, "/responses", KEY, &body).await;
        let is_right =
            if expected.is_empty() { status == 200 } else { status >= 400 && message.contains(expected) };
        let is_over = expected.is_empty() && message.contains("the fake has 1 turns");
        assert!(is_right || is_over, "{body}: {status} {message}");
    }
}
