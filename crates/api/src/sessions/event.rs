//! The events of a session in the form that clients read, from the list and from the stream.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::Time;
use crate::sessions::content::ContentBlock;
use crate::sessions::session::{Budget, SessionAgent};
use crate::sessions::session_error::SessionError;

/// An event of a session.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// The id of the event. It never changes.
    pub id: String,
    /// When the server processed it; null while an event of a client is queued.
    pub processed_at: Option<Time>,
    /// The kind of the event, with its content.
    #[serde(flatten)]
    pub kind: EventKind,
}

macro_rules! event_kinds {
    ($($(#[$doc:meta])* $name:ident = $type_name:literal { $($field:ident: $type:ty),* $(,)? },)+) => {
        /// The kinds of events that this server creates.
        #[derive(Debug, Clone, Serialize)]
        #[serde(tag = "type")]
        #[expect(missing_docs, reason = "the fields are those of the published API, under its names")]
        pub enum EventKind {
            $($(#[$doc])* #[serde(rename = $type_name)] $name { $($field: $type),* },)+
        }

        impl EventKind {
            /// The value of `type`.
            #[must_use]
            pub const fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $type_name,)+
                }
            }
        }
    };
}

event_kinds! {
    /// The user sent a message.
    UserMessage = "user.message" { content: Vec<ContentBlock> },
    /// The user interrupted the turn.
    UserInterrupt = "user.interrupt" {},
    /// The user decided on a call.
    UserToolConfirmation = "user.tool_confirmation" { tool_use_id: String, result: Confirmation, deny_message: Option<String> },
    /// The client sent the result of its own tool.
    UserCustomToolResult = "user.custom_tool_result" {
        custom_tool_use_id: String,
        content: Option<Vec<ContentBlock>>,
        is_error: Option<bool>,
    },
    /// A worker sent the result of a tool of the toolset.
    UserToolResult = "user.tool_result" { tool_use_id: String, content: Option<Vec<ContentBlock>>, is_error: Option<bool> },
    /// The agent sent a message.
    AgentMessage = "agent.message" { content: Vec<ContentBlock> },
    /// The agent was thinking.
    AgentThinking = "agent.thinking" {},
    /// The agent calls a tool of the toolset.
    AgentToolUse = "agent.tool_use" {
        name: String,
        input: Box<RawValue>,
        evaluated_permission: Option<EvaluatedPermission>,
        evaluation: Option<Evaluation>,
    },
    /// The result of that call.
    AgentToolResult = "agent.tool_result" { tool_use_id: String, content: Option<Vec<ContentBlock>>, is_error: Option<bool> },
    /// The agent calls a tool of an MCP server.
    AgentMcpToolUse = "agent.mcp_tool_use" {
        name: String,
        mcp_server_name: String,
        input: Box<RawValue>,
        evaluated_permission: Option<EvaluatedPermission>,
        evaluation: Option<Evaluation>,
    },
    /// The result of that call.
    AgentMcpToolResult = "agent.mcp_tool_result" { mcp_tool_use_id: String, content: Option<Vec<ContentBlock>>, is_error: Option<bool> },
    /// The agent calls a tool that the client runs.
    AgentCustomToolUse = "agent.custom_tool_use" { name: String, input: Box<RawValue> },
    /// The history was compacted.
    AgentThreadContextCompacted = "agent.thread_context_compacted" {},
    /// A turn has started.
    SessionStatusRunning = "session.status_running" {},
    /// The session is idle and waits for the client.
    SessionStatusIdle = "session.status_idle" { stop_reason: StopReason, stop_details: Option<StopDetails> },
    /// An error occurred.
    SessionError = "session.error" { error: SessionError },
    /// The configuration of the session changed. Unchanged fields are null.
    SessionUpdated = "session.updated" {
        agent: Option<Box<SessionAgent>>,
        budget: Option<Budget>,
        metadata: Option<crate::Metadata>,
        title: Option<String>,
    },
    /// The session was deleted.
    SessionDeleted = "session.deleted" {},
    /// A model call has started.
    SpanModelRequestStart = "span.model_request_start" {},
    /// The model call has ended.
    SpanModelRequestEnd = "span.model_request_end" { model_request_start_id: String, model_usage: ModelUsage, is_error: Option<bool> },
}

/// The names of the events that a client may ask for. They include events that this server never creates.
pub const EVENT_TYPES: [&str; 42] = [
    "user.message",
    "user.interrupt",
    "user.tool_confirmation",
    "user.custom_tool_result",
    "agent.custom_tool_use",
    "agent.message",
    "agent.thinking",
    "agent.mcp_tool_use",
    "agent.mcp_tool_result",
    "agent.tool_use",
    "agent.tool_result",
    "agent.thread_message_received",
    "agent.thread_message_sent",
    "agent.thread_context_compacted",
    "session.error",
    "session.status_rescheduled",
    "session.status_running",
    "session.status_idle",
    "session.status_terminated",
    "session.thread_created",
    "span.outcome_evaluation_start",
    "span.outcome_evaluation_end",
    "span.model_request_start",
    "span.model_request_end",
    "span.outcome_evaluation_ongoing",
    "user.define_outcome",
    "session.deleted",
    "session.thread_status_running",
    "session.thread_status_idle",
    "session.thread_status_terminated",
    "user.tool_result",
    "session.thread_status_rescheduled",
    "session.updated",
    "system.message",
    "session.usage",
    "workflow_run.created",
    "workflow_run.status_running",
    "workflow_run.status_idle",
    "workflow_run.status_ended",
    "workflow_run.error",
    "workflow_run.phase_started",
    "workflow_run.phase_ended",
];

/// The response to a client that sent events: the same events with their ids.
#[derive(Debug, Clone, Serialize)]
pub struct SentEvents {
    /// The events, in the order of the request.
    pub data: Vec<Event>,
}

/// A user's decision on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Confirmation {
    Allow,
    Deny,
}

