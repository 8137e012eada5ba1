//! [`AssistantMessage`]: rebuilds the assistant's message from the deltas of a stream, and builds the canonical blocks too.
//!
//! The same server gets the rebuilt message back, so the message keeps everything that the deltas had:
//!
//! - strings are concatenated, and a member that was ever a string stays, even an empty one;
//! - `role` is written once, and `null` changes nothing;
//! - lists in `content` and in `reasoning_details` are joined;
//! - of any other member, the last value counts;
//! - each call has its `id`, `type`, `function`, and its unknown members.
//!
//! An unstreamed message is handled as one complete delta.

use std::collections::HashMap;

use conjure_conversation::{Block, ModelEvent, NativeItem};
use conjure_model_http::{InputCompletion, OutputShown, RawObject, StreamError, ToolNames, quoted};
use serde_json::value::RawValue;

use super::list_item::{ListItem, continue_list};
use crate::canonical_blocks::{are_complete_arguments, call_block, finish_arguments, thinking_block};
use crate::object_members::{Members, array_items, string_value};
use crate::preview_events::{Preview, ShownText, TextKind};

/// The maximum number of calls in an answer.
const MAX_CALLS: usize = 10_000;
/// The maximum number of members of a message or of a call. Real ones have a handful.
const MAX_MEMBERS: usize = 1_000;
/// The name of a call that never got one. No tool has this name, so the call gets an error result.
const UNNAMED: &str = "unnamed_tool";

/// A message under construction.
#[derive(Debug)]
pub(super) struct AssistantMessage {
    names: ToolNames,
    preview: Preview,
    /// All members except `role` and `tool_calls`, in order.
    members: Vec<(String, Member)>,
    calls: Vec<Call>,
    /// The newest call of each wire index.
    call_by_index: HashMap<u64, usize>,
    thinking: AnswerText,
    text: AnswerText,
    refusal: AnswerText,
}

/// A member of the message.
#[derive(Debug)]
enum Member {
    /// Only `null` so far.
    Null,
    Text(String),
    List(Vec<ListItem>),
    /// Any other value, as JSON.
    Other(String),
}

/// A text of the answer, with its preview state.
#[derive(Debug, Default)]
struct AnswerText {
    text: String,
    place: ShownText,
}

/// A tool call under construction.
#[derive(Debug, Default)]
struct Call {
    id: String,
    /// The name on the wire.
    name: String,
    arguments: String,
    /// Unknown members of the call.
    other_fields: RawObject,
    /// Unknown members of its `function`.
    other_function_fields: RawObject,
    index: Option<usize>,
}

/// A finished message.
#[derive(Debug)]
pub(super) struct FinishedMessage {
    pub(super) content: Vec<Block>,
    pub(super) native: NativeItem,
    /// The number of bytes that the model wrote.
    pub(super) written: u64,
}

impl AssistantMessage {
    pub(super) fn new(names: ToolNames) -> Self {
        Self {
            names,
            preview: Preview::default(),
            members: Vec::new(),
            calls: Vec::new(),
            call_by_index: HashMap::new(),
            thinking: AnswerText::default(),
            text: AnswerText::default(),
            refusal: AnswerText::default(),
        }
    }

    pub(super) const fn shown(&self) -> OutputShown {
        self.preview.shown()
    }

    pub(super) const fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Whether there are calls and the arguments of each are complete.
    pub(super) fn has_complete_calls(&self) -> bool {
        self.has_calls() && self.calls.iter().all(|call| are_complete_arguments(&call.arguments))
    }

    pub(super) fn has_text(&self) -> bool {
        !self.text.text.trim().is_empty()
    }

    pub(super) fn is_refusal(&self) -> bool {
        !self.refusal.text.trim().is_empty()
    }

    /// Adds a delta.
    pub(super) fn push(
        &mut self,
        delta: &Members<'_>,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        self.push_thinking(delta, emit);
        for (name, raw) in delta.iter() {
            match name {
                "role" => {}
                "tool_calls" => {
                    for call in array_items(raw) {
                        self.push_call(call, emit)?;
                    }
                }
                "content" => {
                    self.push_content(raw, emit);
                    self.merge(name, raw)?;
                }
                "refusal" => {
                    if let Some(piece) = string_value(raw) {
                        self.refusal.push(&piece, TextKind::Text, &mut self.preview, emit);
                    }
                    self.merge(name, raw)?;
                }
                _ => self.merge(name, raw)?,
            }
        }
        Ok(())
    }

    /// Servers use different members for the reasoning, and some write it in two members.
    fn push_thinking(&mut self, delta: &Members<'_>, emit: &mut dyn FnMut(ModelEvent)) {
        let names = ["reasoning_content", "reasoning"];
        let piece = names.iter().find_map(|name| delta.text(name).filter(|piece| !piece.is_empty()));
        if let Some(piece) = piece {
            self.thinking.push(&piece, TextKind::Thinking, &mut self.preview, emit);
        }
    }

