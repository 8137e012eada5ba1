use super::*;
use conjure_base::CallId;
use conjure_conversation::{ModelApi, NativeContent, Origin, ToolDefinition, ToolResult};
use proptest::prelude::*;
use serde_json::json;

fn request(messages: &[Message]) -> Request {
    Request {
        instructions: vec!["Base.".to_owned(), String::new(), "Skills.".to_owned()],
        tools: Arc::from([
            ToolDefinition {
                name: "view".to_owned(),
                description: "Reads.".to_owned(),
                input_schema: json!({"type": "object", "properties": {"z": {}, "a": {}}}),
            },
            ToolDefinition { name: "b".to_owned(), description: String::new(), input_schema: json!({}) },
        ]),
        ..Request::new(messages.iter().cloned().map(Arc::new).collect())
    }
}

fn user(texts: &[&str]) -> Message {
    Message::user(texts.iter().map(|text| Block::text(*text)).collect())
}

fn assistant(json: &str) -> Message {
    Message::assistant(vec![Block::from_json(json).unwrap()])
}

/// A conversation of so many calls with a result each, in one turn.
fn many_calls(count: usize) -> Vec<Message> {
    let call =
        |n: usize| Block::from_json(format!(r#"{{"type":"tool_use","id":"c{n}","name":"b","input":{{}}}}"#));
    let result = |n: usize| Block::tool_result(&ToolResult::text_result(&CallId::new(format!("c{n}")), "ok"));
    vec![
        user(&["go"]),
        Message::assistant((0..count).map(|n| call(n).unwrap()).collect()),
        Message::user((0..count).map(result).collect()),
    ]
}

fn text(request: &Request, options: &ModelOptions) -> String {
    String::from_utf8(request_body(request, options)).unwrap()
}

fn unmarked(body: &str) -> String {
    body.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

/// Paths of all marks in the body.
fn marks(body: &str) -> Vec<String> {
    let body: Value = serde_json::from_str(body).unwrap();
    let mut found = Vec::new();
    for name in ["tools", "system"] {
        for (place, item) in body[name].as_array().into_iter().flatten().enumerate() {
            found.extend(item.get("cache_control").map(|_| format!("{name}.{place}")));
        }
    }
    for (place, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        for (block, item) in message["content"].as_array().unwrap().iter().enumerate() {
            found.extend(item.get("cache_control").map(|_| format!("messages.{place}.{block}")));
        }
    }
    found
}

#[test]
fn the_body_has_these_exact_bytes() {
    let options = ModelOptions::new("claude-x")
        .with_max_tokens(100)
        .with_field("thinking", json!({"type": "enabled", "budget_tokens": 1024}))
        .unwrap()
        .with_field("metadata", json!({"user_id": "u"}))
        .unwrap()
        .with_server_tool(json!({"type": "code_execution_20250825", "name": "code_execution"}));
    let messages = [user(&["Hi"]), assistant(r#"{ "type":"new" , "n":1.50}"#), user(&["a", "b\n\u{e9}"])];
    assert_eq!(
        text(&request(&messages), &options),
        concat!(
            r#"{"model":"claude-x","max_tokens":100,"stream":true,"#,
            r#""thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},"#,
            r#""tools":[{"name":"view","description":"Reads.","input_schema":{"type":"object","properties":{"z":{},"a":{}}}},"#,
            r#"{"name":"b","description":"","input_schema":{}},"#,
            r#"{"type":"code_execution_20250825","name":"code_execution","cache_control":{"type":"ephemeral"}}],"#,
            r#""system":[{"type":"text","text":"Base."},"#,
            r#"{"type":"text","text":"Skills.","cache_control":{"type":"ephemeral"}}],"#,
            r#""messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]},"#,
            r#"{"role":"assistant","content":[{ "type":"new" , "n":1.50}]},"#,
            r#"{"role":"user","content":[{"type":"text","text":"a"},"#,
            r#"{"type":"text","text":"b\né","cache_control":{"type":"ephemeral"}}]}]}"#,
        )
    );
}

#[test]
fn a_minimal_request_contains_only_the_messages() {
    let mut bare = request(&[user(&["Hi"])]);
    (bare.tools, bare.instructions) = (Arc::from([]), vec![" ".to_owned()]);
    let options = ModelOptions::new("m").with_caching(Caching::Off);
    assert_eq!(
        text(&bare, &options),
        r#"{"model":"m","max_tokens":8192,"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}"#
    );
}

#[test]
fn breakpoints_are_on_tools_instructions_and_the_last_user_message() {
    let options = ModelOptions::new("m");
    let check = |messages: &[Message], expected: &[&str]| {
        let body = text(&request(messages), &options);
        assert_eq!(marks(&body)[2..], *expected, "{body}");
        assert_eq!(marks(&body)[..2], ["tools.1", "system.1"]);
    };
    check(&[user(&["a", "b"])], &["messages.0.1"]);
    check(&many_calls(3), &["messages.2.2"]);
    // More than fifteen blocks since the last mark: that one stays beside the new one.
    check(&many_calls(8), &["messages.0.0", "messages.2.7"]);
    // A resumed pause: the assistant's words go back unmarked.
    check(&[user(&["a"]), assistant(r#"{"type":"text","text":"b"}"#)], &["messages.0.0"]);
    // A block that takes no mark is passed over.
    let upload = Block::from_json(r#"{"type":"container_upload","file_id":"f"}"#).unwrap();
    check(&[Message::user(vec![Block::text("a"), upload])], &["messages.0.0"]);
}

#[test]
fn user_breakpoints_count_and_are_not_duplicated() {
    let own = |text: &str| {
        Block::from_json(format!(
            r#"{{"type":"text","text":"{text}","cache_control":{{"type":"ephemeral"}}}}"#
        ))
        .unwrap()
    };
    let options = ModelOptions::new("m");
    let last_is_marked = text(&request(&[Message::user(vec![own("a")])]), &options);
    assert_eq!(marks(&last_is_marked), ["tools.1", "system.1", "messages.0.0"]);
    let mut all = many_calls(8);
    all[0].content.extend([own("x"), own("y"), own("z")]);
    all[0].content.push(Block::text("end"));
    let four = text(&request(&all), &options);
    assert_eq!(marks(&four), ["messages.0.1", "messages.0.2", "messages.0.3", "messages.2.7"]);
    let server = json!({"type": "code_execution", "name": "code", "cache_control": {"type": "ephemeral"}});
    let on_a_server_tool = text(&request(&all), &ModelOptions::new("m").with_server_tool(server));
    assert_eq!(on_a_server_tool.matches("cache_control").count(), 4, "{on_a_server_tool}");
    let talks_of_it = text(&request(&[user(&["about cache_control"])]), &options);
    assert_eq!(marks(&talks_of_it).len(), 3);
}

#[test]
fn user_breakpoints_inside_blocks_count_too() {
    let mark = json!({"type": "ephemeral"});
    let part = json!({"type": "text", "text": "a", "cache_control": mark});
    let block = |value: Value| Block::from_json(value.to_string()).unwrap();
    let nested = [
        block(json!({"type": "document", "source": {"type": "content", "content": [part]}})),
        block(
            json!({"type": "search_result", "source": "x", "title": "x", "content": [part, {"type": "text"}]}),
        ),
    ];
    let mut messages = many_calls(1);
    messages[0].content.extend(nested);
    let result = json!({"type": "tool_result", "tool_use_id": "0", "content": [part, part]});
    let two = text(&request(&messages), &ModelOptions::new("m"));
    assert_eq!(two.matches("cache_control").count(), 4, "{two}");
    assert_eq!(marks(&two), ["system.1", "messages.2.0"]);
    messages[2] = Message::user(vec![block(result)]);
    let four = text(&request(&messages), &ModelOptions::new("m"));
    assert_eq!(four.matches("cache_control").count(), 4, "{four}");
    assert_eq!(marks(&four), [""; 0]);
}

#[test]
fn a_one_hour_breakpoint_has_a_ttl() {
    let hour = text(&request(&[user(&["a"])]), &ModelOptions::new("m").with_caching(Caching::OneHour));
    assert!(hour.ends_with(r#""text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}"#), "{hour}");
}

#[test]
fn breakpoints_are_never_stored() {
    let request = request(&[user(&["a"])]);
    let before = request.messages[0].content[0].json().to_owned();
    text(&request, &ModelOptions::new("m"));
    assert_eq!(request.messages[0].content[0].json(), before);
}

/// The service refuses thoughts without a signature of its own.
#[test]
fn thinking_of_other_apis_is_omitted() {
    let blocks = |texts: &[&str]| -> Vec<Block> {
        let thought = r#"{"type":"thinking","thinking":"Hm","signature":""}"#;
        let thought = Block::from_json(thought).unwrap();
        std::iter::once(thought).chain(texts.iter().map(|text| Block::text(*text))).collect()
    };
    let from = |api: ModelApi, content: Vec<Block>| {
        let origin = Origin { api, service: "s".to_owned(), model: "m".to_owned() };
        let native = Some(Arc::new(NativeContent { origin, items: Vec::new() }));
        Message { native, ..Message::assistant(content) }
    };
    let options = ModelOptions::new("m").with_caching(Caching::Off);
    let history = [
        user(&["a"]),
        from(ModelApi::Gemini, blocks(&["b"])),
        user(&["c"]),
        from(ModelApi::Chat, blocks(&[])),
        user(&["d"]),
        Message::assistant(blocks(&["e"])),
        user(&["f"]),
    ];
    let body: Value = serde_json::from_str(&text(&request(&history), &options)).unwrap();
    let thought = json!({"type": "thinking", "thinking": "Hm", "signature": ""});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(body["messages"][1]["content"], json!([text("b")]));
    assert_eq!(body["messages"][3]["content"], json!([text("(no text)")]));
    assert_eq!(body["messages"][5]["content"], json!([thought, text("e")]));
}

proptest! {
    /// Each body is a byte prefix of the next, `]}` and marks aside.
    #[test]
    fn each_body_is_a_prefix_of_the_next(sizes in proptest::collection::vec((1usize..12, "[a-z\"\\\\é{}]{1,8}"), 1..8)) {
        let mut history = Vec::new();
        let mut before: Option<(String, String)> = None;
        for (place, (size, words)) in sizes.iter().enumerate() {
            if place > 0 {
                history.push(Message::assistant(vec![Block::text(words.clone()); *size]));
            }
            history.push(Message::user(vec![Block::text(words.clone()); *size]));
            let plain = text(&request(&history), &ModelOptions::new("m").with_caching(Caching::Off));
            let marked = text(&request(&history), &ModelOptions::new("m"));
            prop_assert!(marks(&marked).len() <= 4);
            prop_assert_eq!(&unmarked(&marked), &plain);
            if let Some((plain_before, marked_before)) = before {
                let is_prefix = |before: &str, after: &str| after.starts_with(before.strip_suffix("]}").unwrap());
                prop_assert!(is_prefix(&plain_before, &plain));
                prop_assert!(is_prefix(&unmarked(&marked_before), &unmarked(&marked)));
            }
            before = Some((plain, marked));
        }
    }
}
