//! Requests on the wire: request line, headers, key and body; and successful responses.

use std::sync::Arc;

use conjure_anthropic::{ApiProfile, Client, Config, ConfigError, ModelOptions, ModelPrices, Prices};
use conjure_conversation::{Block, Model, ModelEvent, StopReason, Usage};
use conjure_model_http::HttpConfig;
use secrecy::SecretString;
use serde_json::json;

use crate::clock::ManualClock;
use crate::events::{block, input_delta, message, stop, text_delta, text_stream};
use crate::server::{Recorded, Server, answer, stream};
use crate::support::{KEY, MODEL, ask, call, client, config, drain, messages, text};

async fn recorded(config: impl Fn(Config) -> Config, options: ModelOptions) -> Recorded {
    let server = Server::always(stream(&text_stream("Hello"))).await;
    let config = config(crate::support::config(&server));
    let client = Client::with_clock(&config, Arc::new(ManualClock::new())).unwrap();
    call(&client.messages(options).unwrap()).await.unwrap();
    server.requests().remove(0)
}

#[tokio::test]
async fn the_beta_profile_sends_the_key_in_its_own_header() {
    let request = recorded(|config| config, ModelOptions::new(MODEL)).await;
    assert_eq!(request.line, "POST /v1/messages HTTP/1.1");
    assert_eq!(request.headers["x-api-key"], KEY);
    assert_eq!(request.headers["anthropic-version"], "2023-06-01");
    assert_eq!(request.headers["content-type"], "application/json");
    for absent in ["authorization", "anthropic-beta", "accept-encoding", "referer", "cookie"] {
        assert!(!request.headers.contains_key(absent), "{absent}");
    }
}

#[tokio::test]
async fn the_current_profile_sends_the_key_as_a_bearer_token() {
    let change = |config: Config| {
        let http = |http: HttpConfig| {
            http.with_header("X-Team", "blue".to_owned().into()).with_query("api-version", "2026 preview")
        };
        config.with_profile(ApiProfile::Current).with_http(http)
    };
    let request = recorded(change, ModelOptions::new(MODEL)).await;
    assert_eq!(request.line, "POST /v1/messages?api-version=2026+preview HTTP/1.1");
    assert_eq!(request.headers["x-team"], "blue");
    assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(request.headers["anthropic-version"], "2026-10-21");
    assert!(!request.headers.contains_key("x-api-key"));
}

#[tokio::test]
async fn user_betas_and_fields_are_sent() {
    let options = ModelOptions::new(MODEL)
        .with_beta("skills-2025-10-02")
        .with_beta("code-execution-2025-08-25")
        .with_beta("skills-2025-10-02")
        .with_field("container", json!("container_1"))
        .unwrap();
    let request = recorded(|config| config, options).await;
    assert_eq!(request.headers["anthropic-beta"], "skills-2025-10-02,code-execution-2025-08-25");
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!((&body["container"], &body["stream"]), (&json!("container_1"), &json!(true)));
    // Without TLS, so that no certificates are needed.
    let bad = Client::new(&Config::new(SecretString::from(KEY)).with_base_url("http://127.0.0.1:9"))
        .unwrap()
        .messages(ModelOptions::new(MODEL).with_beta("a\r\nx-evil: 1"));
    assert!(matches!(bad, Err(ConfigError::Beta { .. })));
}

#[tokio::test]
async fn the_bytes_on_the_wire_are_the_body() {
    let server = Server::always(stream(&text_stream("Hello"))).await;
    let (messages, _) = client(&server);
    let request = ask("Hi \u{1F980}");
    drain(messages.stream(request.clone())).await.1.unwrap();
    assert_eq!(server.requests()[0].body, messages.body(&request));
}

