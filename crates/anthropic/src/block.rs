//! One content block while it is streamed: its beginning, and what was added to it.
//!
//! A block to which nothing was added stays what the service sent, to the byte. Of one that grew, only the
//! fields that grew are written anew; all others, known or not, keep their text and their order.

use conjure_conversation::Block;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::fields::{Fields, quoted};
use crate::input::{InputEnd, is_object, settle};

/// A block under construction.
#[derive(Debug)]
pub(crate) struct GrowingBlock {
    start: Box<RawValue>,
    kind: Kind,
    text: String,
    thinking: String,
    signature: Option<String>,
    input: String,
    citations: Vec<Box<RawValue>>,
    /// Deltas of types that we do not know, merged at the end.
    others: Vec<(Merge, Fields)>,
    is_closed: bool,
}

/// What a block is, as far as its growth is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    /// A call of one of our tools.
    ToolUse,
    /// A call of one of the service's tools.
    ServerToolUse,
    /// What we do not know takes every delta.
    Other,
}

/// How a delta's fields change those of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// They replace them: `compaction_delta`.
    Replace,
    /// Texts are appended to texts and lists to lists, as all deltas that we know do; the rest is replaced.
    Append,
}

/// Whether the block's beginning already shows or starts something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// An empty text or thinking: nothing yet.
    Empty,
    /// A text that begins with these words.
    Text(String),
    /// Thinking that begins with these words.
    Thinking(String),
    /// A call of one of our tools.
    ToolUse(String),
    /// Anything else: a tool of the service, a result, what we do not know.
    Other,
}

impl GrowingBlock {
    /// A block that begins with this JSON.
    ///
    /// # Errors
    /// Why it cannot be a block.
    pub(crate) fn start(start: Box<RawValue>) -> Result<(Self, Beginning), String> {
        let fields: Fields = serde_json::from_str(start.get()).map_err(|error| error.to_string())?;
        let name = fields.text("type").ok_or("field `type` is missing or not a text")?;
        let text_of = |name| fields.text(name).unwrap_or_default();
        let beginning = match name.as_str() {
            "text" if text_of("text").is_empty() => Beginning::Empty,
            "text" => Beginning::Text(text_of("text")),
            "thinking" if text_of("thinking").is_empty() => Beginning::Empty,
            "thinking" => Beginning::Thinking(text_of("thinking")),
            "tool_use" => Beginning::ToolUse(text_of("name")),
            _ => Beginning::Other,
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
            others: Vec::new(),
            is_closed: false,
        };
        Ok((block, beginning))
    }

    pub(crate) fn is_tool_use(&self) -> bool {
        self.kind == Kind::ToolUse
    }

    /// Whether this is a call of some tool, ours or the service's, that has an `input`.
    fn is_call(&self) -> bool {
        matches!(self.kind, Kind::ToolUse | Kind::ServerToolUse)
    }

    // A delta that does not belong to its block is dropped, as the official SDK does: a field that the block
    // must not have would make the service refuse the history.

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

    pub(crate) fn add_other(&mut self, merge: Merge, delta: Fields) {
        self.others.push((merge, delta));
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
                && self.others.is_empty())
    }

    /// The finished block. `is_cut` says that the answer was cut or refused, so that its tools never run.
    ///
    /// # Errors
    /// Why it is not a content block.
    pub(crate) fn finish(self, is_cut: bool) -> Result<Block, String> {
        if !self.is_call() && !self.has_grown() {
            return Block::from_raw(self.start).map_err(|error| error.to_string());
        }
        let mut fields: Fields = serde_json::from_str(self.start.get()).map_err(|error| error.to_string())?;
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
        // Before the input is settled, so that nothing that we do not know can undo that.
        merge_others(&mut fields, &self.others);
        let is_untouched = self.settle_input(&mut fields, is_cut) && !self.has_grown();
        if is_untouched {
            return Block::from_raw(self.start).map_err(|error| error.to_string());
        }
        Block::from_json(fields.to_json()).map_err(|error| error.to_string())
    }

    /// Puts the input in its place. Returns whether it is what the block began with.
    fn settle_input(&self, fields: &mut Fields, is_cut: bool) -> bool {
        let end = match (is_cut, self.is_closed) {
            (true, _) => InputEnd::Cut,
            (false, true) => InputEnd::Whole,
            (false, false) => InputEnd::Unclosed,
        };
        if !self.input.trim().is_empty() || (self.is_call() && end == InputEnd::Unclosed) {
            fields.set("input", settle(&self.input, end));
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
                let input = if input == "null" { "{}".to_owned() } else { settle(&input, end) };
                fields.set("input", input);
                false
            }
        }
    }
}

/// The list `json` (anything else counts as an empty one) with these items at its end.
fn appended_list(json: &str, items: &[&str]) -> String {
    let inner = list_items(json);
    let comma = if inner.is_empty() || items.is_empty() { "" } else { "," };
    format!("[{inner}{comma}{}]", items.join(","))
}

/// The text between the brackets of a list; empty for anything else.
fn list_items(json: &str) -> &str {
    json.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or_default().trim()
}

/// Merges deltas that we do not know into the block's fields, in time that grows with their size only.
fn merge_others(fields: &mut Fields, others: &[(Merge, Fields)]) {
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
    for (merge, delta) in others {
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
