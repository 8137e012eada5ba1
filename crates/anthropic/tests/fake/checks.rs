//! Rejected requests and their error messages.

use conjure_anthropic::ApiProfile;
use conjure_anthropic::fake::{FakeMessages, Reply};
use conjure_conversation::Block;
use serde_json::{Value, json};

use crate::support::{KEY, assistant, body, post, send, start, user};

fn text(text: &str) -> [Reply; 1] {
    [Reply::blocks(vec![Block::text(text)])]
}

#[tokio::test]
async fn keys_and_versions_are_checked_in_both_profiles() {
    let beta = "anthropic-version: 2023-06-01";
    let current = "anthropic-version: 2026-10-21";
    let (key, bearer) = (format!("x-api-key: {KEY}"), format!("authorization: Bearer {KEY}"));
    let fake = start(FakeMessages::builder().key(KEY).turns(text("Hi"))).await;
    let only = start(FakeMessages::builder().key(KEY).profile(ApiProfile::Current).turns(text("Hi"))).await;
    let body = body([user("Hi")]).to_string();
    for (fake, headers, status, kind) in [
        (&fake, vec![beta, key.as_str()], 200, ""),
        (&fake, vec![current, bearer.as_str()], 200, ""),
        (&only, vec![current, bearer.as_str()], 200, ""),
        (&only, vec![beta, key.as_str()], 400, "invalid_request_error"),
        (&fake, vec![beta], 401, "authentication_error"),
        (&fake, vec![beta, "x-api-key: wrong"], 401, "authentication_error"),
        (&fake, vec![beta, bearer.as_str()], 401, "authentication_error"),
        (&fake, vec![current, "authorization: Bearer wrong"], 401, "authentication_error"),
        (&fake, vec![key.as_str()], 400, "invalid_request_error"),
        (&fake, vec!["anthropic-version: 2020-01-01", key.as_str()], 400, "invalid_request_error"),
    ] {
        let headers = [headers, vec!["content-type: application/json"]].concat();
        let answered = send(fake, "POST /v1/messages?beta=true", &headers, body.as_bytes()).await;
        assert_eq!(answered.status, status, "{headers:?}");
        if status != 200 {
            let error = answered.json();
            assert_eq!(error["error"]["type"], kind, "{headers:?}");
            assert_eq!(error["request_id"], answered.header("request-id").unwrap());
            assert!(!answered.text().contains(KEY));
        }
    }
}

#[tokio::test]
async fn other_paths_methods_and_sizes_are_refused() {
    let fake = start(FakeMessages::builder().turns(text("Hi"))).await;
    let key = format!("x-api-key: {KEY}");
    let headers = [key.as_str(), "anthropic-version: 2023-06-01", "content-type: application/json"];
    assert_eq!(send(&fake, "POST /v1/other", &headers, b"{}").await.status, 404);
    assert_eq!(send(&fake, "GET /v1/messages", &headers, b"").await.status, 405);
    let no_type = &headers[..2];
    assert_eq!(send(&fake, "POST /v1/messages", no_type, b"{}").await.status, 415);
    let answered = send(&fake, "POST /v1/messages", &headers, b"not json").await;
    assert_eq!(
        (answered.status, answered.json()["error"]["type"].as_str()),
        (400, Some("invalid_request_error"))
    );
}

#[tokio::test]
async fn unknown_models_are_not_found() {
    let fake = start(FakeMessages::builder().model("there").turns(text("Hi"))).await;
    let answered = post(&fake, &body([user("Hi")])).await;
    assert_eq!((answered.status, answered.message().as_str()), (404, "model: m"));
}

