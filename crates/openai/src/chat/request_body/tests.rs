use std::sync::Arc;

use conjure_base::CallId;
use conjure_conversation::{
    Block, Message, ModelApi, NativeContent, NativeItem, Origin, Request, ResultContent, ToolDefinition,
    ToolResult,
};
use conjure_model_http::CallOptions;
use serde_json::{Value, json};

use super::request_body;
use crate::Chat;

fn origin() -> Origin {
    Origin { api: ModelApi::Chat, service: "127.0.0.1:8080".to_owned(), model: "m".to_owned() }
}

fn request(messages: Vec<Message>) -> Request {
    Request {
        instructions: vec!["Be brief.".to_owned(), " ".to_owned(), "Be kind.".to_owned()],
        tools: Arc::from([ToolDefinition {
            name: "skills.load".to_owned(),
            description: "Loads.".to_owned(),
            input_schema: json!({"type": "object"}),
        }]),
        ..Request::new(messages.into_iter().map(Arc::new).collect())
    }
}

fn with(options: &CallOptions, origin: &Origin) -> (String, Value) {
    with_messages(options, origin, vec![Message::user(vec![Block::text("Hi"), Block::text("there")])])
}

fn with_messages(options: &CallOptions, origin: &Origin, messages: Vec<Message>) -> (String, Value) {
    let text = String::from_utf8(request_body(&request(messages), options, origin).0).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

fn messages(origin: &Origin, messages: Vec<Message>) -> Value {
    with_messages(&Chat::options("m"), origin, messages).1["messages"].clone()
}

fn call(id: &str, name: &str, input: &Value) -> Block {
    Block::tool_use(id, name, input)
}

#[test]
fn a_body_has_the_options_and_then_the_messages() {
    let options = Chat::options("m")
        .with_max_tokens(100)
        .with_parallel_tool_calls(false)
        .with_field("temperature", json!(0.5))
        .and_then(|options| options.with_field("tool_choice", json!("auto")))
        .unwrap();
    let (text, body) = with(&options, &origin());
    let name = body["tools"][0]["function"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("skills_load_"), "{name}");
    let expected = json!({
        "model": "m", "max_tokens": 100, "stream": true, "stream_options": {"include_usage": true},
        "temperature": 0.5, "tool_choice": "auto", "parallel_tool_calls": false,
        "tools": [{"type": "function", "function":
            {"name": name, "description": "Loads.", "parameters": {"type": "object"}}}],
        "messages": [{"role": "system", "content": "Be brief.\n\nBe kind."}, {"role": "user", "content": "Hi\nthere"}],
    });
    assert_eq!(body, expected);
    assert!(text.ends_with(r#"{"role":"user","content":"Hi\nthere"}]}"#), "{text}");
    let openai = Origin { service: "api.openai.com".to_owned(), ..origin() };
    assert_eq!(with(&options, &openai).1["max_completion_tokens"], 100);
    let plain = with(&Chat::options("m"), &origin()).1;
    assert!(plain.get("max_tokens").is_none() && plain.get("parallel_tool_calls").is_none());
}

#[test]
fn without_tools_nothing_about_tools_is_sent() {
    let options =
        Chat::options("m").with_parallel_tool_calls(true).with_field("tool_choice", json!("auto")).unwrap();
    let bare = Request { tools: Arc::from([]), ..request(vec![Message::user(vec![Block::text("Hi")])]) };
    let body: Value = serde_json::from_slice(&request_body(&bare, &options, &origin()).0).unwrap();
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["model", "stream", "stream_options", "messages"]);
}

/// An answer of another service, its results, and what the user adds.
fn foreign_history() -> Vec<Message> {
    let image = ResultContent::Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
    let seen = ToolResult { content: vec![image], ..ToolResult::text_result(&CallId::new("b"), "") };
    vec![
        Message::user(vec![Block::text("Hi")]),
        Message::assistant(vec![
            Block::from_json(r#"{"type":"thinking","thinking":"Hm","signature":"sig"}"#).unwrap(),
            Block::from_json(r#"{"type":"redacted_thinking","data":"AA"}"#).unwrap(),
            Block::text("I look."),
            call("a", "skills.load", &json!({"n": 1})),
            call("b", "view", &json!({"INVALID_JSON": "{"})),
        ]),
        Message::user(vec![
            Block::tool_result(&ToolResult::error(&CallId::new("a"), "no such skill")),
            Block::tool_result(&seen),
            Block::text("and hurry"),
        ]),
    ]
}

#[test]
fn an_answer_of_another_service_is_translated_and_its_results_follow_it() {
    let sent = messages(&origin(), foreign_history());
    let name = sent[2]["tool_calls"][0]["function"]["name"].clone();
    assert!(name.as_str().unwrap().starts_with("skills_load_"));
    let expected = json!([
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": name, "arguments": "{\"n\":1}"}},
            {"id": "b", "type": "function", "function": {"name": "view", "arguments": "{\"INVALID_JSON\":\"{\"}"}},
        ]},
        {"role": "tool", "tool_call_id": "a", "content": "Error: no such skill"},
        {"role": "tool", "tool_call_id": "b", "content": "(see the next message)"},
        {"role": "user", "content": [
            {"type": "text", "text": "From the result of the tool call b:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            {"type": "text", "text": "and hurry"},
        ]},
    ]);
    assert_eq!(sent, expected);
}

#[test]
fn deepseek_gets_the_reasoning_of_foreign_answers_with_calls() {
    let deepseek = Origin { service: "api.deepseek.com".to_owned(), ..origin() };
    let sent = messages(&deepseek, foreign_history());
    assert_eq!(sent[2]["reasoning_content"], "Hm");
    let bare = vec![
        Message::user(vec![Block::text("Hi")]),
        Message::assistant(vec![call("a", "view", &json!({}))]),
        Message::user(vec![Block::tool_result(&ToolResult::text_result(&CallId::new("a"), ""))]),
        Message::assistant(vec![Block::text("Done.")]),
        Message::user(vec![Block::text("ok")]),
    ];
    let sent = messages(&deepseek, bare);
    assert_eq!(sent[2]["reasoning_content"], "", "also when there was none");
    assert_eq!((&sent[2]["content"], &sent[3]["content"]), (&Value::Null, &json!("(no text)")));
    assert!(sent[4].get("reasoning_content").is_none(), "no call, so it is not asked for");
}

fn native(origin: Origin, json: &str) -> Arc<NativeContent> {
    Arc::new(NativeContent { origin, items: vec![NativeItem::from_json(json).unwrap()] })
}

#[test]
fn the_same_origin_gets_its_answer_back_byte_for_byte_with_its_own_call_ids() {
    let raw = r#"{"role":"assistant","content":null,"reasoning_content":"","tool_calls":[{"id":"call_0","type":"function","function":{"name":"view","arguments":"{\"a\": 1.50}"},"extra_content":{"google":{"thought_signature":"x"}}}]}"#;
    let answered = |origin| Message {
        native: Some(native(origin, raw)),
        // The conversation has made the id unique.
        ..Message::assistant(vec![call("call_0_7", "view", &json!({"a": 1.5}))])
    };
    let result = || {
        Message::user(vec![Block::tool_result(&ToolResult::text_result(&CallId::new("call_0_7"), "seen"))])
    };
    let options = Chat::options("m");
    let history = |of| vec![Message::user(vec![Block::text("Hi")]), answered(of), result()];
    let (text, body) = with_messages(&options, &origin(), history(origin()));
    assert!(text.contains(raw), "{text}");
    assert_eq!(body["messages"][3], json!({"role": "tool", "tool_call_id": "call_0", "content": "seen"}));
    for other in [
        Origin { api: ModelApi::Responses, ..origin() },
        Origin { service: "api.openai.com".to_owned(), ..origin() },
        Origin { model: "n".to_owned(), ..origin() },
    ] {
        let (text, body) = with_messages(&options, &origin(), history(other));
        assert!(!text.contains("extra_content"), "{text}");
        assert_eq!(body["messages"][2]["tool_calls"][0]["id"], "call_0_7");
        assert_eq!(body["messages"][3]["tool_call_id"], "call_0_7");
    }
}

#[test]
fn a_native_form_that_does_not_fit_the_blocks_is_not_sent() {
    for raw in [r#"{"role":"assistant","content":"x"}"#, r#"{"tool_calls":[{"no":"id"}]}"#, "7"] {
        let answered = Message {
            native: Some(native(origin(), raw)),
            ..Message::assistant(vec![call("a", "view", &json!({}))])
        };
        let result =
            Message::user(vec![Block::tool_result(&ToolResult::text_result(&CallId::new("a"), "x"))]);
        let sent = messages(&origin(), vec![Message::user(vec![Block::text("Hi")]), answered, result]);
        assert_eq!(sent[2]["tool_calls"][0]["id"], "a", "{raw}");
        assert_eq!(sent[3]["tool_call_id"], "a", "{raw}");
    }
}

#[test]
fn each_body_is_a_byte_prefix_of_the_next_up_to_the_end_of_its_messages() {
    let mut history = foreign_history();
    let raw = r#"{"role":"assistant","content":"Seen.","reasoning":"so"}"#;
    history.push(Message {
        native: Some(native(origin(), raw)),
        ..Message::assistant(vec![Block::text("Seen.")])
    });
    history.push(Message::user(vec![Block::text("Thanks")]));
    let options = Chat::options("m").with_max_tokens(7);
    let mut before = String::new();
    for end in [1, 3, 5] {
        let (text, _) = with_messages(&options, &origin(), history[..end].to_vec());
        let open = text.strip_suffix("]}").unwrap().to_owned();
        assert!(open.starts_with(&before), "{open}\n{before}");
        before = open;
    }
}
