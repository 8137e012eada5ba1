//! The events that clients send to a session.

use crate::common::input::{Input, ObjectInput};
use crate::sessions::content::{Allowed, ContentBlock, read_blocks, read_some_blocks};
use crate::sessions::event::Confirmation;
use crate::{RequestBody, RequestError};

/// The maximum number of events in one request.
const MAX_EVENTS: usize = 1_000;
const MAX_ID: usize = 256;

/// An event that a client sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// A message of the user.
    Message {
        /// The content, with at least one block.
        content: Vec<ContentBlock>,
    },
    /// The running turn should end.
    Interrupt,
    /// The decision on a call that waits for confirmation.
    ToolConfirmation {
        /// The id of the call's event.
        tool_use_id: String,
        /// The decision.
        result: Confirmation,
        /// The message to the model if the call is denied.
        deny_message: Option<String>,
    },
    /// The result of a tool that the client runs.
    CustomToolResult {
        /// The id of the call's event.
        custom_tool_use_id: String,
        /// The result.
        result: ToolOutcome,
    },
    /// The result of a tool of the toolset, sent by a worker.
    ToolResult {
        /// The id of the call's event.
        tool_use_id: String,
        /// The result.
        result: ToolOutcome,
    },
    /// Instructions that apply from the preceding event on.
    SystemMessage {
        /// The content, text blocks only.
        content: Vec<ContentBlock>,
    },
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutcome {
    /// The blocks of the result; `None` if the client sent none.
    pub content: Option<Vec<ContentBlock>>,
    /// Whether the tool failed.
    pub is_error: Option<bool>,
}

/// The body of `POST /v1/sessions/{id}/events`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSend {
    /// The events, at least one.
    pub events: Vec<ClientEvent>,
}

impl RequestBody for EventSend {
    fn read(object: &mut ObjectInput<'_>) -> Result<Self, RequestError> {
        let events = object.required("events")?;
        let path = events.path().to_owned();
        let events =
            events.array("events", MAX_EVENTS)?.into_iter().map(read_event).collect::<Result<Vec<_>, _>>()?;
        if events.is_empty() {
            return Err(RequestError::new(path, "the list is empty; send at least one event"));
        }
        check_system_message(&path, &events)?;
        Ok(Self { events })
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Message,
    Interrupt,
    Confirmation,
    CustomResult,
    Result,
    Outcome,
    System,
}

fn read_event(input: Input<'_>) -> Result<ClientEvent, RequestError> {
    let path = input.path().to_owned();
    let mut object = input.object()?;
    let kind = object.kind(&[
        ("user.message", Kind::Message),
        ("user.interrupt", Kind::Interrupt),
        ("user.tool_confirmation", Kind::Confirmation),
        ("user.custom_tool_result", Kind::CustomResult),
        ("user.tool_result", Kind::Result),
        ("user.define_outcome", Kind::Outcome),
        ("system.message", Kind::System),
    ])?;
    let event = match kind {
        Kind::Message => {
            ClientEvent::Message { content: read_some_blocks(object.required("content")?, Allowed::Message)? }
        }
        Kind::Interrupt => {
            object.unsupported("session_thread_id", "threads of several agents (`session_thread_id`)")?;
            ClientEvent::Interrupt
        }
        Kind::Confirmation => read_confirmation(&mut object)?,
        Kind::CustomResult => ClientEvent::CustomToolResult {
            custom_tool_use_id: object.required("custom_tool_use_id")?.text(1..=MAX_ID)?,
            result: read_outcome(&mut object)?,
        },
        Kind::Result => ClientEvent::ToolResult {
            tool_use_id: object.required("tool_use_id")?.text(1..=MAX_ID)?,
            result: read_outcome(&mut object)?,
        },
        Kind::Outcome => return Err(RequestError::unsupported(path, "outcomes (`user.define_outcome`)")),
        Kind::System => ClientEvent::SystemMessage {
            content: read_some_blocks(object.required("content")?, Allowed::System)?,
        },
    };
    object.finish()?;
    Ok(event)
}

/// Reads an initial event of a new session. It must be a message.
pub(crate) fn read_initial_event(input: Input<'_>) -> Result<Vec<ContentBlock>, RequestError> {
    let path = input.path().to_owned();
    let mut object = input.object()?;
    if !object.kind(&[("user.message", true), ("user.define_outcome", false)])? {
        return Err(RequestError::unsupported(path, "outcomes (`user.define_outcome`)"));
    }
    let content = read_some_blocks(object.required("content")?, Allowed::Message)?;
    object.finish()?;
    Ok(content)
}

fn read_confirmation(object: &mut ObjectInput<'_>) -> Result<ClientEvent, RequestError> {
    let result =
        object.required("result")?.one_of(&[("allow", Confirmation::Allow), ("deny", Confirmation::Deny)])?;
    let tool_use_id = object.required("tool_use_id")?.text(1..=MAX_ID)?;
    let deny_message = match object.optional("deny_message") {
        Some(message) if result == Confirmation::Allow => {
            return Err(message.error("a message goes with `deny` only; remove it, or deny the call"));
        }
        message => message.map(|message| message.string()).transpose()?,
    };
    Ok(ClientEvent::ToolConfirmation { tool_use_id, result, deny_message })
}

fn read_outcome(object: &mut ObjectInput<'_>) -> Result<ToolOutcome, RequestError> {
    Ok(ToolOutcome {
        content: object
            .optional("content")
            .map(|content| read_blocks(content, Allowed::ToolResult))
            .transpose()?,
        is_error: object.optional("is_error").map(|flag| flag.boolean()).transpose()?,
    })
}

/// Checks that a system message is the last event, and that it follows the message or result that it accompanies.
fn check_system_message(path: &str, events: &[ClientEvent]) -> Result<(), RequestError> {
    let is_system = |event: &ClientEvent| matches!(event, ClientEvent::SystemMessage { .. });
    let Some(index) = events.iter().position(is_system) else { return Ok(()) };
    let follows = index.checked_sub(1).and_then(|before| events.get(before)).is_some_and(|before| {
        matches!(
            before,
            ClientEvent::Message { .. }
                | ClientEvent::ToolResult { .. }
                | ClientEvent::CustomToolResult { .. }
        )
    });
    if follows && index + 1 == events.len() {
        return Ok(());
    }
    Err(RequestError::new(
        format!("{path}.{index}"),
        "a `system.message` must be the last event of a request and follow a `user.message`, `user.tool_result` or \
         `user.custom_tool_result`",
    ))
}
