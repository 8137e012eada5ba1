//! The types of session events. Their field names are a public schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use conjure_base::{CallId, ContainerId, SessionId, Timestamp, TurnId};
use serde::Serialize;
use serde_json::value::RawValue;

use super::event_id::EventId;
use super::stop_reason::{EvaluatedPermission, SessionStopReason};
use super::times::{rfc_3339, rfc_3339_or_null};
use crate::content::block::Block;
use crate::content::stop_reason::StopReason;
use crate::events::call_outcome::CallOutcome;
use crate::model::ModelError;
use crate::model::Usage;
use crate::session::artifact::ArtifactName;
use crate::session::grant::Grant;
use crate::session::pinned_skill::PinnedSkill;
use crate::session::profile_change::ProfileChange;
use crate::session::queue::QueueId;
use crate::session::session_file::{Completeness, SessionFile};
use crate::tools::input_request::{InputAnswers, InputQuestion};
use crate::tools::tool_server::ToolServerFailure;

/// The version of the schema of [`SessionEvent`].
pub const SESSION_EVENT_SCHEMA: u32 = 2;

/// One event of a session, for the embedder and its users.
#[derive(Debug, Clone, Serialize)]
pub struct SessionEvent {
    /// The version of this schema.
    pub schema: u32,
    /// Unique among the events of all sessions; it never changes. A stream sends an event a second time, with the same id, when its
    /// `processed_at` is set.
    pub id: EventId,
    /// The sequence number of the recorded event that it was derived from. Several session events can share one. A reader that has seen all
    /// of a `seq` continues with the next.
    pub seq: u64,
    /// When it happened, in RFC 3339.
    #[serde(serialize_with = "rfc_3339")]
    pub created_at: Timestamp,
    /// When the session began to process it, in RFC 3339; null for a message that waits in the queue.
    #[serde(serialize_with = "rfc_3339_or_null")]
    pub processed_at: Option<Timestamp>,
    /// The session.
    pub session_id: SessionId,
    /// What happened. The name of the kind is the field `type`.
    #[serde(flatten)]
    pub kind: SessionEventKind,
}

