//! From a request to the Messages API to that of a model.

use std::sync::Arc;

use conjure_api::{MessageCreate, MessageRole, MessageTool};
use conjure_base::TurnId;
use conjure_conversation::{Block, Message, Request, ToolDefinition};

use crate::http::ApiError;

/// The request of one call, which no session records.
///
/// # Errors
/// 400 for a block without its fields, and for a schema that cannot be read.
pub(crate) fn model_request(create: MessageCreate) -> Result<Request, ApiError> {
    let mut messages = Vec::with_capacity(create.messages.len());
    for (place, message) in create.messages.into_iter().enumerate() {
        let wrong = |error| ApiError::invalid(format!("messages.{place}.content: {error}"));
        let blocks = message.content.into_iter().map(Block::from_raw).collect::<Result<Vec<_>, _>>();
        let blocks = blocks.map_err(wrong)?;
        messages.push(Arc::new(match message.role {
            MessageRole::User => Message::user(blocks),
            MessageRole::Assistant => Message::assistant(blocks),
        }));
    }
    let tools: Vec<ToolDefinition> = create.tools.into_iter().map(tool).collect::<Result<_, _>>()?;
    Ok(Request {
        turn: TurnId::FIRST,
        call: 1,
        instructions: create.system,
        tools: tools.into(),
        messages,
        container: None,
        hosted: Arc::new([]),
    })
}

fn tool(tool: MessageTool) -> Result<ToolDefinition, ApiError> {
    let MessageTool { name, description, input_schema } = tool;
    let input_schema = serde_json::from_str(input_schema.get()).map_err(|error| {
        ApiError::invalid(format!("tools: the schema of `{name}` cannot be read: {error}"))
    })?;
    Ok(ToolDefinition { name, description, input_schema })
}
