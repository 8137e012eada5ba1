//! [`AnswerParts`]: the parts of an answer while it is streamed, in two forms.
//!
//! - The **native items** are sent back: each part raw, in order. Pieces of text are joined if they have the same `thought` flag and no
//!   signature. A part with a signature is kept unchanged, even one with an empty text.
//! - The **blocks** are for the conversation: text, thinking and calls. Text is joined across signatures. Blank blocks are left out.

use conjure_conversation::{Block, ModelEvent, NativeItem};
use conjure_model_http::{InputCompletion, StreamError, ToolNames, finish_input, is_object, quoted};
use serde_json::value::RawValue;

use crate::call_ids::CallIds;
use crate::native_parts::{EmptyPart, FunctionCall, Part, PlainText, text_item, token_item};

/// The parts so far.
#[derive(Debug)]
pub(crate) struct AnswerParts {
    names: ToolNames,
    items: Vec<PartialItem>,
    blocks: Vec<PartialBlock>,
    /// Whether the next text begins a new block.
    is_text_over: bool,
    /// Whether the arguments of all calls are objects, so that the service accepts the parts again.
    is_native_sendable: bool,
}

/// A native item under construction.
#[derive(Debug)]
enum PartialItem {
    /// A part as it arrived. A piece of text is kept in this form until another piece follows it.
    Raw { raw: Box<RawValue>, is_open_text: Option<bool> },
    /// Joined pieces of text.
    Text { text: String, is_thought: bool },
}

/// A block under construction.
#[derive(Debug)]
enum PartialBlock {
    Text {
        text: String,
        is_thought: bool,
        /// How much of the text was shown. Blank text is held back, because its block may be left out.
        shown_len: usize,
    },
    Call {
        id: Option<String>,
        name: String,
        args: String,
    },
}

impl AnswerParts {
    /// Creates an empty answer to a request with these tools.
    pub(crate) const fn new(names: ToolNames) -> Self {
        Self { names, items: Vec::new(), blocks: Vec::new(), is_text_over: true, is_native_sendable: true }
    }

    /// The number of native items.
    pub(crate) const fn count(&self) -> usize {
        self.items.len()
    }

