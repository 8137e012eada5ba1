//! Writes the request body: stable parts first, messages last, every block as it is stored.
//!
//! **Byte prefix.** Let tools, instructions and options be unchanged, and no cache breakpoints be set. Then the body of call N, up to the
//! end of its messages, is a byte prefix of the body of call N+1. The order of fields is fixed and blocks are copied byte for byte. Only
//! the container follows the messages, because it is unknown before the first response.
//!
//! **Cache breakpoints.** A breakpoint is the text `,"cache_control":{...}` before the closing brace of a tool, instruction or block. It is
//! written into the body only, never into stored blocks, and moves with the conversation. So the prefix still holds once breakpoints are
//! removed; the service caches by content. At most four breakpoints are set, including those of the embedder:
//!
//! - the last tool;
//! - the last instruction;
//! - the last block of the last user message;
//! - the last block of the user message before it, if more than [`BLOCKS_BETWEEN_BREAKPOINTS`] blocks follow, because the service looks
//!   back 20 blocks only.
//!
//! Blocks of the assistant never get a breakpoint, because they are sent back unchanged. Only the thinking blocks of models behind other
//! APIs are left out.

use std::sync::Arc;

use conjure_base::ContainerId;
use conjure_conversation::{Block, BlockKind, Message, ModelApi, Request, Role};
use conjure_model_http::quoted;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::config::Caching;
use crate::options::{CONTAINER, CONTEXT_MANAGEMENT, ModelOptions};

/// The maximum number of breakpoints that the service accepts.
const MAX_BREAKPOINTS: usize = 4;
/// If more blocks than this follow the previous call's breakpoint, that breakpoint is set again.
const BLOCKS_BETWEEN_BREAKPOINTS: usize = 15;

/// The content of a message that has no block the service can read. The service refuses empty messages, and its errors name messages by
/// their index.
const NO_TEXT: &str = r#"{"type":"text","text":"(no text)"}"#;

/// The blocks with a breakpoint: message index and block index.
type BreakpointPositions = Vec<(usize, usize)>;