/// The decision of a tool's permission policy on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum EvaluatedPermission {
    Allow,
    Ask,
    Deny,
}

/// The policy that made the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Evaluation {
    AlwaysAllow,
    AlwaysAsk,
}

/// Why a session waits for its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StopReason {
    /// The agent has finished its turn.
    EndTurn,
    /// Tool calls wait for confirmations or results.
    RequiresAction {
        /// The ids of the calls' events.
        event_ids: Vec<String>,
    },
    /// The turn failed after all retries.
    RetriesExhausted,
    /// The session has spent its budget.
    BudgetReached,
    /// The model refused.
    Refusal,
}

/// Details about why the model refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "refusal")]
pub struct StopDetails {
    /// The violated rule, by one of the API's names.
    pub category: Option<String>,
    /// An explanation for people.
    pub explanation: Option<String>,
}

/// The usage of a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ModelUsage {
    /// Tokens written to the prompt cache.
    pub cache_creation_input_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_input_tokens: u64,
    /// Other input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

/// A preview of an event, for a stream that requested previews. It is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Preview {
    /// The preview of an event has started.
    EventStart {
        /// The previewed event.
        event: PreviewedEvent,
    },
    /// The event has new content.
    EventDelta {
        /// The id of the event.
        event_id: String,
        /// The new content.
        delta: ContentDelta,
    },
}

/// An event that a preview announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum PreviewedEvent {
    /// A message, whose text follows in deltas.
    #[serde(rename = "agent.message")]
    AgentMessage {
        /// The id that the complete event will have.
        id: String,
    },
    /// Thinking, which has no text.
    #[serde(rename = "agent.thinking")]
    AgentThinking {
        /// The id that the complete event will have.
        id: String,
    },
}

/// The new content of a previewed event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "content_delta")]
pub struct ContentDelta {
    /// The added text, as a text block.
    pub content: ContentBlock,
    /// The index of the block in the message.
    pub index: Option<u64>,
}
