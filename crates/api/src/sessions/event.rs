//! The events of a session, as clients read them: from the list, and from the stream.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::Time;
use crate::sessions::content::ContentBlock;
use crate::sessions::session::{Budget, SessionAgent, SessionUsage};
use crate::sessions::session_error::SessionError;

/// An event of a session.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// The id of the event, for ever.
    pub id: String,
    /// When it was taken up; null while an event of a client is queued.
    pub processed_at: Option<Time>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened in a session.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "the fields are those of the published API, under its names")]
pub enum EventKind {
    /// The user said something.
    #[serde(rename = "user.message")]
    UserMessage { content: Vec<ContentBlock> },
    /// The user ended the turn.
    #[serde(rename = "user.interrupt")]
    UserInterrupt {},
    /// The user decided on a call.
    #[serde(rename = "user.tool_confirmation")]
    UserToolConfirmation { tool_use_id: String, result: Confirmation, deny_message: Option<String> },
    /// The client gave the result of its own tool.
    #[serde(rename = "user.custom_tool_result")]
    UserCustomToolResult {
        custom_tool_use_id: String,
        content: Option<Vec<ContentBlock>>,
        is_error: Option<bool>,
    },
    /// A worker gave the result of a tool of the toolset.
    #[serde(rename = "user.tool_result")]
    UserToolResult { tool_use_id: String, content: Option<Vec<ContentBlock>>, is_error: Option<bool> },
    /// The client gave further instructions.
    #[serde(rename = "system.message")]
    SystemMessage { content: Vec<ContentBlock> },
    /// The agent said something.
    #[serde(rename = "agent.message")]
    AgentMessage { content: Vec<ContentBlock> },
    /// The agent was thinking.
    #[serde(rename = "agent.thinking")]
    AgentThinking {},
    /// The agent calls a tool of the toolset.
    #[serde(rename = "agent.tool_use")]
    AgentToolUse {
        name: String,
        input: Box<RawValue>,
        evaluated_permission: Option<EvaluatedPermission>,
        evaluation: Option<Evaluation>,
    },
    /// The result of that call.
    #[serde(rename = "agent.tool_result")]
    AgentToolResult { tool_use_id: String, content: Option<Vec<ContentBlock>>, is_error: Option<bool> },
    /// The agent calls a tool of a server of tools.
    #[serde(rename = "agent.mcp_tool_use")]
    AgentMcpToolUse {
        name: String,
        mcp_server_name: String,
        input: Box<RawValue>,
        evaluated_permission: Option<EvaluatedPermission>,
        evaluation: Option<Evaluation>,
    },
    /// The result of that call.
    #[serde(rename = "agent.mcp_tool_result")]
    AgentMcpToolResult { mcp_tool_use_id: String, content: Option<Vec<ContentBlock>>, is_error: Option<bool> },
    /// The agent calls a tool that the client runs.
    #[serde(rename = "agent.custom_tool_use")]
    AgentCustomToolUse { name: String, input: Box<RawValue> },
    /// The history was compacted.
    #[serde(rename = "agent.thread_context_compacted")]
    AgentThreadContextCompacted {},
    /// A turn begins.
    #[serde(rename = "session.status_running")]
    SessionStatusRunning {},
    /// The session waits for the client.
    #[serde(rename = "session.status_idle")]
    SessionStatusIdle { stop_reason: StopReason, stop_details: Option<StopDetails> },
    /// The session will go on by itself.
    #[serde(rename = "session.status_rescheduled")]
    SessionStatusRescheduled {},
    /// The session has ended for good.
    #[serde(rename = "session.status_terminated")]
    SessionStatusTerminated {},
    /// Something failed.
    #[serde(rename = "session.error")]
    SessionError { error: SessionError },
    /// What is configured for the session changed. Fields that did not change are null.
    #[serde(rename = "session.updated")]
    SessionUpdated {
        agent: Option<Box<SessionAgent>>,
        budget: Option<Budget>,
        metadata: Option<crate::Metadata>,
        title: Option<String>,
    },
    /// The session was deleted.
    #[serde(rename = "session.deleted")]
    SessionDeleted {},
    /// What the session used up to now.
    #[serde(rename = "session.usage")]
    SessionUsage { usage: Box<SessionUsage>, budget: Option<Budget> },
    /// A call of the model begins.
    #[serde(rename = "span.model_request_start")]
    SpanModelRequestStart {},
    /// That call has ended.
    #[serde(rename = "span.model_request_end")]
    SpanModelRequestEnd { model_request_start_id: String, model_usage: ModelUsage, is_error: Option<bool> },
}

