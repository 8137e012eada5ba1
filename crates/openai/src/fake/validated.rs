//! [`ValidatedRequest`]: a request that passed all checks, and the history in it.

use std::sync::Arc;

use conjure_base::CallId;
use conjure_conversation::{Block, Message, Request, Role, ToolDefinition, ToolResult};

/// A request that passed all checks.
#[derive(Debug)]
pub(super) struct ValidatedRequest {
    pub(super) model: String,
    pub(super) is_streamed: bool,
    /// Whether a streamed Chat answer reports its usage.
    pub(super) includes_usage: bool,
    /// The session that the recorded positions belong to.
    pub(super) session: String,
    /// The number of answers in the history.
    pub(super) answers: usize,
    /// The request in the form that scripts read.
    pub(super) request: Request,
}

/// A history in the form that scripts read.
#[derive(Debug, Default)]
pub(super) struct CanonicalHistory {
    pub(super) instructions: Vec<String>,
    messages: Vec<Message>,
}

impl CanonicalHistory {
    /// Adds blocks to the last message of this role, or as a new one.
    pub(super) fn push(&mut self, role: Role, blocks: impl IntoIterator<Item = Block>) {
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(blocks),
            _ => self.messages.push(Message { role, content: blocks.into_iter().collect(), native: None }),
        }
    }

    pub(super) fn push_result(&mut self, call: &str, text: String) {
        let result = ToolResult::text_result(&CallId::new(call), text);
        self.push(Role::User, [Block::tool_result(&result)]);
    }

    /// The number of answers.
    pub(super) fn answers(&self) -> usize {
        self.messages.iter().filter(|message| message.role == Role::Assistant).count()
    }

    /// The text of the first message, which identifies the session if the request does not.
    pub(super) fn first_text(&self) -> String {
        self.messages.first().map(Message::text).unwrap_or_default()
    }

    pub(super) fn into_request(self, tools: Vec<ToolDefinition>) -> Request {
        let call = u32::try_from(self.answers()).unwrap_or(u32::MAX).saturating_add(1);
        Request {
            call,
            instructions: self.instructions,
            tools: tools.into(),
            ..Request::new(self.messages.into_iter().map(Arc::new).collect())
        }
    }
}
