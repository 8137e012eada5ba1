//! [`PartialBlock`]: a content block while it is streamed.
//!
//! A block without deltas keeps the service's JSON byte for byte. In a block with deltas, only the changed fields are rewritten. All other
//! fields, known or unknown, keep their text and order.

use conjure_conversation::Block;
use conjure_model_http::{InputCompletion, RawObject, finish_input, is_object, quoted};
use serde_json::Value;
use serde_json::value::RawValue;

/// A block under construction.
#[derive(Debug)]
pub(crate) struct PartialBlock {
    start: Box<RawValue>,
    kind: Kind,
    text: String,
    thinking: String,
    signature: Option<String>,
    input: String,
    citations: Vec<Box<RawValue>>,
    /// Deltas of unknown types, merged at the end.
    other_deltas: Vec<(Merge, RawObject)>,
    is_closed: bool,
}

/// The kind of a block, which decides which deltas it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    /// A call of a client tool.
    ToolUse,
    /// A call of a service tool.
    ServerToolUse,
    /// An unknown block accepts every delta.
    Other,
}

/// How a delta's fields are merged into the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// They replace the block's fields: `compaction_delta`.
    Replace,
    /// Strings and lists are appended, as for all known deltas; other values are replaced.
    Append,
}

/// The content that the start of a block already has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InitialContent {
    /// Nothing: an empty text or thinking.
    Empty,
    /// The beginning of a text.
    Text(String),
    /// The beginning of a thinking block.
    Thinking(String),
    /// A call of a client tool.
    ToolUse(String),
    /// Anything else: a service tool, a result, an unknown block.
    Other,
}

impl PartialBlock {
    /// Starts a block with this JSON.
    ///
    /// # Errors
    /// Why it is not a valid block.
    pub(crate) fn start(start: Box<RawValue>) -> Result<(Self, InitialContent), String> {
        let fields: RawObject = serde_json::from_str(start.get()).map_err(|error| error.to_string())?;
        let name = fields.text("type").ok_or("field `type` is missing or not a text")?;
        let field_text = |name| fields.text(name).unwrap_or_default();
        let initial_content = match name.as_str() {
            "text" if field_text("text").is_empty() => InitialContent::Empty,
            "text" => InitialContent::Text(field_text("text")),
            "thinking" if field_text("thinking").is_empty() => InitialContent::Empty,
            "thinking" => InitialContent::Thinking(field_text("thinking")),
            "tool_use" => InitialContent::ToolUse(field_text("name")),
            _ => InitialContent::Other,
        };
        let kind = match name.as_str() {
            "text" => Kind::Text,
            "thinking" => Kind::Thinking,
            "tool_use" => Kind::ToolUse,
            "server_tool_use" | "mcp_tool_use" => Kind::ServerToolUse,
            _ => Kind::Other,
        };
        let block = Self {
            start,
            kind,
            text: String::new(),
            thinking: String::new(),
            signature: None,
            input: String::new(),
            citations: Vec::new(),
            other_deltas: Vec::new(),
            is_closed: false,
        };
        Ok((block, initial_content))
    }

    pub(crate) fn is_tool_use(&self) -> bool {
        self.kind == Kind::ToolUse
    }

    /// Whether it is a tool call with an `input`, of the client or the service.
    fn is_call(&self) -> bool {
        matches!(self.kind, Kind::ToolUse | Kind::ServerToolUse)
    }

    // A delta that does not fit its block is dropped, as the official SDK does. Such a delta would leave an invalid field, and the service
    // would refuse the history.

    pub(crate) fn add_text(&mut self, text: &str) {
        if matches!(self.kind, Kind::Text | Kind::Other) {
            self.text.push_str(text);
        }
    }

    pub(crate) fn add_thinking(&mut self, text: &str) {
        if matches!(self.kind, Kind::Thinking | Kind::Other) {
            self.thinking.push_str(text);
        }
    }

    pub(crate) fn set_signature(&mut self, signature: String) {
        if matches!(self.kind, Kind::Thinking | Kind::Other) {
            self.signature = Some(signature);
        }
    }

    pub(crate) fn add_input(&mut self, json: &str) {
        if self.is_call() || self.kind == Kind::Other {
            self.input.push_str(json);
        }
    }

    pub(crate) fn add_citation(&mut self, citation: Box<RawValue>) {
        if matches!(self.kind, Kind::Text | Kind::Other) {
            self.citations.push(citation);
        }
    }

    pub(crate) fn add_other(&mut self, merge: Merge, delta: RawObject) {
        self.other_deltas.push((merge, delta));
    }

    pub(crate) const fn close(&mut self) {
        self.is_closed = true;
    }

