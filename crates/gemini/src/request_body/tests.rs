use std::sync::Arc;

use super::*;
use crate::Gemini;
use conjure_base::CallId;
use conjure_conversation::{
    Block, Message, ModelApi, NativeContent, NativeItem, ResultContent, ToolDefinition, ToolResult,
};
use proptest::prelude::*;

fn origin() -> Origin {
    Origin { api: ModelApi::Gemini, service: "gemini.example".to_owned(), model: "m".to_owned() }
}

fn other_origin() -> Origin {
    Origin { model: "n".to_owned(), ..origin() }
}

fn request(messages: Vec<Message>) -> Request {
    Request::new(messages.into_iter().map(Arc::new).collect())
}

fn user(texts: &[&str]) -> Message {
    Message::user(texts.iter().map(|text| Block::text(*text)).collect())
}

fn block(value: &Value) -> Block {
    Block::from_json(value.to_string()).unwrap()
}

fn call(id: &str, name: &str) -> Block {
    block(&json!({"type": "tool_use", "id": id, "name": name, "input": {"n": 1}}))
}

fn result(id: &str, text: &str) -> Block {
    Block::tool_result(&ToolResult::text_result(&CallId::new(id), text))
}

/// An answer with these blocks and these parts.
fn native(content: Vec<Block>, parts: &[&str]) -> Message {
    let items = parts.iter().map(|json| NativeItem::from_json(*json).unwrap()).collect();
    let native = Some(Arc::new(NativeContent { origin: origin(), items }));
    Message { native, ..Message::assistant(content) }
}

fn text(request: &Request, origin: &Origin) -> String {
    String::from_utf8(request_body(request, &Gemini::options("m"), origin).0).unwrap()
}

/// The contents of a conversation of the same origin.
fn contents(messages: Vec<Message>) -> Value {
    contents_for(messages, &origin())
}

fn contents_for(messages: Vec<Message>, origin: &Origin) -> Value {
    let body: Value = serde_json::from_str(&text(&request(messages), origin)).unwrap();
    body["contents"].clone()
}