/// The names of the events that a client may ask for, also of those that this server never has.
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

impl EventKind {
    /// The value of `type`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::UserMessage { .. } => "user.message",
            Self::UserInterrupt {} => "user.interrupt",
            Self::UserToolConfirmation { .. } => "user.tool_confirmation",
            Self::UserCustomToolResult { .. } => "user.custom_tool_result",
            Self::UserToolResult { .. } => "user.tool_result",
            Self::SystemMessage { .. } => "system.message",
            Self::AgentMessage { .. } => "agent.message",
            Self::AgentThinking {} => "agent.thinking",
            Self::AgentToolUse { .. } => "agent.tool_use",
            Self::AgentToolResult { .. } => "agent.tool_result",
            Self::AgentMcpToolUse { .. } => "agent.mcp_tool_use",
            Self::AgentMcpToolResult { .. } => "agent.mcp_tool_result",
            Self::AgentCustomToolUse { .. } => "agent.custom_tool_use",
            Self::AgentThreadContextCompacted {} => "agent.thread_context_compacted",
            Self::SessionStatusRunning {} => "session.status_running",
            Self::SessionStatusIdle { .. } => "session.status_idle",
            Self::SessionStatusRescheduled {} => "session.status_rescheduled",
            Self::SessionStatusTerminated {} => "session.status_terminated",
            Self::SessionError { .. } => "session.error",
            Self::SessionUpdated { .. } => "session.updated",
            Self::SessionDeleted {} => "session.deleted",
            Self::SessionUsage { .. } => "session.usage",
            Self::SpanModelRequestStart {} => "span.model_request_start",
            Self::SpanModelRequestEnd { .. } => "span.model_request_end",
        }
    }
}

/// The answer to a client that sent events: the same events with their ids.
#[derive(Debug, Clone, Serialize)]
pub struct SentEvents {
    /// In the order of the request.
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

/// What the policy of a tool said about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum EvaluatedPermission {
    Allow,
    Ask,
    Deny,
}

/// Which policy said it.
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
    /// The agent has said what it had to say.
    EndTurn,
    /// Calls wait for confirmations or results.
    RequiresAction {
        /// The events of the calls.
        event_ids: Vec<String>,
    },
    /// The turn failed again and again.
    RetriesExhausted,
    /// The session has spent its budget.
    BudgetReached,
    /// The model refused.
    Refusal,
}

/// More on why the model refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "refusal")]
pub struct StopDetails {
    /// The rule behind it, under one of the API's names.
    pub category: Option<String>,
    /// Words for people.
    pub explanation: Option<String>,
}

/// What a call of the model used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ModelUsage {
    /// Tokens written to the cache of prompts.
    pub cache_creation_input_tokens: u64,
    /// Tokens read from it.
    pub cache_read_input_tokens: u64,
    /// Other tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
}

/// A preview of an event, on a stream that asked for it. It is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Preview {
    /// An event begins.
    EventStart {
        /// Which one.
        event: PreviewedEvent,
    },
    /// More of an event.
    EventDelta {
        /// Which one.
        event_id: String,
        /// What is new.
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
        /// The id that the whole event will have.
        id: String,
    },
    /// Thinking, which has no text.
    #[serde(rename = "agent.thinking")]
    AgentThinking {
        /// The id that the whole event will have.
        id: String,
    },
}

/// What is new in an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename = "content_delta")]
pub struct ContentDelta {
    /// The text that is added, as a block of text.
    pub content: ContentBlock,
    /// To which block of the message.
    pub index: Option<u64>,
}
