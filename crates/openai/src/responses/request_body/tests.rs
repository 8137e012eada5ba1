use std::sync::Arc;

use conjure_base::CallId;
use conjure_conversation::{
    Block, Message, ModelApi, NativeContent, NativeItem, Origin, Request, ResultContent, ToolDefinition,
    ToolResult,
};
use conjure_model_http::CallOptions;
use serde_json::{Value, json};

use super::request_body;
use crate::Responses;

fn origin() -> Origin {
    Origin { api: ModelApi::Responses, service: "api.openai.com".to_owned(), model: "m".to_owned() }
}

fn request(messages: Vec<Message>) -> Request {
    Request {
        instructions: vec!["Be brief.".to_owned(), "Be kind.".to_owned()],
        tools: Arc::from([ToolDefinition {
            name: "view".to_owned(),
            description: "Shows.".to_owned(),
            input_schema: json!({"type": "object"}),
        }]),
        ..Request::new(messages.into_iter().map(Arc::new).collect())
    }
}

fn body(options: &CallOptions, messages: Vec<Message>) -> (String, Value) {
    let body = request_body(&request(messages), options, &origin()).0;
    let text = String::from_utf8(body).unwrap();
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

fn call(id: &str) -> Block {
    Block::tool_use(id, "view", &json!({"n": 1}))
}

fn user(text: &str) -> Message {
    Message::user(vec![Block::text(text)])
}

#[test]
fn a_body_keeps_the_state_with_the_client_and_the_input_last() {
    let options = Responses::options("m")
        .with_max_tokens(100)
        .with_parallel_tool_calls(true)
        .with_field("reasoning", json!({"effort": "low", "summary": "auto"}))
        .and_then(|options| options.with_field("tool_choice", json!("auto")))
        .unwrap();
    let (text, sent) = body(&options, vec![user("Hi")]);
    let expected = json!({
        "model": "m", "max_output_tokens": 100, "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low", "summary": "auto"},
        "tool_choice": "auto", "parallel_tool_calls": true, "instructions": "Be brief.\n\nBe kind.",
        "tools": [{"type": "function", "name": "view", "description": "Shows.", "parameters": {"type": "object"}, "strict": false}],
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
    });
    assert_eq!(sent, expected);
    assert!(text.ends_with(r#"{"type":"message","role":"user","content":"Hi"}]}"#), "{text}");
    assert!(body(&Responses::options("m"), vec![user("Hi")]).1.get("max_output_tokens").is_none());
    for (model, is_asked) in [("gpt-4.1-mini", false), ("gpt-5", true), ("o3", true)] {
        let sent = body(&Responses::options(model), vec![user("Hi")]).1;
        assert_eq!(sent.get("include").is_some(), is_asked, "{model}");
    }
}

#[test]
fn results_have_images_and_failures_are_in_the_text() {
    let image = ResultContent::Image { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
    let text = ResultContent::Text { text: "a picture".to_owned() };
    let seen = ToolResult { content: vec![text, image], ..ToolResult::text_result(&CallId::new("b"), "") };
    let history = vec![
        user("Hi"),
        Message::assistant(vec![
            Block::from_json(r#"{"type":"thinking","thinking":"Hm","signature":"sig"}"#).unwrap(),
            Block::text("I look."),
            call("a"),
            call("b"),
            call("c"),
        ]),
        Message::user(vec![
            Block::tool_result(&ToolResult::error(&CallId::new("a"), "no such file")),
            Block::tool_result(&seen),
            Block::tool_result(&ToolResult::text_result(&CallId::new("c"), "")),
            Block::text("and hurry"),
        ]),
    ];
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "view", "arguments": "{\"n\":1}"});
    let expected = json!([
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "message", "role": "assistant", "content": "I look."},
        call("a"), call("b"), call("c"),
        {"type": "function_call_output", "call_id": "a", "output": "Error: no such file"},
        {"type": "function_call_output", "call_id": "b", "output": [
            {"type": "input_text", "text": "a picture"},
            {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="},
        ]},
        {"type": "function_call_output", "call_id": "c", "output": "(no text)"},
        {"type": "message", "role": "user", "content": "and hurry"},
    ]);
    assert_eq!(body(&Responses::options("m"), history).1["input"], expected);
}

/// An answer with its output items, and the result of its call.
fn native_history(origin: Origin, items: &[&str]) -> Vec<Message> {
    let items = items.iter().map(|item| NativeItem::from_json(*item).unwrap()).collect();
    let answered = Message {
        native: Some(Arc::new(NativeContent { origin, items })),
        ..Message::assistant(vec![Block::text("I look."), call("call_1_3")])
    };
    let result = Block::tool_result(&ToolResult::text_result(&CallId::new("call_1_3"), "seen"));
    vec![user("Hi"), answered, Message::user(vec![result])]
}

const ITEMS: [&str; 3] = [
    r#"{"id":"rs_1","type":"reasoning", "summary":[],"encrypted_content":"E"}"#,
    r#"{"id":"msg_1","type":"message","role":"assistant","phase":"commentary","status":"completed","content":[{"type":"output_text","text":"I look.","annotations":[]}]}"#,
    r#"{"id":"fc_1","type":"function_call","call_id":"call_1","name":"view","arguments":"{\"n\": 1}"}"#,
];

#[test]
fn the_same_origin_gets_its_items_back_byte_for_byte_and_in_order() {
    let options = Responses::options("m");
    let (text, sent) = body(&options, native_history(origin(), &ITEMS));
    assert!(text.contains(&ITEMS.join(",")), "{text}");
    let output = json!({"type": "function_call_output", "call_id": "call_1", "output": "seen"});
    assert_eq!(sent["input"][4], output);
    for other in [
        Origin { api: ModelApi::Chat, ..origin() },
        Origin { service: "127.0.0.1:1".to_owned(), ..origin() },
        Origin { model: "n".to_owned(), ..origin() },
    ] {
        let (text, sent) = body(&options, native_history(other, &ITEMS));
        assert!(!text.contains("encrypted_content\":") && !text.contains("phase"), "{text}");
        assert_eq!(sent["input"][2]["call_id"], "call_1_3");
        assert_eq!(sent["input"][3]["call_id"], "call_1_3");
    }
    let (_, sent) = body(&options, native_history(origin(), &ITEMS[..2]));
    assert_eq!(sent["input"][2]["call_id"], "call_1_3", "the items have other calls than the blocks");
}

#[test]
fn each_body_is_a_byte_prefix_of_the_next_up_to_the_end_of_its_input() {
    let mut history = native_history(origin(), &ITEMS);
    history.push(Message::assistant(vec![Block::text("Done.")]));
    history.push(user("Thanks"));
    let mut before = String::new();
    for end in [1, 3, 5] {
        let (text, _) = body(&Responses::options("m"), history[..end].to_vec());
        let open = text.strip_suffix("]}").unwrap().to_owned();
        assert!(open.starts_with(&before), "{open}\n{before}");
        before = open;
    }
}