#[tokio::test]
async fn a_stream_emits_deltas_and_the_final_response() {
    let events = vec![
        block(0, json!({"type": "text", "text": ""})),
        text_delta(0, "Let me"),
        text_delta(0, " look."),
        stop(0),
        block(1, json!({"type": "tool_use", "id": "toolu_1", "name": "view", "input": {}})),
        input_delta(1, ""),
        input_delta(1, "{\"path\": "),
        input_delta(1, "\"/a\"}"),
        stop(1),
    ];
    let server = Server::always(stream(&message(events, "tool_use"))).await;
    let (messages, _) = client(&server);
    let (deltas, response) = drain(messages.stream(ask("Hi"))).await;
    let response = response.unwrap();
    let piece = |json: &str| ModelEvent::ToolInputDelta { index: 1, partial_json: json.to_owned() };
    let new_delta = |text: &str| ModelEvent::TextDelta { index: 0, text: text.to_owned() };
    let begun = Usage {
        input_tokens: 10,
        output_tokens: 1,
        cache_creation_input_tokens: 5,
        cache_read_input_tokens: 7,
        // 10 * 3 + 1 * 15 + 5 * 3.75 + 7 * 0.3 millionths, rounded up.
        cost_micros: 66,
    };
    assert_eq!(
        deltas,
        [
            ModelEvent::Sent,
            ModelEvent::UsageReported(begun),
            ModelEvent::Started,
            new_delta("Let me"),
            new_delta(" look."),
            ModelEvent::ToolUseStarted { index: 1, name: "view".to_owned() },
            piece("{\"path\": "),
            piece("\"/a\"}"),
        ]
    );
    assert_eq!(response.request_id.as_deref(), Some("req_1"));
    assert_eq!(response.stop_reason, StopReason::ToolUse);
    assert_eq!(response.content[1].tool_call().unwrap().input.get(), "{\"path\": \"/a\"}");
    let usage = Usage {
        input_tokens: 10,
        output_tokens: 20,
        cache_creation_input_tokens: 5,
        cache_read_input_tokens: 7,
        // 10 * 3 + 20 * 15 + 5 * 3.75 + 7 * 0.3 millionths, rounded up.
        cost_micros: 351,
    };
    assert_eq!(response.usage, usage);
}

#[tokio::test]
async fn an_unstreamed_response_keeps_its_bytes() {
    let content =
        r#"{ "type":"new_block","n":1.50},{"type":"tool_use","id":"a","name":"t","input":{"b": 1, "a":2}}"#;
    let body = format!(
        r#"{{"type":"message","id":"msg_1","model":"{MODEL}","role":"assistant","content":[{content}],"stop_reason":"tool_use","usage":{{"input_tokens":1,"output_tokens":2}}}}"#
    );
    let head = [("content-type", "application/json"), ("request-id", "req_w")];
    let server = Server::always(answer("200 OK", &head, &body)).await;
    let (messages, _) = client(&server);
    let (events, answer) = drain(messages.stream(ask("Hi"))).await;
    let answer = answer.unwrap();
    let partial_json = r#"{"b": 1, "a":2}"#.to_owned();
    assert_eq!(
        events,
        [
            ModelEvent::Sent,
            ModelEvent::Started,
            ModelEvent::ToolUseStarted { index: 1, name: "t".to_owned() },
            ModelEvent::ToolInputDelta { index: 1, partial_json },
            ModelEvent::UsageReported(answer.usage),
        ]
    );
    assert!(answer.usage.cost_micros > 0);
    let blocks: Vec<&str> = answer.content.iter().map(Block::json).collect();
    assert_eq!(blocks.join(","), content);
    assert_eq!(answer.request_id.as_deref(), Some("req_w"));
}

#[tokio::test]
async fn configured_prices_apply_and_unknown_models_are_free() {
    let server = Server::always(stream(&text_stream("Hello"))).await;
    let clock = ManualClock::new();
    let priced = |prices| messages(&config(&server).with_prices(prices), &clock);
    let client = Client::new(&config(&server).with_prices(Prices::none())).unwrap();
    let free = call(&client.messages(ModelOptions::new(MODEL)).unwrap()).await.unwrap();
    assert_eq!((free.usage.cost_micros, client.models_without_price()), (0, vec![MODEL.to_owned()]));
    let expensive = ModelPrices { input: 0, output: 1_000_000_000, cache_write: 0, cache_read: 0 };
    assert_eq!(call(&priced(Prices::new([(MODEL, expensive)]))).await.unwrap().usage.cost_micros, 20_000);
}

#[tokio::test]
async fn nothing_happens_before_the_stream_is_polled() {
    let server = Server::always(stream(&text_stream("Hello"))).await;
    let (messages, _) = client(&server);
    drop(messages.stream(ask("never")));
    assert_eq!(text(&call(&messages).await.unwrap()), "Hello");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_client_shows_no_key_in_debug() {
    let client =
        Client::new(&Config::new(SecretString::from(KEY)).with_base_url("http://127.0.0.1:1")).unwrap();
    let messages = client.messages(ModelOptions::new(MODEL)).unwrap();
    let debug_text = format!("{client:?} {messages:?}");
    assert!(
        debug_text.contains("127.0.0.1") && debug_text.contains(MODEL) && !debug_text.contains("canary"),
        "{debug_text}"
    );
}
