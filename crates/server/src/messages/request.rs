//! Converts a request to the Messages API to a request to a model.

use std::sync::Arc;

use conjure_api::{MessageCreate, MessageOptions, MessageRole, MessageTool, MessageToolChoice};
use conjure_conversation::{Block, Message, Request, ToolDefinition};
use conjure_runtime::{CallSettings, ToolChoice};

use crate::http::ApiError;

/// The settings of the model call.
///
/// # Errors
/// 400 for an invalid schema, and for a tool choice that names an unknown tool.
pub(crate) fn call_settings(create: &MessageCreate) -> Result<CallSettings, ApiError> {
    let MessageOptions { temperature, top_p, top_k, stop_sequences, .. } = create.options.clone();
    let tool_choice = match &create.options.tool_choice {
        None | Some(MessageToolChoice::Auto) => ToolChoice::Auto,
        Some(MessageToolChoice::Any) => ToolChoice::Any,
        Some(MessageToolChoice::None) if create.tools.is_empty() => ToolChoice::Auto,
        Some(MessageToolChoice::None) => ToolChoice::None,
        Some(MessageToolChoice::Tool(name)) => ToolChoice::Tool(name.clone()),
    };
    match &tool_choice {
        ToolChoice::Tool(name) if create.tools.iter().all(|tool| tool.name != *name) => {
            return Err(ApiError::invalid(format!("tool_choice.name: there is no tool `{name}` in `tools`")));
        }
        ToolChoice::Any if create.tools.is_empty() => {
            return Err(ApiError::invalid("tool_choice: `any` needs at least one tool in `tools`"));
        }
        _ => {}
    }
    let output_schema = create.options.output_schema.as_ref().map(|schema| {
        serde_json::from_str(schema.get())
            .map_err(|error| ApiError::invalid(format!("output_config.format.schema: {error}")))
    });
    Ok(CallSettings {
        max_tokens: Some(create.max_tokens),
        temperature,
        top_p,
        top_k,
        stop_sequences,
        tool_choice,
        disable_parallel_tool_use: create.options.disable_parallel_tool_use,
        output_schema: output_schema.transpose()?,
        ..CallSettings::default()
    })
}

/// The request of a single call. No session records it.
///
/// # Errors
/// 400 for an incomplete block, and for an invalid schema.
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
    Ok(Request { instructions: create.system, tools: tools.into(), ..Request::new(messages) })
}

fn tool(tool: MessageTool) -> Result<ToolDefinition, ApiError> {
    let MessageTool { name, description, input_schema } = tool;
    let input_schema = serde_json::from_str(input_schema.get()).map_err(|error| {
        ApiError::invalid(format!("tools: the schema of `{name}` cannot be read: {error}"))
    })?;
    Ok(ToolDefinition { name, description, input_schema })
}
