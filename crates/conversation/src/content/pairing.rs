//! Validates the messages of a request by the rules of the service.
//!
//! Roles alternate, and the user begins. Every `tool_use` has one result, in order, at the start of the next user message. Ids are
//! unique, and nothing is empty. Server-side tools are not checked.

use std::borrow::Borrow;
use std::collections::HashSet;

use crate::content::block::{Block, BlockKind};
use crate::content::message::{Message, Role};

/// The first error in a request's messages. Positions count from 0.
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
        /// The position of the message.
        message: usize,
    },
    /// A text block has nothing but white space.
    #[error("block {block} of message {message} is a blank text")]
    EmptyText {
        /// The position of the message.
        message: usize,
        /// The position of the block in the message.
        block: usize,
    },
    /// A `tool_use` of the user, or a `tool_result` of the assistant.
    #[error("block {block} of message {message} is a `{kind}`, which this role cannot send")]
    WrongRole {
        /// The position of the message.
        message: usize,
        /// The position of the block in the message.
        block: usize,
        /// Its type.
        kind: &'static str,
    },
    /// Two calls have one id.
    #[error("message {message} uses the tool call id `{id}` again")]
    DuplicateId {
        /// The position of the message.
        message: usize,
        /// The id.
        id: String,
    },
    /// The next user message lacks the result of a call in its position.
    #[error("message {message} has no result of the tool call `{id}` in its position")]
    Unanswered {
        /// The message that should hold the result; it may be missing altogether.
        message: usize,
        /// The call's id.
        id: String,
    },
    /// A result answers no call of the message before it.
    #[error(
        "block {block} of message {message} is a result of `{id}`, which the message before it does not call"
    )]
    Orphan {
        /// The position of the message.
        message: usize,
        /// The position of the block in the message.
        block: usize,
        /// The id that it answers.
        id: String,
    },
}

/// Checks the messages of a request. The last one is the user's, or a paused response to be resumed. Such a response cannot contain
/// a call that this library runs.
///
/// # Errors
/// The first error.
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

/// Checks that nothing is empty, and that each block fits its role.
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

/// Checks that the message begins with the results of the open calls, in order, and has no others.
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