    /// The content is a text, or a list of typed parts.
    fn push_content(&mut self, raw: &RawValue, emit: &mut dyn FnMut(ModelEvent)) {
        if let Some(piece) = string_value(raw) {
            self.text.push(&piece, TextKind::Text, &mut self.preview, emit);
            return;
        }
        for part in array_items(raw) {
            let Ok(part) = serde_json::from_str::<Members<'_>>(part.get()) else { continue };
            if let Some(piece) = part.text("text") {
                self.text.push(&piece, TextKind::Text, &mut self.preview, emit);
            }
            let Some(thinking) = part.get("thinking") else { continue };
            let inner = array_items(thinking);
            let inner = inner.iter().filter_map(|part| serde_json::from_str::<Members<'_>>(part.get()).ok());
            let piece = string_value(thinking)
                .unwrap_or_else(|| inner.filter_map(|part| part.text("text")).collect::<String>());
            self.thinking.push(&piece, TextKind::Thinking, &mut self.preview, emit);
        }
    }

    /// Merges a member into the message.
    fn merge(&mut self, name: &str, raw: &RawValue) -> Result<(), StreamError> {
        let place = match self.members.iter().position(|(other, _)| other == name) {
            Some(place) => place,
            None if self.members.len() >= MAX_MEMBERS => {
                return Err(StreamError::TooMany { what: "members of a message", limit: MAX_MEMBERS });
            }
            None => {
                self.members.push((name.to_owned(), Member::Null));
                self.members.len() - 1
            }
        };
        let member = &mut self.members[place].1;
        if raw.get() == "null" {
            return Ok(());
        }
        let is_list = raw.get().starts_with('[');
        match (&mut *member, string_value(raw)) {
            (Member::Text(text), Some(piece)) => text.push_str(&piece),
            (Member::List(items), Some(piece)) => items.push(ListItem::text_part(&piece)),
            (_, Some(piece)) => *member = Member::Text(piece),
            (Member::List(items), None) if is_list => continue_list(items, raw),
            (_, None) if is_list && matches!(name, "content" | "reasoning_details") => {
                let mut items = match member {
                    Member::Text(text) if !text.is_empty() => vec![ListItem::text_part(text)],
                    _ => Vec::new(),
                };
                continue_list(&mut items, raw);
                *member = Member::List(items);
            }
            (_, None) => *member = Member::Other(raw.get().to_owned()),
        }
        Ok(())
    }

    fn push_call(&mut self, raw: &RawValue, emit: &mut dyn FnMut(ModelEvent)) -> Result<(), StreamError> {
        let Ok(delta) = serde_json::from_str::<Members<'_>>(raw.get()) else {
            return Err(StreamError::protocol("a tool call is not an object"));
        };
        let function = delta.object("function").unwrap_or_default();
        let id = delta.text("id").filter(|id| !id.is_empty());
        let name = function.text("name").filter(|name| !name.is_empty());
        let place = self.find_or_add_call(delta.number("index"), id.as_deref(), name.as_deref())?;
        let call = &mut self.calls[place];
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            call.id = id;
        }
        for (name, raw) in delta.iter() {
            if !matches!(name, "index" | "id" | "type" | "function") && raw.get() != "null" {
                set(&mut call.other_fields, name, raw)?;
            }
        }
        for (name, raw) in function.iter() {
            if !matches!(name, "name" | "arguments") && raw.get() != "null" {
                set(&mut call.other_function_fields, name, raw)?;
            }
        }
        if let Some(name) = name.filter(|_| call.name.is_empty()) {
            call.name = name;
        }
        // Some servers write the object itself, not its text.
        let piece = function.get("arguments");
        let piece =
            piece.map(|raw| string_value(raw).unwrap_or_else(|| raw.get().to_owned())).unwrap_or_default();
        call.arguments.push_str(&piece);
        match call.index {
            Some(index) => self.preview.input(index, &piece, emit),
            None if !call.name.is_empty() => {
                let index = self.preview.call(self.names.own_name(&call.name), emit);
                call.index = Some(index);
                self.preview.input(index, &call.arguments, emit);
            }
            None => self.preview.other(emit),
        }
        Ok(())
    }

    /// Finds the call that a delta belongs to. Deltas with the same index belong to one call. Without an index, a new id or a new name
    /// begins a call. Some servers give all calls the same index, so another id with another name begins a call too.
    fn find_or_add_call(
        &mut self,
        index: Option<u64>,
        id: Option<&str>,
        name: Option<&str>,
    ) -> Result<usize, StreamError> {
        let known = match index {
            Some(index) => self.call_by_index.get(&index).copied(),
            None => self.calls.len().checked_sub(1),
        };
        let continues = |call: &Call| {
            let has_other_id = id.is_some_and(|id| !call.id.is_empty() && call.id != id);
            match index {
                Some(_) => !(has_other_id && name.is_some() && !call.name.is_empty()),
                None => !has_other_id && (id.is_some() || name.is_none() || call.name.is_empty()),
            }
        };
        if let Some(place) = known.filter(|place| continues(&self.calls[*place])) {
            return Ok(place);
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(StreamError::TooMany { what: "tool calls", limit: MAX_CALLS });
        }
        let place = self.calls.len();
        self.calls.push(Call::default());
        if let Some(index) = index {
            self.call_by_index.insert(index, place);
        }
        Ok(place)
    }

    /// Finishes the message. `end` says whether the answer was cut.
    pub(super) fn finish(mut self, end: InputCompletion) -> Result<FinishedMessage, StreamError> {
        let mut written = self.thinking.text.len() + self.text.text.len() + self.refusal.text.len();
        self.name_calls();
        let mut blocks: Vec<(usize, Result<Block, String>)> = Vec::new();
        let texts = [
            (&self.thinking, TextKind::Thinking),
            (&self.text, TextKind::Text),
            (&self.refusal, TextKind::Text),
        ];
        for (block_text, kind) in texts {
            if let Some(index) = block_text.place.index() {
                let block = match kind {
                    TextKind::Thinking => thinking_block(&block_text.text),
                    TextKind::Text => Ok(Block::text(block_text.text.as_str())),
                };
                blocks.push((index, block));
            }
        }
        for call in &mut self.calls {
            written += call.name.len() + call.arguments.len();
            call.arguments = finish_arguments(&call.arguments, end);
            let block = call_block(&call.id, self.names.own_name(&call.name), &call.arguments);
            // A call without an index never had a name, so it was never shown.
            blocks.push((call.index.unwrap_or(usize::MAX), block));
        }
        blocks.sort_by_key(|(index, _)| *index);
        let content: Result<Vec<Block>, String> = blocks.into_iter().map(|(_, block)| block).collect();
        let native = NativeItem::from_json(self.native_json());
        Ok(FinishedMessage {
            content: content.map_err(StreamError::protocol)?,
            native: native.map_err(|error| StreamError::protocol(error.to_string()))?,
            written: written as u64,
        })
    }

    /// Gives a new id to a call that has none, or that has the id of another call.
    fn name_calls(&mut self) {
        let mut used_ids = std::collections::HashSet::new();
        for (place, call) in self.calls.iter_mut().enumerate() {
            let mut number = place;
            while call.id.is_empty() || !used_ids.insert(call.id.clone()) {
                call.id = format!("call_{number}");
                number += 1;
            }
            if call.name.is_empty() {
                call.name = UNNAMED.to_owned();
            }
        }
    }

    /// The message in the form that the server gets back.
    fn native_json(self) -> String {
        let mut message = RawObject::default();
        message.set("role", quoted("assistant"));
        let has_content =
            self.members.iter().any(|(name, value)| name == "content" && !matches!(value, Member::Null));
        if !has_content {
            message.set("content", if self.calls.is_empty() { "\"\"" } else { "null" }.to_owned());
        }
        for (name, value) in self.members {
            match value {
                Member::Null => {}
                Member::Text(text) => message.set(&name, quoted(&text)),
                Member::List(items) => {
                    let items: Vec<String> = items.into_iter().map(ListItem::into_json).collect();
                    message.set(&name, format!("[{}]", items.join(",")));
                }
                Member::Other(raw) => message.set(&name, raw),
            }
        }
        if !self.calls.is_empty() {
            let calls: Vec<String> = self.calls.iter().map(Call::native_json).collect();
            message.set("tool_calls", format!("[{}]", calls.join(",")));
        }
        message.to_json()
    }
}

impl AnswerText {
    fn push(&mut self, piece: &str, kind: TextKind, preview: &mut Preview, emit: &mut dyn FnMut(ModelEvent)) {
        self.text.push_str(piece);
        preview.text(&mut self.place, kind, piece, emit);
    }
}

impl Call {
    fn native_json(&self) -> String {
        let other_fields = |members: &RawObject| {
            members.iter().map(|(name, raw)| format!(",{}:{raw}", quoted(name))).collect::<String>()
        };
        format!(
            r#"{{"id":{},"type":"function","function":{{"name":{},"arguments":{}{}}}{}}}"#,
            quoted(&self.id),
            quoted(&self.name),
            quoted(&self.arguments),
            other_fields(&self.other_function_fields),
            other_fields(&self.other_fields)
        )
    }
}

/// Sets an unknown member to its last value.
fn set(members: &mut RawObject, name: &str, raw: &RawValue) -> Result<(), StreamError> {
    if members.len() >= MAX_MEMBERS && members.get(name).is_none() {
        return Err(StreamError::TooMany { what: "members of a tool call", limit: MAX_MEMBERS });
    }
    members.set(name, raw.get().to_owned());
    Ok(())
}