    /// Whether there are calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, PartialBlock::Call { .. }))
    }

    /// Whether all blocks are blank.
    pub(crate) fn is_blank(&self) -> bool {
        self.blocks.iter().all(PartialBlock::is_blank)
    }

    /// The number of bytes that the model has written.
    pub(crate) fn size(&self) -> usize {
        let size = |block: &PartialBlock| match block {
            PartialBlock::Text { text, .. } => text.len(),
            PartialBlock::Call { name, args, .. } => name.len() + args.len(),
        };
        self.blocks.iter().map(size).sum()
    }

    /// Adds a part and passes its previews to `emit`.
    ///
    /// # Errors
    /// If it is not a part, or is a call that cannot be run.
    pub(crate) fn push(
        &mut self,
        raw: &RawValue,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        if let Ok(PlainText { text, thought }) = serde_json::from_str(raw.get()) {
            let is_thought = thought == Some(true);
            if !text.is_empty() {
                self.add_plain_item(raw, &text, is_thought);
                self.add_text(&text, is_thought, emit);
            }
            return Ok(());
        }
        // The service would refuse such a part in a request, so it is dropped.
        if raw.get() == "null" || serde_json::from_str::<EmptyPart>(raw.get()).is_ok() {
            return Ok(());
        }
        let part: Part<'_> = serde_json::from_str(raw.get()).map_err(|error| {
            StreamError::protocol(format!("a part of the answer cannot be read: {error}"))
        })?;
        self.items.push(PartialItem::Raw { raw: raw.to_owned(), is_open_text: None });
        if let Some(call) = part.function_call {
            return self.add_call(call, emit);
        }
        match part.text.filter(|text| !text.is_empty()) {
            Some(text) => self.add_text(&text, part.thought == Some(true), emit),
            None if raw.get().contains("\"thoughtSignature\"") => {}
            None => {
                // A part that only the service reads: code that it ran, its own tools, a file.
                self.is_text_over = true;
                emit(ModelEvent::Started);
            }
        }
        Ok(())
    }

    fn add_plain_item(&mut self, raw: &RawValue, text: &str, is_thought: bool) {
        match self.items.last_mut() {
            Some(PartialItem::Text { text: joined, is_thought: same }) if *same == is_thought => {
                joined.push_str(text);
            }
            Some(last @ PartialItem::Raw { .. }) if last.is_open_text() == Some(is_thought) => {
                let before = last.plain_text();
                *last = PartialItem::Text { text: before + text, is_thought };
            }
            _ => self.items.push(PartialItem::Raw { raw: raw.to_owned(), is_open_text: Some(is_thought) }),
        }
    }

    fn add_text(&mut self, added: &str, is_thought: bool, emit: &mut dyn FnMut(ModelEvent)) {
        let is_same = |block: &PartialBlock| matches!(block, PartialBlock::Text { is_thought: same, .. } if *same == is_thought);
        if std::mem::take(&mut self.is_text_over) || !self.blocks.last().is_some_and(is_same) {
            self.start_block(PartialBlock::Text { text: String::new(), is_thought, shown_len: 0 });
        }
        let index = self.blocks.len() - 1;
        let Some(PartialBlock::Text { text, shown_len, .. }) = self.blocks.last_mut() else { return };
        text.push_str(added);
        if *shown_len == 0 && text.trim_start().is_empty() {
            return;
        }
        let delta = text[*shown_len..].to_owned();
        *shown_len = text.len();
        emit(match is_thought {
            true => ModelEvent::ThinkingDelta { index, text: delta },
            false => ModelEvent::TextDelta { index, text: delta },
        });
    }

    fn add_call(
        &mut self,
        call: FunctionCall<'_>,
        emit: &mut dyn FnMut(ModelEvent),
    ) -> Result<(), StreamError> {
        if call.partial_args.is_some() {
            let reason = "the arguments of a call are streamed in pieces, which was not requested";
            return Err(StreamError::protocol(reason));
        }
        let name = call.name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| StreamError::protocol("a `functionCall` has no name"))?;
        let name = self.names.own_name(&name).to_owned();
        let args = match call.args.map(RawValue::get) {
            None | Some("null") => "{}".to_owned(),
            Some(args) => {
                self.is_native_sendable &= is_object(args);
                finish_input(args, InputCompletion::Complete)
            }
        };
        self.start_block(PartialBlock::Call {
            id: call.id.filter(|id| !id.is_empty()),
            name: name.clone(),
            args: args.clone(),
        });
        self.is_text_over = true;
        let index = self.blocks.len() - 1;
        emit(ModelEvent::ToolUseStarted { index, name });
        emit(ModelEvent::ToolInputDelta { index, partial_json: args });
        Ok(())
    }

    /// Starts a block. If the block before it is blank, that one is left out.
    fn start_block(&mut self, block: PartialBlock) {
        if self.blocks.last().is_some_and(PartialBlock::is_blank) {
            self.blocks.pop();
        }
        self.blocks.push(block);
    }

    /// Returns the blocks, and the native items with this token at the end.
    ///
    /// # Errors
    /// If a block is invalid.
    pub(crate) fn finish(
        self,
        ids: &CallIds,
        response: Option<&str>,
        token: Option<&RawValue>,
    ) -> Result<(Vec<Block>, Vec<NativeItem>), StreamError> {
        let invalid = |error: &dyn std::fmt::Display| StreamError::protocol(format!("the answer: {error}"));
        let mut blocks = Vec::with_capacity(self.blocks.len());
        let mut calls = 0;
        for block in self.blocks.into_iter().filter(|block| !block.is_blank()) {
            blocks.push(match block {
                PartialBlock::Text { text, is_thought: false, .. } => Block::text(text),
                PartialBlock::Text { text, is_thought: true, .. } => {
                    let text = quoted(&text);
                    Block::from_json(format!(r#"{{"type":"thinking","thinking":{text},"signature":""}}"#))
                        .map_err(|error| invalid(&error))?
                }
                PartialBlock::Call { id, name, args } => {
                    let id = quoted(&id.unwrap_or_else(|| ids.id(response, calls)));
                    calls += 1;
                    let name = quoted(&name);
                    let json = format!(r#"{{"type":"tool_use","id":{id},"name":{name},"input":{args}}}"#);
                    Block::from_json(json).map_err(|error| invalid(&error))?
                }
            });
        }
        let mut items = Vec::with_capacity(self.items.len() + 1);
        if self.is_native_sendable {
            for item in self.items {
                items.push(item.finish().map_err(|error| invalid(&error))?);
            }
            if let Some(token) = token {
                items.push(NativeItem::from_json(token_item(token)).map_err(|error| invalid(&error))?);
            }
        }
        Ok((blocks, items))
    }
}

impl PartialItem {
    /// The `thought` flag of a piece of text that can be joined with others.
    const fn is_open_text(&self) -> Option<bool> {
        match self {
            Self::Raw { is_open_text, .. } => *is_open_text,
            Self::Text { is_thought, .. } => Some(*is_thought),
        }
    }

    /// The text of a piece of text.
    fn plain_text(&self) -> String {
        match self {
            Self::Raw { raw, .. } => serde_json::from_str::<PlainText<'_>>(raw.get())
                .map(|plain| plain.text.into_owned())
                .unwrap_or_default(),
            Self::Text { text, .. } => text.clone(),
        }
    }

    fn finish(self) -> Result<NativeItem, serde_json::Error> {
        match self {
            Self::Raw { raw, .. } => Ok(NativeItem::new(raw)),
            Self::Text { text, is_thought } => NativeItem::from_json(text_item(&text, is_thought)),
        }
    }
}

impl PartialBlock {
    fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text, .. } if text.trim().is_empty())
    }
}
