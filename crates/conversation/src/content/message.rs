//! A message of the history: a role and its blocks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::content::block::{Block, BlockKind};
use crate::content::native::NativeContent;
use crate::tools::tool::ToolCall;

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, and the results of tools.
    User,
    /// The model.
    Assistant,
}

/// A message of the Messages API. Its blocks serialise byte for byte as they were received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sender.
    pub role: Role,
    /// The blocks, in order.
    pub content: Vec<Block>,
    /// A response in the form of its service, if that form differs from the blocks or holds more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Arc<NativeContent>>,
}

impl Message {
    /// A message of the user.
    #[must_use]
    pub const fn user(content: Vec<Block>) -> Self {
        Self { role: Role::User, content, native: None }
    }

    /// A message of the model.
    #[must_use]
    pub const fn assistant(content: Vec<Block>) -> Self {
        Self { role: Role::Assistant, content, native: None }
    }

    /// The tool calls in it that this library runs, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(Block::tool_call)
    }

    /// The text blocks, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|block| match block.kind() {
                BlockKind::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }
}
