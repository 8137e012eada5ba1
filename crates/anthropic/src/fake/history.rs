//! The messages of a request: normalised and checked for pairing.
//!
//! The service joins consecutive messages of one role, and treats a string as one text block. So the history is normalised first and
//! then checked by the validator of `conjure-conversation`. Errors name the positions in the original request.

use conjure_conversation::{Block, Message, PairingError, Role, pairing};
use serde_json::Value;

use super::refusal::Refusal;

/// The messages in the validator's form, and the original position of each of their blocks.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) messages: Vec<Message>,
    positions: Vec<Vec<(usize, usize)>>,
    /// The number of assistant messages in the request.
    pub(super) assistant_messages: usize,
}

impl History {
    /// Builds the history from these messages, whose form was checked before.
    pub(super) fn of(messages: &[Value]) -> Result<Self, Refusal> {
        let mut history = Self::default();
        for (index, message) in messages.iter().enumerate() {
            let role = if message["role"] == "assistant" { Role::Assistant } else { Role::User };
            history.assistant_messages += usize::from(role == Role::Assistant);
            let content = match &message["content"] {
                Value::String(text) => vec![Block::text(text.as_str())],
                content => blocks(index, content)?,
            };
            let positions = (0..content.len()).map(|block| (index, block));
            match history.messages.last_mut().filter(|last| last.role == role) {
                Some(last) => {
                    last.content.extend(content);
                    history.positions.last_mut().into_iter().for_each(|of| of.extend(positions.clone()));
                }
                None => {
                    history.messages.push(Message { role, content, native: None });
                    history.positions.push(positions.collect());
                }
            }
        }
        history.check()?;
        Ok(history)
    }

    /// The number of blocks in the assistant's messages.
    pub(super) fn blocks(&self) -> usize {
        let assistant_messages = self.messages.iter().filter(|message| message.role == Role::Assistant);
        assistant_messages.map(|message| message.content.len()).sum()
    }

    fn check(&self) -> Result<(), Refusal> {
        let Err(error) = pairing::check(&self.messages) else { return Ok(()) };
        Err(Refusal::invalid(match error {
            PairingError::NoMessages => "messages: at least one message is required".to_owned(),
            PairingError::AssistantFirst => "messages: first message must use the \"user\" role".to_owned(),
            PairingError::EmptyMessage { message } => format!(
                "messages.{}: all messages must have non-empty content except for the optional final assistant \
                 message",
                self.message(message)
            ),
            PairingError::EmptyText { message, block } => {
                format!("{}.text: text content blocks must be non-empty", self.block(message, block))
            }
            PairingError::WrongRole { message, block, kind } => {
                let role = if kind == "tool_result" { "user" } else { "assistant" };
                format!("{}: `{kind}` blocks can only be in `{role}` messages", self.block(message, block))
            }
            PairingError::DuplicateId { message, id } => format!(
                "{}: `tool_use` ids must be unique: {id}",
                self.block(message, self.call(message, &id))
            ),
            PairingError::Unanswered { message, id } => {
                let previous = message.saturating_sub(1);
                format!(
                    "{}: `tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each \
                     `tool_use` block must have a corresponding `tool_result` block in the next message.",
                    self.block(previous, self.call(previous, &id))
                )
            }
            PairingError::Orphan { message, block, id } => format!(
                "{}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must \
                 have a corresponding `tool_use` block in the previous message.",
                self.block(message, block)
            ),
            other => format!("messages: {other}"),
        }))
    }

    /// The index of a message in the original request.
    fn message(&self, message: usize) -> usize {
        self.positions.get(message).and_then(|of| of.first()).map_or(message, |(index, _)| *index)
    }

    /// The path of a block: `messages.N.content.M`.
    fn block(&self, message: usize, block: usize) -> String {
        let index = self.positions.get(message).and_then(|of| of.get(block));
        let (message, block) = index.copied().unwrap_or((message, block));
        format!("messages.{message}.content.{block}")
    }

    /// The index of the last call with this id in a message.
    fn call(&self, message: usize, id: &str) -> usize {
        let content =
            self.messages.get(message).map(|message| message.content.as_slice()).unwrap_or_default();
        let is_it = |block: &Block| block.tool_call().is_some_and(|call| call.id.as_str() == id);
        content.iter().rposition(is_it).unwrap_or(0)
    }
}

fn blocks(index: usize, content: &Value) -> Result<Vec<Block>, Refusal> {
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    let read = |(at, block): (usize, &Value)| {
        Block::from_json(block.to_string())
            .map_err(|error| Refusal::invalid(format!("messages.{index}.content.{at}: {error}")))
    };
    blocks.iter().enumerate().map(read).collect()
}
