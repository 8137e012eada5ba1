//! Whether the messages of a request are what the service accepts: our public validator.
//!
//! Roles alternate, the user begins, every `tool_use` is answered once, in order, at the head of the very next
//! user message, ids are unique, nothing is empty. Server-side tools are not ours to answer and not looked at.

use std::borrow::Borrow;
use std::collections::HashSet;

use crate::content::{Block, BlockKind};
use crate::message::{Message, Role};

/// The first thing that is wrong with a request's messages. Places count from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairingError {
    /// There are no messages.
    #[error("there are no messages")]
    NoMessages,
    /// The first message is the assistant's.
    #[error("the first message is the assistant's; the user must begin")]
    AssistantFirst,
    /// Two messages of one role follow each other.
    #[error("messages {message} and the one before it have the same role; join their blocks")]
    SameRole {
        /// The second of them.
        message: usize,
    },
    /// A message has no content.
    #[error("message {message} is empty")]
    EmptyMessage {
        /// Which.
        message: usize,
    },
    /// A text block has nothing but white space.
    #[error("block {block} of message {message} is a text without text")]
    EmptyText {
        /// Which message.
        message: usize,
        /// Which block.
        block: usize,
    },
    /// A `tool_use` of the user, or a `tool_result` of the assistant.
    #[error("block {block} of message {message} is a `{kind}`, which this role cannot say")]
    WrongRole {
        /// Which message.
        message: usize,
        /// Which block.
        block: usize,
        /// Its type.
        kind: &'static str,
    },
    /// Two calls have one id.
    #[error("message {message} uses the tool call id `{id}` again")]
    DuplicateId {
        /// Which message.
        message: usize,
        /// The id.
        id: String,
    },
    /// The next user message does not answer a call in its place.
    #[error("message {message} does not answer the tool call `{id}` in its place")]
    Unanswered {
        /// The message that should hold the result; it may be missing altogether.
        message: usize,
        /// The call's id.
        id: String,
    },
    /// A result answers no call of the message before it.
    #[error("block {block} of message {message} answers `{id}`, which was not called, or not there")]
    Orphan {
        /// Which message.
        message: usize,
        /// Which block.
        block: usize,
        /// The id that it answers.
        id: String,
    },
}

/// Checks the messages of a request. The last one is the user's, or the assistant's paused answer that is
/// resumed; the latter cannot hold a call of ours.
///
/// # Errors
/// The first thing that is wrong.
pub fn check<M: Borrow<Message>>(messages: &[M]) -> Result<(), PairingError> {
    if messages.is_empty() {
        return Err(PairingError::NoMessages);
    }
    check_history(messages)
}

/// Checks messages that may still be empty: the history of a session between two turns.
///
/// # Errors
/// As [`check`].
pub fn check_history<M: Borrow<Message>>(messages: &[M]) -> Result<(), PairingError> {
    let mut seen: HashSet<&str> = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let message: &Message = message.borrow();
        let expected = if index % 2 == 0 { Role::User } else { Role::Assistant };
        if message.role != expected {
            return Err(if index == 0 {
                PairingError::AssistantFirst
            } else {
                PairingError::SameRole { message: index }
            });
        }
        check_blocks(index, message)?;
        match message.role {
            Role::User => check_results(index, &message.content, &std::mem::take(&mut open))?,
            Role::Assistant => {
                open = message.tool_calls().map(|call| call.id.as_str()).collect();
                if let Some(id) = open.iter().find(|id| !seen.insert(id)) {
                    return Err(PairingError::DuplicateId { message: index, id: (*id).to_owned() });
                }
            }
        }
    }
    match open.first() {
        Some(id) => Err(PairingError::Unanswered { message: messages.len(), id: (*id).to_owned() }),
        None => Ok(()),
    }
}

/// Nothing is empty, and each block is one that its role can say.
fn check_blocks(index: usize, message: &Message) -> Result<(), PairingError> {
    if message.content.is_empty() {
        return Err(PairingError::EmptyMessage { message: index });
    }
    for (block, content) in message.content.iter().enumerate() {
        let wrong = |kind| Err(PairingError::WrongRole { message: index, block, kind });
        match (message.role, content.kind()) {
            (_, BlockKind::Text(text)) if text.trim().is_empty() => {
                return Err(PairingError::EmptyText { message: index, block });
            }
            (Role::User, BlockKind::ToolUse(_)) => return wrong("tool_use"),
            (Role::User, BlockKind::Thinking(_)) => return wrong("thinking"),
            (Role::Assistant, BlockKind::ToolResult { .. }) => return wrong("tool_result"),
            _ => {}
        }
    }
    Ok(())
}

/// The message begins with the results of the open calls, in order, and holds no others.
fn check_results(index: usize, content: &[Block], open: &[&str]) -> Result<(), PairingError> {
    let result_id = |block: &Block| match block.kind() {
        BlockKind::ToolResult { tool_use_id, .. } => Some(tool_use_id.clone()),
        _ => None,
    };
    for (place, id) in open.iter().enumerate() {
        if content.get(place).and_then(result_id).as_deref() != Some(*id) {
            return Err(PairingError::Unanswered { message: index, id: (*id).to_owned() });
        }
    }
    for (block, content) in content.iter().enumerate().skip(open.len()) {
        if let Some(id) = result_id(content) {
            return Err(PairingError::Orphan { message: index, block, id });
        }
    }
    Ok(())
}