/// Writes the body of `request`.
pub(crate) fn request_body(request: &Request, options: &ModelOptions) -> Vec<u8> {
    let mark = options.caching().breakpoint_json();
    let (message_breakpoints, own) = breakpoint_positions(&request.messages);
    let has_breakpoint = |tool: &Value| tool.get("cache_control").is_some_and(|mark| !mark.is_null());
    let own = own
        + options.server_tools().iter().filter(|tool| has_breakpoint(tool)).count()
        + usize::from(options.extra().contains_key("cache_control"));
    let mut remaining = MAX_BREAKPOINTS.saturating_sub(own);
    let mut try_take = |is_wanted: bool| {
        let is_granted = is_wanted && mark.is_some() && remaining > 0;
        remaining -= usize::from(is_granted);
        is_granted
    };
    // A breakpoint on the conversation saves the most, one on the tools the least.
    let message_breakpoints: BreakpointPositions =
        message_breakpoints.into_iter().filter(|_| try_take(true)).collect();
    let marks_instructions = try_take(!request.instructions.iter().all(|text| text.trim().is_empty()));
    let has_tools = !(request.tools.is_empty() && options.server_tools().is_empty());
    let marks_tools = try_take(has_tools && !options.server_tools().last().is_some_and(has_breakpoint));
    let mark = mark.unwrap_or_default();

    let mut body = RequestBody::with_capacity(estimated_size(request));
    body.text("{\"model\":");
    body.text(&quoted(options.model()));
    body.text(",\"max_tokens\":");
    body.text(&options.max_tokens().to_string());
    body.text(",\"stream\":true");
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
    if let Some(last) = tools.last_mut().filter(|_| marks_tools) {
        *last = with_breakpoint(last, mark);
    }
    body.list("tools", &tools);
    let instructions = request.instructions.iter().filter(|text| !text.trim().is_empty());
    let mut instructions: Vec<String> =
        instructions.map(|text| format!(r#"{{"type":"text","text":{}}}"#, quoted(text))).collect();
    if let Some(last) = instructions.last_mut().filter(|_| marks_instructions) {
        *last = with_breakpoint(last, mark);
    }
    body.list("system", &instructions);
    body.text(",\"messages\":[");
    for (index, message) in request.messages.iter().enumerate() {
        body.separate(index);
        body.text(match message.role {
            Role::User => "{\"role\":\"user\",\"content\":[",
            Role::Assistant => "{\"role\":\"assistant\",\"content\":[",
        });
        let readable = message.content.iter().enumerate().filter(|(_, block)| is_readable(message, block));
        let mut written = 0;
        for (block_index, block) in readable {
            body.separate(written);
            written += 1;
            if message_breakpoints.contains(&(index, block_index)) {
                body.text(&with_breakpoint(block.json(), mark));
            } else {
                body.text(block.json());
            }
        }
        if written == 0 {
            body.text(NO_TEXT);
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

/// Whether the service can read this block of a message. It refuses thinking blocks of models behind other APIs, because they have no
/// signature.
fn is_readable(message: &Message, block: &Block) -> bool {
    let is_thought = matches!(block.kind(), BlockKind::Thinking(_));
    !is_thought || message.native.as_ref().is_none_or(|native| native.origin.api == ModelApi::Messages)
}

/// The `container` of a request. It is the embedder's own, with the conversation's container id added if it has none. Without one, it is
/// that id.
fn container(named: Option<&Value>, used: Option<&ContainerId>) -> Option<Value> {
    let id = || used.map(|id| Value::from(id.as_str()));
    match named {
        Some(Value::Object(fields)) if fields.get("id").is_none_or(Value::is_null) => {
            let mut fields = fields.clone();
            fields.extend(id().map(|id| ("id".to_owned(), id)));
            Some(Value::Object(fields))
        }
        Some(named) => Some(named.clone()),
        None => id(),
    }
}

/// The id of the container that the request names, if it names one.
pub(crate) fn container_id(request: &Request, options: &ModelOptions) -> Option<String> {
    let container = container(options.extra().get(CONTAINER), request.container.as_ref())?;
    container.as_str().or_else(|| container["id"].as_str()).map(str::to_owned)
}

struct RequestBody(Vec<u8>);

impl RequestBody {
    fn with_capacity(size: usize) -> Self {
        Self(Vec::with_capacity(size))
    }

    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.text(",");
        }
    }

    /// Writes a list field; an empty list is omitted.
    fn list(&mut self, name: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.text(",\"");
        self.text(name);
        self.text("\":[");
        for (index, item) in items.iter().enumerate() {
            self.separate(index);
            self.text(item);
        }
        self.text("]");
    }
}

/// Estimates the size of the body in bytes.
fn estimated_size(request: &Request) -> usize {
    let messages = request.messages.iter().flat_map(|message| &message.content);
    let messages: usize = messages.map(|block| block.json().len() + 40).sum();
    let instructions: usize = request.instructions.iter().map(String::len).sum();
    messages + instructions + request.tools.len() * 1024 + 1024
}

/// Adds a breakpoint as the last field of a JSON object.
fn with_breakpoint(object: &str, mark: &str) -> String {
    let open = object.trim_end().strip_suffix('}').unwrap_or(object);
    format!("{open},\"cache_control\":{mark}}}")
}

/// The blocks that get a breakpoint, most valuable first, and the number of breakpoints that the embedder has set.
fn breakpoint_positions(messages: &[Arc<Message>]) -> (BreakpointPositions, usize) {
    let own = messages.iter().flat_map(|message| &message.content).map(own_breakpoints).sum();
    let mut users = messages.iter().enumerate().rev().filter(|(_, message)| message.role == Role::User);
    let Some((last, _)) = users.next() else { return (BreakpointPositions::new(), own) };
    let mut messages_to_mark = vec![last];
    if let Some((previous, _)) = users.next() {
        let blocks_since: usize = messages[previous + 1..].iter().map(|message| message.content.len()).sum();
        if blocks_since > BLOCKS_BETWEEN_BREAKPOINTS {
            messages_to_mark.push(previous);
        }
    }
    let positions = messages_to_mark.into_iter().filter_map(|index| {
        let content = &messages[index].content;
        let block = content.iter().rposition(is_cacheable)?;
        (!has_own_breakpoint(&content[block])).then_some((index, block))
    });
    (positions.collect(), own)
}

/// Whether the service accepts a breakpoint on this block of a user message.
fn is_cacheable(block: &Block) -> bool {
    match block.kind() {
        BlockKind::Text(text) => !text.trim().is_empty(),
        BlockKind::ToolResult { .. } => true,
        BlockKind::Other(kind) => matches!(kind.as_str(), "image" | "document" | "search_result"),
        _ => false,
    }
}

/// The fields of a block that may hold breakpoints.
#[derive(serde::Deserialize)]
struct CacheableBlock<'a> {
    #[serde(borrow, default)]
    cache_control: Option<&'a RawValue>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    source: Option<&'a RawValue>,
}

impl<'a> CacheableBlock<'a> {
    /// Parses a block only if it contains `cache_control` at all.
    fn of(json: &'a str) -> Option<Self> {
        json.contains("cache_control").then(|| serde_json::from_str(json).ok()).flatten()
    }
}

fn has_own_breakpoint(block: &Block) -> bool {
    CacheableBlock::of(block.json()).is_some_and(|fields| fields.cache_control.is_some())
}

/// Counts the breakpoints in a stored block: its own, those in its content parts, and those in the parts of a document's source.
fn own_breakpoints(block: &Block) -> usize {
    let Some(fields) = CacheableBlock::of(block.json()) else { return 0 };
    let in_source = fields.source.and_then(|source| CacheableBlock::of(source.get()));
    let lists = [fields.content, in_source.and_then(|source| source.content)];
    let in_list = |list: &RawValue| {
        let parts = serde_json::from_str::<Vec<&RawValue>>(list.get()).unwrap_or_default();
        let has_breakpoint = |part: &&&RawValue| {
            CacheableBlock::of(part.get()).is_some_and(|part| part.cache_control.is_some())
        };
        parts.iter().filter(has_breakpoint).count()
    };
    usize::from(fields.cache_control.is_some()) + lists.into_iter().flatten().map(in_list).sum::<usize>()
}

impl Caching {
    /// The JSON of a breakpoint; `None` without caching.
    const fn breakpoint_json(self) -> Option<&'static str> {
        match self {
            Self::Off => None,
            Self::FiveMinutes => Some(r#"{"type":"ephemeral"}"#),
            Self::OneHour => Some(r#"{"type":"ephemeral","ttl":"1h"}"#),
        }
    }
}

#[cfg(test)]
mod tests;