#[tokio::test]
async fn invalid_requests_are_rejected_with_their_path() {
    let fake = start(FakeMessages::builder().turns(text("Hi"))).await;
    let call = json!({"type": "tool_use", "id": "a", "name": "t", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "x"});
    let image = |data: String| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    let marked = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let with = |name: &str, value: Value| {
        let mut body = body([user("Hi")]);
        body[name] = value;
        body
    };
    let without = |name: &str| {
        let mut body = body([user("Hi")]);
        body.as_object_mut().unwrap().remove(name);
        body
    };
    for (body, expected) in [
        (without("model"), "model: Field required"),
        (without("max_tokens"), "max_tokens: Field required"),
        (without("messages"), "messages: Field required"),
        (with("max_tokens", json!(0)), "max_tokens: Input should be greater"),
        (with("stream", json!("yes")), "stream: "),
        (with("surprise", json!(1)), "surprise: Extra inputs are not permitted"),
        (with("temperature", json!(2)), "temperature: "),
        (
            with("system", json!([{"type": "text", "text": ""}])),
            "system.0.text: text content blocks must be non-empty",
        ),
        (with("tools", json!([tool("a.b")])), "tools.0.custom.name: String should match pattern"),
        (with("tools", json!([tool("a"), tool("a")])), "tools: Tool names must be unique."),
        (with("tools", json!([{"name": "a"}])), "tools.0.custom.input_schema.type: "),
        (with("tool_choice", json!({"type": "any"})), "tool_choice: "),
        (with("metadata", json!({"other": 1})), "metadata: "),
        (
            with("thinking", json!({"type": "enabled", "budget_tokens": 10})),
            "thinking.enabled.budget_tokens: ",
        ),
        (body(json!([])), "messages: at least one message is required"),
        (body([assistant("Hi")]), "messages: first message must use the \"user\" role"),
        (body([json!({"role": "system", "content": "x"})]), "messages.0.role: "),
        (body([json!({"role": "user", "content": "x", "id": 1})]), "messages.0.id: Extra inputs"),
        (
            body([user("Hi"), assistant(json!([])), user("x")]),
            "messages.1: all messages must have non-empty content",
        ),
        (body([user("")]), "messages.0.content.0.text: text content blocks must be non-empty"),
        (body([user(json!([{"type": "surprise"}]))]), "messages.0.content.0: Input tag 'surprise' found"),
        (body([user(json!([{"text": "x"}]))]), "messages.0.content.0.type: Field required"),
        (
            body([user(json!([call.clone()]))]),
            "messages.0.content.0: `tool_use` blocks can only be in `assistant`",
        ),
        (
            body([
                user("Hi"),
                assistant(json!([{"type": "text", "text": "x"}, call.clone()])),
                user("no result"),
            ]),
            "messages.1.content.1: `tool_use` ids were found without `tool_result` blocks immediately after: a.",
        ),
        (
            body([user("Hi"), user(json!([{"type": "text", "text": "x"}, result.clone()]))]),
            "messages.1.content.1: unexpected `tool_use_id` found in `tool_result` blocks: a.",
        ),
        (
            body([
                user("Hi"),
                assistant(json!([call.clone(), call.clone()])),
                user(json!([result.clone(), result])),
            ]),
            "messages.1.content.1: `tool_use` ids must be unique: a",
        ),
        (
            body([user("Hi"), assistant(json!([{"type": "thinking", "thinking": "x"}])), user("x")]),
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            body([
                user("Hi"),
                assistant(json!([{"type": "thinking", "thinking": "x", "signature": ""}])),
                user("x"),
            ]),
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        (
            body([user(json!([image("A".repeat((5 << 20) + 1))]))]),
            "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 5242881 bytes > 5242880 bytes",
        ),
        (
            body([user(Value::from(vec![marked; 5]))]),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ] {
        let answered = post(&fake, &body).await;
        assert_eq!(answered.status, 400, "{expected}");
        assert!(answered.message().starts_with(expected), "{} is not {expected}", answered.message());
    }
    let valid = body([
        user(json!([image("A".repeat(5 << 20))])),
        assistant(json!([{"type": "of_next_year"}])),
        user("x"),
    ]);
    // The second answer of one turn: what was said is good, and nothing is left to say.
    assert!(post(&fake, &valid).await.message().starts_with("the fake has 1 turns"));
}
