//! [`SentRequest`]: what a service was sent, read into one form for all wires.

use std::collections::VecDeque;

use serde_json::Value;

use crate::support::test_wire::TestWire;

/// The mark of the cache in a request of the Messages wire. It moves from request to request.
const CACHE_MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// A request that a service has received.
#[derive(Debug, Clone)]
pub(crate) struct SentRequest {
    wire: TestWire,
    status: Option<u16>,
    body: String,
    key: String,
}

/// One thing that a history says, in the order of the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentItem {
    /// What the user says. Some wires join its texts by newlines, so all are read so.
    User(String),
    /// An image, of the user or of a result.
    Image,
    /// A text of the model.
    Answer(String),
    /// Thoughts of the model, which may be encrypted.
    Thinking,
    /// A tool call. The key is its id, or its name on a wire without ids.
    Call { key: String, name: String, input: Value },
    /// The result of a call with this key.
    Result { key: String, text: String, is_error: bool },
}

impl SentRequest {
    pub(crate) fn new(wire: TestWire, status: Option<u16>, body: &[u8], key: &str) -> Self {
        let body = String::from_utf8(body.to_vec()).unwrap();
        Self { wire, status, body, key: key.to_owned() }
    }

    /// The status of its response, if it has one.
    pub(crate) const fn status(&self) -> Option<u16> {
        self.status
    }

    /// Its body, byte for byte.
    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// The header with the key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Its body up to the end of its history, without marks of the cache.
    pub(crate) fn prefix(&self) -> String {
        let body = self.body.replace(CACHE_MARK, "");
        body.strip_suffix("]}").unwrap_or_else(|| panic!("the history is not last: {body}")).to_owned()
    }

    /// Its history.
    pub(crate) fn items(&self) -> Vec<SentItem> {
        let body = self.json();
        let (list, read): (&Value, fn(&Value, &mut Vec<SentItem>)) = match self.wire {
            TestWire::Messages => (&body["messages"], read_message),
            TestWire::Chat => (&body["messages"], read_chat_message),
            TestWire::Responses => (&body["input"], read_item),
            TestWire::Gemini => (&body["contents"], read_content),
        };
        let mut items = Vec::new();
        members(list).for_each(|member| read(member, &mut items));
        let mut joined: Vec<SentItem> = Vec::new();
        for item in items {
            match (joined.last_mut(), item) {
                (Some(SentItem::User(before)), SentItem::User(text)) => {
                    before.push('\n');
                    before.push_str(&text);
                }
                (_, item) => joined.push(item),
            }
        }
        joined
    }

    /// What the user has said, in order.
    pub(crate) fn user_texts(&self) -> Vec<String> {
        let text = |item| match item {
            SentItem::User(text) => Some(text),
            _ => None,
        };
        self.items().into_iter().filter_map(text).collect()
    }

    /// The results, in order: the text of each, and whether it is an error.
    pub(crate) fn results(&self) -> Vec<(String, bool)> {
        let result = |item| match item {
            SentItem::Result { text, is_error, .. } => Some((text, is_error)),
            _ => None,
        };
        self.items().into_iter().filter_map(result).collect()
    }

    /// Each call has exactly one result; the results of an answer follow it in the order of its calls, before anything else.
    pub(crate) fn check_results(&self) {
        let mut open: VecDeque<String> = VecDeque::new();
        for item in self.items() {
            match item {
                SentItem::Call { key, .. } => open.push_back(key),
                SentItem::Result { key, .. } => assert_eq!(open.pop_front(), Some(key), "{}", self.body),
                // An image of a result may stand between two results.
                SentItem::Image => {}
                SentItem::User(_) | SentItem::Answer(_) | SentItem::Thinking => {
                    // A service may write a text behind a call of the same answer, but nobody speaks before the results.
                    let is_model = !matches!(item, SentItem::User(_));
                    assert!(is_model || open.is_empty(), "no results of {open:?}: {}", self.body);
                }
            }
        }
        assert!(open.is_empty(), "no results of {open:?}: {}", self.body);
    }
}

