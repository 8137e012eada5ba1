//! The body of a request: what is stable first, the messages last, and every block as it is stored.
//!
//! **Bytes.** Without cache marks, the body of call N up to the end of its messages is a byte prefix of the body of
//! call N+1, as long as tools, instructions and options stay the same: the order of fields is fixed, the tools and
//! instructions come before the messages, and blocks are copied to the byte. Behind the messages stands the
//! container alone, since it is not known before the first answer. A mark is the text
//! `,"cache_control":{...}` before the closing brace of the tool, instruction or block it stands on. It is only ever
//! written into the body, never into what is stored, and it moves on with the conversation; so with marks the prefix
//! holds once the marks are taken out. The service too caches by content, not by the marks.
//!
//! **Marks**, at most four with those that the host wrote itself: the last tool; the last instruction; the last
//! block of the last user message; and, when more than [`BLOCKS_BETWEEN_MARKS`] blocks came since, the last block of
//! the user message before, where the previous call's mark stood (the service looks back 20 blocks only). Where
//! instructions change from call to call, the mark on the tools still counts. Blocks of the assistant are never
//! marked: they go back as they came.

use std::sync::Arc;

use conjure_base::ContainerId;
use conjure_conversation::{Block, BlockKind, Message, Request, Role};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::Caching;
use crate::fields::quoted;
use crate::options::{CONTAINER, CONTEXT_MANAGEMENT, Options};

/// How many marks the service takes.
const MOST_MARKS: usize = 4;
/// From how many blocks on the mark of the call before is set again.
const BLOCKS_BETWEEN_MARKS: usize = 15;

/// Whether the answer is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Streamed,
    Whole,
}

/// Which blocks of the messages are marked: message and block.
type Places = Vec<(usize, usize)>;

