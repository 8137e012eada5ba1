//! The official SDK as the oracle: its types accept our events, its client works against the fake.

use conjure_anthropic::fake::{FakeMessages, Refusal, Reply};
use conjure_conversation::{ApiErrorKind, Block};
use serde_json::{Value, json};
use test_support::Python;
use tokio::sync::OnceCell;

use crate::support::{KEY, call, post, script, start, streamed, user};

/// The interpreter that has the SDK, if there is one.
pub(crate) async fn oracle() -> Option<Python> {
    // Asked once: the SDK takes long to load.
    static FOUND: OnceCell<Option<Python>> = OnceCell::const_new();
    let find = || Python::find("CONJURE_ORACLE_PYTHON", "import anthropic", "`anthropic`");
    FOUND.get_or_init(find).await.clone()
}

/// The SDK's result for `input`.
pub(crate) async fn ask(python: &Python, what: &str, input: &Value) -> Value {
    python.run_json(&[concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/oracle.py"), what], input).await
}

fn raw(value: &Value) -> Block {
    Block::from_json(value.to_string()).unwrap()
}

/// An answer of every kind of block that the SDK knows.
fn all_kinds() -> Vec<Block> {
    let citation = json!({
        "type": "char_location", "cited_text": "x", "document_index": 0, "document_title": null,
        "start_char_index": 0, "end_char_index": 1, "file_id": null,
    });
    let found = json!({
        "type": "web_search_result", "url": "https://example.com", "title": "x", "encrypted_content": "e",
        "page_age": null,
    });
    vec![
        raw(&json!({"type": "thinking", "thinking": "hmm, let me think", "signature": "c2ln"})),
        raw(&json!({"type": "redacted_thinking", "data": "xyz"})),
        raw(&json!({"type": "text", "text": "Grüße aus 東京", "citations": [citation]})),
        raw(
            &json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"},
            "caller": {"type": "direct"}}),
        ),
        raw(&json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [found],
            "caller": {"type": "direct"}})),
        Block::text("plain"),
        call("toolu_1", "weather", &json!({"city": "Paris", "days": [1, 2]})),
    ]
}

#[tokio::test]
async fn the_sdks_types_accept_every_event() {
    let Some(python) = oracle().await else { return };
    let paused = Reply::blocks(all_kinds())
        .with_pieces(1)
        .with_container(json!({"id": "container_1", "expires_at": "2026-11-21T00:00:00Z", "skills": null}));
    let fake = start(FakeMessages::builder().faults([Reply::blocks(all_kinds()), paused])).await;
    let mut events = Vec::new();
    for _ in 0..2 {
        let answered = post(&fake, &streamed([user("Hi")])).await;
        events.extend(answered.events().into_iter().filter(|(name, _)| name != "ping").map(|(_, data)| data));
    }
    let count = events.len();
    assert!(count > 60, "{count}");
    assert_eq!(ask(&python, "events", &json!({"events": events})).await, json!([]));
    // The judge can say no.
    let wrong = json!({"events": [{"type": "content_block_stop"}]});
    assert_eq!(ask(&python, "events", &wrong).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_sdk_reads_streamed_and_unstreamed_responses() {
    let Some(python) = oracle().await else { return };
    let fake =
        start(FakeMessages::builder().key(KEY).turns([Reply::blocks(all_kinds()).with_request_id("req_1")]))
            .await;
    let input =
        |stream| json!({"url": fake.base_url(), "key": KEY, "stream": stream, "messages": [user("Hi")]});
    let answers = ask(&python, "creates", &json!([input(false), input(true)])).await;
    let (complete, streamed) = (answers[0].clone(), answers[1].clone());
    assert_eq!(complete["message"]["content"][6]["input"], json!({"city": "Paris", "days": [1, 2]}));
    assert_eq!(complete["message"]["stop_reason"], "tool_use");
    let without_id = |mut answer: Value| {
        let message = answer["message"].as_object_mut().unwrap();
        message.remove("id");
        // The SDK adds it to what was streamed.
        assert!(message.remove("stop_details").is_none_or(|details| details.is_null()));
        // Only a whole answer says it.
        answer["message"]["usage"].as_object_mut().unwrap().remove("service_tier");
        answer
    };
    assert_eq!(without_id(streamed), without_id(complete));
    for request in fake.requests() {
        assert_eq!(request.header("anthropic-version"), Some("2026-10-21"), "the profile of SDK 2.x");
        assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    }
}

#[tokio::test]
async fn the_sdks_client_retries_and_reports_as_it_does_with_the_service() {
    let Some(python) = oracle().await else { return };
    let fault = |kind| Reply::error(Refusal::new(kind, "so it is")).with_header("retry-after-ms", "1");
    let fake = async |faults: Vec<Reply>| {
        let text = "version: 1\nturns: [{content: Four.}]";
        start(FakeMessages::builder().key(KEY).faults(faults).script(script(text))).await
    };
    let new_input = |fake: &FakeMessages, key: &str, stream: bool, content: Value| json!({"url": fake.base_url(), "key": key, "stream": stream, "messages": [user(content)]});
    let is_final =
        fault(ApiErrorKind::Overloaded).with_header("x-should-retry", "false").with_request_id("req_7");
    let breaks = Reply::blocks(vec![Block::text("abcd")])
        .error_after_pieces(2, Refusal::new(ApiErrorKind::Overloaded, "Overloaded"));
    let result = json!([{"type": "tool_result", "tool_use_id": "a", "content": "x"}]);
    let overloaded = fake(vec![fault(ApiErrorKind::RateLimit), fault(ApiErrorKind::Overloaded)]).await;
    let failing = fake(vec![fault(ApiErrorKind::Api), fault(ApiErrorKind::RateLimit)]).await;
    let other = fake(vec![is_final, breaks]).await;
    let calls = [
        new_input(&overloaded, KEY, true, "Hi".into()),
        new_input(&failing, KEY, false, "Hi".into()),
        new_input(&other, KEY, true, "Hi".into()),
        new_input(&other, "wrong", false, "Hi".into()),
        new_input(&other, KEY, true, "Hi".into()),
        new_input(&other, KEY, false, result),
    ];
    let answers = ask(&python, "creates", &calls.into_iter().collect()).await;
    let text = |index: usize| answers[index]["text"].as_str().unwrap();
    // Two retries are enough for two faults, streamed and not.
    for (index, fake, statuses) in [(0, &overloaded, [429, 529, 200]), (1, &failing, [500, 429, 200])] {
        assert_eq!(answers[index]["message"]["content"][0]["text"], "Four.", "{answers}");
        let requests = fake.requests();
        assert_eq!(requests.iter().map(|request| request.status().unwrap()).collect::<Vec<_>>(), statuses);
    }
    // Errors with `x-should-retry: false` and authentication errors are not retried.
    assert_eq!(
        (&answers[2]["error"], &answers[2]["request_id"]),
        (&json!("OverloadedError"), &json!("req_7"))
    );
    assert_eq!(answers[3]["error"], "AuthenticationError");
    assert_eq!(other.received(), 4);
    // An error under status 200.
    assert!(text(4).contains("overloaded_error"), "{answers}");
    // A mistake in the history.
    assert_eq!(answers[5]["error"], "BadRequestError");
    assert!(text(5).contains("messages.0.content.0: unexpected `tool_use_id`"), "{answers}");
}