/// The members of a list; none of anything else.
fn members(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads text, or a list of parts of any wire.
fn read_parts(content: &Value, text: fn(String) -> SentItem, items: &mut Vec<SentItem>) {
    if let Value::String(whole) = content {
        items.push(text(whole.clone()));
    }
    for part in members(content) {
        match part["type"].as_str().unwrap_or_default() {
            "text" | "input_text" | "output_text" => items.push(text(text_of(&part["text"]))),
            "refusal" => items.push(text(text_of(&part["refusal"]))),
            "image" | "image_url" | "input_image" => items.push(SentItem::Image),
            other => panic!("a part of the type `{other}`"),
        }
    }
}

/// The result of a call on a wire that says in the text that it failed.
fn told_result(key: &Value, texts: &[String]) -> SentItem {
    let text = texts.join("\n");
    let told = text.strip_prefix("Error: ").map(str::to_owned);
    SentItem::Result { key: text_of(key), is_error: told.is_some(), text: told.unwrap_or(text) }
}

/// The texts of a content, and how many images it has.
fn texts_and_images(content: &Value) -> (Vec<String>, usize) {
    let mut parts = Vec::new();
    read_parts(content, SentItem::User, &mut parts);
    let images = parts.iter().filter(|part| **part == SentItem::Image).count();
    let text = |part| match part {
        SentItem::User(text) => Some(text),
        _ => None,
    };
    (parts.into_iter().filter_map(text).collect(), images)
}

fn read_message(message: &Value, items: &mut Vec<SentItem>) {
    let text = if message["role"] == "assistant" { SentItem::Answer } else { SentItem::User };
    if message["content"].is_string() {
        read_parts(&message["content"], text, items);
    }
    for block in members(&message["content"]) {
        match block["type"].as_str().unwrap_or_default() {
            "thinking" => items.push(SentItem::Thinking),
            "tool_use" => items.push(SentItem::Call {
                key: text_of(&block["id"]),
                name: text_of(&block["name"]),
                input: block["input"].clone(),
            }),
            "tool_result" => {
                let (texts, images) = texts_and_images(&block["content"]);
                items.push(SentItem::Result {
                    key: text_of(&block["tool_use_id"]),
                    text: texts.join("\n"),
                    is_error: block["is_error"] == true,
                });
                items.extend(std::iter::repeat_n(SentItem::Image, images));
            }
            "text" => items.push(text(text_of(&block["text"]))),
            "image" => items.push(SentItem::Image),
            // Of the service's tools, and of next year.
            _ => {}
        }
    }
}

fn read_chat_message(message: &Value, items: &mut Vec<SentItem>) {
    match message["role"].as_str().unwrap_or_default() {
        "user" => read_parts(&message["content"], SentItem::User, items),
        "tool" => {
            let (texts, _) = texts_and_images(&message["content"]);
            items.push(told_result(&message["tool_call_id"], &texts));
        }
        "assistant" => {
            if message["reasoning_content"].is_string() {
                items.push(SentItem::Thinking);
            }
            if message["content"] != "" {
                read_parts(&message["content"], SentItem::Answer, items);
            }
            for call in members(&message["tool_calls"]) {
                let function = &call["function"];
                items.push(SentItem::Call {
                    key: text_of(&call["id"]),
                    name: text_of(&function["name"]),
                    input: serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap(),
                });
            }
        }
        _ => {}
    }
}

fn read_item(item: &Value, items: &mut Vec<SentItem>) {
    match item["type"].as_str().unwrap_or_default() {
        "message" => {
            let text = if item["role"] == "assistant" { SentItem::Answer } else { SentItem::User };
            read_parts(&item["content"], text, items);
        }
        "reasoning" => items.push(SentItem::Thinking),
        "function_call" => items.push(SentItem::Call {
            key: text_of(&item["call_id"]),
            name: text_of(&item["name"]),
            input: serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap(),
        }),
        "function_call_output" => {
            let (texts, images) = texts_and_images(&item["output"]);
            items.push(told_result(&item["call_id"], &texts));
            items.extend(std::iter::repeat_n(SentItem::Image, images));
        }
        other => panic!("an item of the type `{other}`"),
    }
}

fn read_content(content: &Value, items: &mut Vec<SentItem>) {
    let text = if content["role"] == "model" { SentItem::Answer } else { SentItem::User };
    for part in members(&content["parts"]) {
        if part["thought"] == true || part["text"] == "" {
            items.push(SentItem::Thinking);
        } else if part["text"].is_string() {
            items.push(text(text_of(&part["text"])));
        } else if part["inlineData"].is_object() {
            items.push(SentItem::Image);
        } else if let Some(call) = part.get("functionCall") {
            let name = text_of(&call["name"]);
            items.push(SentItem::Call { key: name.clone(), name, input: call["args"].clone() });
        } else if let Some(result) = part.get("functionResponse") {
            let response = &result["response"];
            let is_error = response.get("error").is_some();
            let text = text_of(if is_error { &response["error"] } else { &response["output"] });
            items.push(SentItem::Result { key: text_of(&result["name"]), text, is_error });
            items.extend(members(&result["parts"]).map(|_| SentItem::Image));
        } else {
            panic!("a part that is none of these: {part}");
        }
    }
}