/// The body of `request`.
pub(crate) fn body(request: &Request, options: &Options, delivery: Delivery) -> Vec<u8> {
    let mark = options.caching().mark();
    let (marked, own) = places(&request.messages);
    let is_marked = |tool: &Value| tool.get("cache_control").is_some_and(|mark| !mark.is_null());
    let own = own
        + options.server_tools().iter().filter(|tool| is_marked(tool)).count()
        + usize::from(options.extra().contains_key("cache_control"));
    let mut left = MOST_MARKS.saturating_sub(own);
    let mut take = |wanted: bool| {
        let granted = wanted && mark.is_some() && left > 0;
        left -= usize::from(granted);
        granted
    };
    // The mark on the conversation saves most, that on the tools least.
    let marked: Places = marked.into_iter().filter(|_| take(true)).collect();
    let is_instruction_marked = take(!request.instructions.iter().all(|text| text.trim().is_empty()));
    let has_tools = !(request.tools.is_empty() && options.server_tools().is_empty());
    let is_tool_marked = take(has_tools && !options.server_tools().last().is_some_and(is_marked));
    let mark = mark.unwrap_or_default();

    let mut body = Body::with_capacity(size_of(request));
    body.text("{\"model\":");
    body.text(&quoted(options.model()));
    body.text(",\"max_tokens\":");
    body.text(&options.max_tokens().to_string());
    if delivery == Delivery::Streamed {
        body.text(",\"stream\":true");
    }
    let mut field = |name: &str, value: &Value| {
        body.text(",");
        body.text(&quoted(name));
        body.text(":");
        body.text(&value.to_string());
    };
    for (name, value) in options.extra() {
        if ![CONTAINER, CONTEXT_MANAGEMENT].contains(&name.as_str()) {
            field(name, value);
        }
    }
    if let Some(context) = options.context_management() {
        field(CONTEXT_MANAGEMENT, &context);
    }
    let tools = request.tools.iter().map(|tool| {
        serde_json::json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
    });
    let mut tools: Vec<String> = tools
        .map(|tool| tool.to_string())
        .chain(options.server_tools().iter().map(Value::to_string))
        .collect();
    if let Some(last) = tools.last_mut().filter(|_| is_tool_marked) {
        *last = with_mark(last, mark);
    }
    body.list("tools", &tools);
    let instructions = request.instructions.iter().filter(|text| !text.trim().is_empty());
    let mut instructions: Vec<String> =
        instructions.map(|text| format!(r#"{{"type":"text","text":{}}}"#, quoted(text))).collect();
    if let Some(last) = instructions.last_mut().filter(|_| is_instruction_marked) {
        *last = with_mark(last, mark);
    }
    body.list("system", &instructions);
    body.text(",\"messages\":[");
    for (place, message) in request.messages.iter().enumerate() {
        body.separate(place);
        body.text(match message.role {
            Role::User => "{\"role\":\"user\",\"content\":[",
            Role::Assistant => "{\"role\":\"assistant\",\"content\":[",
        });
        for (block_place, block) in message.content.iter().enumerate() {
            body.separate(block_place);
            if marked.contains(&(place, block_place)) {
                body.text(&with_mark(block.json(), mark));
            } else {
                body.text(block.json());
            }
        }
        body.text("]}");
    }
    body.text("]");
    if let Some(container) = container(options.extra().get(CONTAINER), request.container.as_ref()) {
        body.text(",\"container\":");
        body.text(&container.to_string());
    }
    body.text("}");
    body.0
}

/// The container of a request: the one that the host names; where the host asks for skills and names no id, its
/// wishes with the id that the conversation has; else that id.
fn container(named: Option<&Value>, used: Option<&ContainerId>) -> Option<Value> {
    let id = || used.map(|id| Value::from(id.as_str()));
    match named {
        Some(Value::Object(wishes)) if wishes.get("id").is_none_or(Value::is_null) => {
            let mut wishes = wishes.clone();
            wishes.extend(id().map(|id| ("id".to_owned(), id)));
            Some(Value::Object(wishes))
        }
        Some(named) => Some(named.clone()),
        None => id(),
    }
}

/// The id of the container that the request names, if it names one.
pub(crate) fn container_id(request: &Request, options: &Options) -> Option<String> {
    let container = container(options.extra().get(CONTAINER), request.container.as_ref())?;
    container.as_str().or_else(|| container["id"].as_str()).map(str::to_owned)
}

struct Body(Vec<u8>);

impl Body {
    fn with_capacity(size: usize) -> Self {
        Self(Vec::with_capacity(size))
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn separate(&mut self, place: usize) {
        if place > 0 {
            self.text(",");
        }
    }

    /// A field that holds these; an empty list is left out.
    fn list(&mut self, name: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.text(",\"");
        self.text(name);
        self.text("\":[");
        for (place, item) in items.iter().enumerate() {
            self.separate(place);
            self.text(item);
        }
        self.text("]");
    }
}

/// About how many bytes the body will have.
fn size_of(request: &Request) -> usize {
    let messages = request.messages.iter().flat_map(|message| &message.content);
    let messages: usize = messages.map(|block| block.json().len() + 40).sum();
    let instructions: usize = request.instructions.iter().map(String::len).sum();
    messages + instructions + request.tools.len() * 1024 + 1024
}

/// The JSON object with the mark as its last field.
fn with_mark(object: &str, mark: &str) -> String {
    let open = object.trim_end().strip_suffix('}').unwrap_or(object);
    format!("{open},\"cache_control\":{mark}}}")
}

/// The blocks that are to be marked, the most valuable first, and how many the host has marked itself.
fn places(messages: &[Arc<Message>]) -> (Places, usize) {
    let own = messages.iter().flat_map(|message| &message.content).map(own_marks).sum();
    let mut users = messages.iter().enumerate().rev().filter(|(_, message)| message.role == Role::User);
    let Some((last, _)) = users.next() else { return (Places::new(), own) };
    let mut wanted = vec![last];
    if let Some((before, _)) = users.next() {
        let blocks_since: usize = messages[before + 1..].iter().map(|message| message.content.len()).sum();
        if blocks_since > BLOCKS_BETWEEN_MARKS {
            wanted.push(before);
        }
    }
    let places = wanted.into_iter().filter_map(|place| {
        let content = &messages[place].content;
        let block = content.iter().rposition(can_be_marked)?;
        (!has_own_mark(&content[block])).then_some((place, block))
    });
    (places.collect(), own)
}

/// Whether the service takes a mark on this block of a user message.
fn can_be_marked(block: &Block) -> bool {
    match block.kind() {
        BlockKind::Text(text) => !text.trim().is_empty(),
        BlockKind::ToolResult { .. } => true,
        BlockKind::Other(kind) => matches!(kind.as_str(), "image" | "document" | "search_result"),
        _ => false,
    }
}

/// What of a block, or of a part of it, may be marked or hold what is.
#[derive(serde::Deserialize)]
struct Marked<'a> {
    #[serde(borrow, default)]
    cache_control: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    source: Option<&'a RawValue>,
}

impl<'a> Marked<'a> {
    /// Most blocks do not name a mark at all; only of the others is it asked where.
    fn of(json: &'a str) -> Option<Self> {
        json.contains("cache_control").then(|| serde_json::from_str(json).ok()).flatten()
    }
}

fn has_own_mark(block: &Block) -> bool {
    Marked::of(block.json()).is_some_and(|marked| marked.cache_control.is_some())
}

/// How many marks the service counts in a block as it is stored: its own, those on the parts of its content, as a
/// result of a tool has them, and those on the parts of a document's source.
fn own_marks(block: &Block) -> usize {
    let Some(marked) = Marked::of(block.json()) else { return 0 };
    let in_source = marked.source.and_then(|source| Marked::of(source.get()));
    let lists = [marked.content, in_source.and_then(|source| source.content)];
    let in_list = |list: &RawValue| {
        let parts = serde_json::from_str::<Vec<&RawValue>>(list.get()).unwrap_or_default();
        let is_marked =
            |part: &&&RawValue| Marked::of(part.get()).is_some_and(|part| part.cache_control.is_some());
        parts.iter().filter(is_marked).count()
    };
    usize::from(marked.cache_control.is_some()) + lists.into_iter().flatten().map(in_list).sum::<usize>()
}

impl Caching {
    /// The JSON of a mark, if there are any.
    const fn mark(self) -> Option<&'static str> {
        match self {
            Self::Off => None,
            Self::FiveMinutes => Some(r#"{"type":"ephemeral"}"#),
            Self::OneHour => Some(r#"{"type":"ephemeral","ttl":"1h"}"#),
        }
    }
}

#[cfg(test)]
mod tests;