/// The kind of a session event, with its data.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum SessionEventKind {
    /// The user sent a message. While it waits in the queue, `processed_at` is null. When its turn starts, a stream sends it again,
    /// with the same `id` and with `processed_at`; a list has it once.
    #[serde(rename = "user.message")]
    UserMessage {
        /// The content.
        content: Vec<Block>,
        /// Its id in the queue, if it was queued.
        #[serde(skip_serializing_if = "Option::is_none")]
        queue_id: Option<QueueId>,
    },
    /// The user removed a message from the queue.
    #[serde(rename = "user.unqueued_message")]
    UserUnqueuedMessage {
        /// Its id in the queue.
        queue_id: QueueId,
        /// The `id` of its event.
        message_id: EventId,
    },
    /// The user interrupted the turn.
    #[serde(rename = "user.interrupt")]
    UserInterrupt {},
    /// An approver decided on a tool call.
    #[serde(rename = "user.tool_confirmation")]
    UserToolConfirmation {
        /// The `id` of the call's event.
        tool_use_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// `allow` or `deny`.
        result: &'static str,
        /// Why it was denied.
        #[serde(skip_serializing_if = "Option::is_none")]
        deny_message: Option<String>,
        /// Which later calls it allows too, if any.
        #[serde(skip_serializing_if = "Option::is_none")]
        grant: Option<Grant>,
    },
    /// The client provided the result of one of its tools.
    #[serde(rename = "user.custom_tool_result")]
    UserCustomToolResult {
        /// The `id` of the call's `agent.custom_tool_use` event.
        custom_tool_use_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// The result, as a `tool_result` block.
        result: Block,
        /// Whether it is an error.
        is_error: bool,
    },
    /// A worker or a person provided the result of a tool call.
    #[serde(rename = "user.tool_result")]
    UserToolResult {
        /// The `id` of the call's `agent.tool_use` event.
        tool_use_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// The result, as a `tool_result` block.
        result: Block,
        /// Whether it is an error.
        is_error: bool,
    },
    /// The model sent a message.
    #[serde(rename = "agent.message")]
    AgentMessage {
        /// All blocks except its thinking and its tool calls.
        content: Vec<Block>,
    },
    /// The model sent its thinking.
    #[serde(rename = "agent.thinking")]
    AgentThinking {
        /// The text of the thinking.
        thinking: String,
    },
    /// The model called a tool, and it is known whether the call may run. Confirmations and results name this event's `id`.
    #[serde(rename = "agent.tool_use")]
    AgentToolUse {
        /// The model's id of the call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The input, raw.
        input: Arc<RawValue>,
        /// Whether the call may run; absent if the policy was not asked, because the call ended before.
        #[serde(skip_serializing_if = "Option::is_none")]
        evaluated_permission: Option<EvaluatedPermission>,
    },
    /// The model called a tool whose result the client provides. The result names this event's `id`.
    #[serde(rename = "agent.custom_tool_use")]
    AgentCustomToolUse {
        /// The model's id of the call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The input, raw.
        input: Arc<RawValue>,
    },
    /// A tool asks a person in the middle of a call. The answer names this event's `id`.
    #[serde(rename = "agent.input_request")]
    AgentInputRequest {
        /// The model's id of the call.
        call_id: CallId,
        /// Who asks: the name of the tool's server.
        asked_by: String,
        /// The questions by their ids.
        questions: BTreeMap<String, InputQuestion>,
    },
    /// A person answered the questions of a tool. The tool runs again with the answers.
    #[serde(rename = "user.input_response")]
    UserInputResponse {
        /// The `id` of the `agent.input_request` event.
        input_request_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// The answers by the ids of their questions.
        answers: InputAnswers,
    },
    /// A tool call has its result.
    #[serde(rename = "agent.tool_result")]
    AgentToolResult {
        /// The `id` of the call's event.
        tool_use_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// The tool's name, if the call is known. It is not serialised: the call's event has it.
        #[serde(skip)]
        name: Option<String>,
        /// The result, as a `tool_result` block.
        result: Block,
        /// Whether it is an error.
        is_error: bool,
        /// How the call ended.
        outcome: CallOutcome,
    },
    /// The active skills or their order changed: a call has loaded or unloaded a skill.
    #[serde(rename = "session.skills_changed")]
    SessionSkillsChanged {
        /// The `id` of the event of the call that changed them.
        tool_use_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// The active skills from now on, the most recent last.
        active_skills: Vec<PinnedSkill>,
    },
    /// An approver allowed more than one call.
    #[serde(rename = "session.grant_given")]
    SessionGrantGiven {
        /// The `id` of the event of the call that needed the approval.
        tool_use_id: EventId,
        /// The model's id of the call.
        call_id: CallId,
        /// Which calls, and for how long.
        grant: Grant,
    },
    /// An artifact was registered.
    #[serde(rename = "session.artifact_registered")]
    SessionArtifactRegistered {
        /// Its name.
        name: ArtifactName,
        /// Its media type.
        content_type: String,
        /// Its size in bytes; absent while its URL was not fetched.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// An artifact was removed.
    #[serde(rename = "session.artifact_unregistered")]
    SessionArtifactUnregistered {
        /// Its name.
        name: ArtifactName,
    },
    /// An artifact's URL was fetched.
    #[serde(rename = "session.artifact_fetched")]
    SessionArtifactFetched {
        /// Its name.
        name: ArtifactName,
        /// The media type.
        content_type: String,
        /// Its size in bytes.
        size: u64,
    },
    /// The session uses another model from now on. Another service gets the former model's responses as text, tool calls and
    /// results. Signatures and encrypted reasoning stay recorded, but are not sent to it.
    #[serde(rename = "session.model_changed")]
    SessionModelChanged {
        /// The model before, by its name in the configuration; absent if the session named none.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The model from now on, by its name in the configuration.
        to: String,
        /// The container of the former model's service, which the session no longer uses; absent if it keeps it or had none.
        #[serde(skip_serializing_if = "Option::is_none")]
        container_id: Option<ContainerId>,
    },
    /// The session's settings changed.
    #[serde(rename = "session.updated")]
    SessionUpdated {
        /// The changed settings.
        change: ProfileChange,
    },
    /// The session is a fork: the events before this one are those of another session.
    #[serde(rename = "session.forked")]
    SessionForked {
        /// The other session.
        from_session_id: SessionId,
        /// How many of its recorded events there are here.
        events: u64,
    },
    /// The files that the last turn created or changed were recorded.
    #[serde(rename = "session.files_produced")]
    SessionFilesProduced {
        /// The files.
        files: Vec<SessionFile>,
        /// Whether the list is complete.
        completeness: Completeness,
    },
    /// The session is running.
    #[serde(rename = "session.status_running")]
    SessionStatusRunning {},
    /// The session is idle: it waits for its user.
    #[serde(rename = "session.status_idle")]
    SessionStatusIdle {
        /// Why it is idle.
        stop_reason: SessionStopReason,
        /// The usage of the turn's model calls; absent while a call waits for an action from outside.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// A model call failed.
    #[serde(rename = "session.error")]
    SessionError {
        /// The error.
        error: ModelError,
    },
    /// A tool server could not be queried, so the model does not have its tools. The turn continues without them.
    #[serde(rename = "session.tool_server_failed")]
    ToolServerFailed {
        /// The server, and the reason.
        #[serde(flatten)]
        failure: ToolServerFailure,
    },
    /// A summary replaced the first messages of the history. Earlier events stay recorded.
    #[serde(rename = "session.compacted")]
    SessionCompacted {
        /// How many of the last messages stayed.
        kept_messages: usize,
        /// The content that replaces the others.
        content: Vec<Block>,
    },
    /// A compaction started.
    #[serde(rename = "span.compaction_start")]
    CompactionStart {
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
    },
    /// A compaction ended.
    #[serde(rename = "span.compaction_end")]
    CompactionEnd {
        /// The number of the compaction in its turn, from 1.
        compaction: u32,
        /// Whether it failed; the history is unchanged then.
        is_error: bool,
        /// Why it failed, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The model that wrote the summary.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Its usage.
        #[serde(skip_serializing_if = "Option::is_none")]
        model_usage: Option<Usage>,
        /// The service's id of the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// The container of the service's tools is gone; a fresh one replaces it.
    #[serde(rename = "session.container_lost")]
    SessionContainerLost {
        /// The lost container.
        container_id: ContainerId,
    },
    /// A model call started.
    #[serde(rename = "span.model_request_start")]
    ModelRequestStart {
        /// The number of its turn, from 1.
        turn: TurnId,
        /// The number of the call in its turn, from 1.
        call: u32,
    },
    /// A model call ended.
    #[serde(rename = "span.model_request_end")]
    ModelRequestEnd {
        /// The `id` of the event of its start.
        model_request_start_id: EventId,
        /// The number of the call in its turn, from 1.
        call: u32,
        /// Whether it ended without a response.
        is_error: bool,
        /// Why the response ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
        /// The model that answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Its usage.
        #[serde(skip_serializing_if = "Option::is_none")]
        model_usage: Option<Usage>,
        /// The service's id of the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
}

impl SessionEvent {
    /// The event as one line of JSON, without a newline at the end.
    #[must_use]
    pub fn to_line(&self) -> String {
        // Raw content may span several lines. A line break in JSON can only stand between tokens (in a
        // string it is escaped), so a space in its place changes no value.
        #[expect(
            clippy::expect_used,
            reason = "texts, numbers and raw JSON under text keys always serialise"
        )]
        let json = serde_json::to_string(self).expect("a session event serialises");
        json.replace(['\n', '\r'], " ")
    }
}