#[test]
fn the_body_has_these_exact_bytes() {
    let options = Gemini::options("m")
        .with_max_tokens(100)
        .with_field("generationConfig", json!({"temperature": 0}))
        .unwrap()
        .with_field("toolConfig", json!({"functionCallingConfig": {"mode": "AUTO"}}))
        .unwrap();
    let tool = |name: &str, schema: Value| ToolDefinition {
        name: name.to_owned(),
        description: "Reads.".to_owned(),
        input_schema: schema,
    };
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}, "additionalProperties": false});
    let mut all = request(vec![
        user(&["Hi"]),
        native(vec![Block::text("Yo")], &[r#"{ "text" : "Yo" , "thoughtSignature":"c2ln"}"#]),
        user(&["a", "b\n\u{e9}"]),
    ]);
    all.instructions = vec!["Base.".to_owned(), " ".to_owned(), "Skills.".to_owned()];
    all.tools = Arc::from([tool("view", schema), tool("9b", json!({"type": "object"}))]);
    let mapped = wire_name("9b").into_owned();
    let expected = [
        r#"{"systemInstruction":{"parts":[{"text":"Base."},{"text":"Skills."}]},"#,
        r#""tools":[{"functionDeclarations":[{"name":"view","description":"Reads.","parametersJsonSchema":"#,
        r#"{"type":"object","properties":{"z":{},"a":{}},"additionalProperties":false}},"#,
        r#"{"name":""#,
        mapped.as_str(),
        r#"","description":"Reads.","parametersJsonSchema":{"type":"object"}}]}],"#,
        r#""toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},"#,
        r#""generationConfig":{"temperature":0,"maxOutputTokens":100},"#,
        r#""contents":[{"role":"user","parts":[{"text":"Hi"}]},"#,
        r#"{"role":"model","parts":[{ "text" : "Yo" , "thoughtSignature":"c2ln"}]},"#,
        r#"{"role":"user","parts":[{"text":"a"},{"text":"b\né"}]}]}"#,
    ];
    assert_eq!(String::from_utf8(request_body(&all, &options, &origin()).0).unwrap(), expected.concat());
}

#[test]
fn without_tools_instructions_and_settings_only_the_contents_are_there() {
    let bare = text(&request(vec![user(&["Hi"])]), &origin());
    assert_eq!(bare, r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}"#);
}

#[test]
fn parts_of_the_same_origin_go_back_byte_for_byte_in_one_content() {
    let parts = [
        r#"{"text":"Hm","thought":true}"#,
        r#"{"functionCall": {"name":"view","args":{"n":1.50}}, "thoughtSignature":"AAA="}"#,
        r#"{"functionCall":{"name":"view","args":{ }}}"#,
        r#"{"text":"","thoughtSignature":"BBB="}"#,
        r#"{"executableCode":{"code":"1"}}"#,
    ];
    let answer = || native(vec![call("own_1", "view"), call("own_2", "view")], &parts);
    let messages =
        || vec![user(&["Hi"]), answer(), Message::user(vec![result("own_1", "1"), result("own_2", "2")])];
    let body = text(&request(messages()), &origin());
    assert!(body.contains(&format!(r#"{{"role":"model","parts":[{}]}}"#, parts.join(","))), "{body}");
    // The service gave no ids, so it gets none.
    assert!(!body.contains("own_"), "{body}");
    let expected = json!({"role": "user", "parts": [
        {"functionResponse": {"name": "view", "response": {"output": "1"}}},
        {"functionResponse": {"name": "view", "response": {"output": "2"}}},
    ]});
    assert_eq!(contents(messages())[2], expected);
    // Another model cannot read the signatures.
    let foreign = contents_for(messages(), &other_origin());
    assert_eq!(
        foreign[1],
        json!({"role": "model", "parts": [
            {"functionCall": {"name": "view", "args": {"n": 1}},
             "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": {"name": "view", "args": {"n": 1}}},
        ]})
    );
    assert_eq!(foreign[2], expected);
}

#[test]
fn the_ids_of_the_service_go_back_with_the_results() {
    let parts = [
        r#"{"functionCall":{"id":"f1","name":"a","args":{}},"thoughtSignature":"AAA="}"#,
        r#"{"functionCall":{"name":"b","args":{}}}"#,
    ];
    // The conversation has made the first id unique.
    let answer = native(vec![call("f1_2", "a"), call("own", "b")], &parts);
    let results = Message::user(vec![
        result("f1_2", "1"),
        Block::tool_result(&ToolResult::error(&CallId::new("own"), "broken")),
        Block::text("and hurry"),
    ]);
    assert_eq!(
        contents(vec![user(&["Hi"]), answer, results])[2],
        json!({"role": "user", "parts": [
            {"functionResponse": {"id": "f1", "name": "a", "response": {"output": "1"}}},
            {"functionResponse": {"name": "b", "response": {"error": "broken"}}},
            {"text": "and hurry"},
        ]})
    );
}

#[test]
fn answers_of_other_services_are_translated() {
    let answer = Message::assistant(vec![
        block(&json!({"type": "thinking", "thinking": "Hm", "signature": "sig"})),
        block(&json!({"type": "redacted_thinking", "data": "AAA="})),
        Block::text("I look."),
        call("toolu_1", "9lives"),
        block(&json!({"type": "tool_use", "id": "toolu_2", "name": "b", "input": {"INVALID_JSON": "{"}})),
        block(&json!({"type": "tool_use", "id": "toolu_3", "name": "b", "input": [1]})),
        block(&json!({"type": "server_tool_use", "id": "s", "name": "code", "input": {}})),
    ]);
    let results = Message::user(vec![result("toolu_1", ""), result("toolu_2", "x"), result("toolu_3", "y")]);
    let contents = contents(vec![user(&["Hi"]), answer, results]);
    let name = wire_name("9lives").into_owned();
    assert_eq!(
        contents[1]["parts"],
        json!([
            {"text": "I look."},
            {"functionCall": {"name": name, "args": {"n": 1}}, "thoughtSignature": "skip_thought_signature_validator"},
            {"functionCall": {"name": "b", "args": {"INVALID_JSON": "{"}}},
            {"functionCall": {"name": "b", "args": {"INVALID_JSON": "[1]"}}},
        ])
    );
    assert_eq!(
        contents[2]["parts"][0],
        json!({"functionResponse": {"name": name, "response": {"output": ""}}})
    );
}

#[test]
fn an_answer_without_remaining_parts_is_omitted() {
    let opaque = Message::assistant(vec![block(&json!({"type": "redacted_thinking", "data": "AAA="}))]);
    let all = contents(vec![user(&["a"]), opaque, user(&["b"])]);
    assert_eq!(
        all,
        json!([{"role": "user", "parts": [{"text": "a"}]}, {"role": "user", "parts": [{"text": "b"}]}])
    );
}

#[test]
fn images_and_documents_are_placed_as_the_service_requires() {
    let picture =
        ResultContent::Image { media_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
    let text = ResultContent::Text { text: "a \"source\"".to_owned() };
    let seen = ToolResult { content: vec![text, picture], ..ToolResult::text_result(&CallId::new("a"), "") };
    let source = json!({"type": "base64", "media_type": "application/pdf", "data": "AA=="});
    let media = Message::user(vec![
        Block::tool_result(&seen),
        block(
            &json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "BB=="}}),
        ),
        block(&json!({"type": "document", "source": source})),
        block(
            &json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x\ny"}}),
        ),
        block(&json!({"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}})),
        block(&json!({"type": "container_upload", "file_id": "file_1"})),
    ]);
    let all = contents(vec![user(&["Hi"]), Message::assistant(vec![call("a", "look")]), media]);
    assert_eq!(
        all[2]["parts"],
        json!([
            {"functionResponse": {"name": "look", "response": {"output": "a \"source\""},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]}},
            {"inlineData": {"mimeType": "image/png", "data": "BB=="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "AA=="}},
            {"text": "x\ny"},
            {"fileData": {"fileUri": "https://example.com/a.png"}},
            {"text": "[Left out, since this model's service does not take it: `container_upload`]"},
        ])
    );
}

#[test]
fn the_data_of_images_is_no_text() {
    let data = "A".repeat(10_000);
    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let picture = ResultContent::Image { media_type: "image/png".to_owned(), data: data.clone() };
    let seen = ToolResult { content: vec![picture], ..ToolResult::text_result(&CallId::new("a"), "") };
    let drawn = format!(r#"{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}"#);
    let all = request(vec![
        Message::user(vec![block(&json!({"type": "image", "source": source}))]),
        native(vec![call("a", "look")], &[&drawn, r#"{"functionCall":{"name":"look"}}"#]),
        Message::user(vec![Block::tool_result(&seen)]),
    ]);
    let (body, size) = request_body(&all, &Gemini::options("m"), &origin());
    assert_eq!(size, RequestSize { text_bytes: body.len() as u64 - 3 * 10_002, images: 3 });
}

#[test]
fn an_answer_that_is_to_be_continued_goes_back_as_its_token() {
    let answer =
        || native(vec![Block::text("One, ")], &[r#"{"text":"One, "}"#, r#"{"continuationToken":"dG9r"}"#]);
    let paused = request(vec![user(&["Count"]), answer()]);
    assert_eq!(
        text(&paused, &origin()),
        r#"{"contents":[{"role":"user","parts":[{"text":"Count"}]}],"continuationToken":"dG9r"}"#
    );
    // Once something else was said, the token is of no use.
    let later = request(vec![user(&["Count"]), answer(), user(&["Stop"])]);
    assert_eq!(
        text(&later, &origin()),
        r#"{"contents":[{"role":"user","parts":[{"text":"Count"}]},{"role":"model","parts":[{"text":"One, "}]},{"role":"user","parts":[{"text":"Stop"}]}]}"#
    );
}

proptest! {
    /// Each body up to the end of its contents is a byte prefix of the next.
    #[test]
    fn each_body_is_a_prefix_of_the_next(
        sizes in proptest::collection::vec((1usize..12, "[a-z\"\\\\é{}]{1,8}", any::<bool>()), 1..8),
    ) {
        let mut history = Vec::new();
        let mut before: Option<String> = None;
        for (place, (size, words, is_native)) in sizes.iter().enumerate() {
            if place > 0 {
                let calls: Vec<Block> = (0..*size).map(|n| call(&format!("c{place}_{n}"), "b")).collect();
                let parts = vec![r#"{"functionCall":{"name":"b","args":{}}}"#; *size];
                history.push(if *is_native { native(calls, &parts) } else { Message::assistant(calls) });
                history.push(Message::user((0..*size).map(|n| result(&format!("c{place}_{n}"), words)).collect()));
            } else {
                history.push(Message::user(vec![Block::text(words.clone()); *size]));
            }
            let body = text(&request(history.clone()), &origin());
            prop_assert!(serde_json::from_str::<Value>(&body).is_ok());
            if let Some(before) = before {
                let is_prefix = body.starts_with(before.strip_suffix("]}").unwrap());
                prop_assert!(is_prefix, "{body}");
            }
            before = Some(body);
        }
    }
}