    fn has_grown(&self) -> bool {
        self.signature.is_some()
            || !(self.text.is_empty()
                && self.thinking.is_empty()
                && self.input.is_empty()
                && self.citations.is_empty()
                && self.other_deltas.is_empty())
    }

    /// Finishes the block. `is_cut` means that the response was cut or refused, so that its tools never run.
    ///
    /// # Errors
    /// Why the result is not a content block.
    pub(crate) fn finish(self, is_cut: bool) -> Result<Block, String> {
        if !self.is_call() && !self.has_grown() {
            return Block::from_raw(self.start).map_err(|error| error.to_string());
        }
        let mut fields: RawObject =
            serde_json::from_str(self.start.get()).map_err(|error| error.to_string())?;
        for (name, added) in [("text", &self.text), ("thinking", &self.thinking)] {
            if !added.is_empty() {
                let whole = fields.text(name).unwrap_or_default() + added;
                fields.set(name, quoted(&whole));
            }
        }
        if let Some(signature) = &self.signature {
            fields.set("signature", quoted(signature));
        }
        if !self.citations.is_empty() {
            let citations: Vec<&str> = self.citations.iter().map(|citation| citation.get()).collect();
            let whole = appended_list(fields.get("citations").unwrap_or("null"), &citations);
            fields.set("citations", whole);
        }
        // The unknown deltas come first, so that none of them can overwrite the input.
        merge_other_deltas(&mut fields, &self.other_deltas);
        let is_untouched = self.finish_input(&mut fields, is_cut) && !self.has_grown();
        if is_untouched {
            return Block::from_raw(self.start).map_err(|error| error.to_string());
        }
        Block::from_json(fields.to_json()).map_err(|error| error.to_string())
    }

    /// Sets the final input. Returns whether it is unchanged from the block's start.
    fn finish_input(&self, fields: &mut RawObject, is_cut: bool) -> bool {
        let end = match (is_cut, self.is_closed) {
            (true, _) => InputCompletion::Cut,
            (false, true) => InputCompletion::Complete,
            (false, false) => InputCompletion::Unclosed,
        };
        if !self.input.trim().is_empty() || (self.is_call() && end == InputCompletion::Unclosed) {
            fields.set("input", finish_input(&self.input, end));
            return false;
        }
        if !self.is_call() {
            return true;
        }
        match fields.get("input").map(str::to_owned) {
            Some(input) if is_object(&input) => true,
            None => {
                fields.set("input", "{}".to_owned());
                false
            }
            Some(input) => {
                let input = if input == "null" { "{}".to_owned() } else { finish_input(&input, end) };
                fields.set("input", input);
                false
            }
        }
    }
}

/// Appends items to the list `json`. Any other JSON counts as an empty list.
fn appended_list(json: &str, items: &[&str]) -> String {
    let inner = list_items(json);
    let comma = if inner.is_empty() || items.is_empty() { "" } else { "," };
    format!("[{inner}{comma}{}]", items.join(","))
}

/// The text between the brackets of a list; empty for other JSON.
fn list_items(json: &str) -> &str {
    json.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default().trim()
}

/// Merges unknown deltas into the block's fields, in linear time.
fn merge_other_deltas(fields: &mut RawObject, other_deltas: &[(Merge, RawObject)]) {
    enum Whole {
        Text(String),
        List(Vec<String>),
        Raw(String),
    }
    let read = |json: &str| match serde_json::from_str::<Value>(json) {
        Ok(Value::String(text)) => Whole::Text(text),
        Ok(Value::Array(_)) => Whole::List(vec![json.to_owned()]),
        _ => Whole::Raw(json.to_owned()),
    };
    let mut merged: std::collections::BTreeMap<&str, Whole> = std::collections::BTreeMap::new();
    for (merge, delta) in other_deltas {
        for (name, json) in delta.iter().filter(|(name, _)| !matches!(*name, "type" | "id" | "name")) {
            let added = read(json);
            if *merge == Merge::Replace {
                merged.insert(name, added);
                continue;
            }
            let whole = merged.entry(name).or_insert_with(|| read(fields.get(name).unwrap_or("null")));
            match (whole, added) {
                (Whole::Text(whole), Whole::Text(added)) => whole.push_str(&added),
                (Whole::List(whole), Whole::List(added)) => whole.extend(added),
                (whole, added) => *whole = added,
            }
        }
    }
    for (name, whole) in merged {
        let json = match whole {
            Whole::Text(text) => quoted(&text),
            Whole::List(lists) => {
                let inner: Vec<&str> =
                    lists.iter().map(|list| list_items(list)).filter(|items| !items.is_empty()).collect();
                format!("[{}]", inner.join(","))
            }
            Whole::Raw(json) => json,
        };
        fields.set(name, json);
    }
}
