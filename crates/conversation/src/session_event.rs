//! What hosts and people see of a session: its recorded events in the nouns that they already know.
//!
//! Derived from the record alone, so that a replay shows what the live session showed. Each is one line of
//! JSON ([`SessionEvent::to_line`]); content blocks stay raw in it.

use conjure_base::{CallId, ContainerId, SessionId, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::sync::Arc;

use crate::artifact::{ArtifactName, FetchedArtifact};
use crate::content::{Block, BlockKind};
use crate::event::{Decision, Event, EventKind, ToolOutcome, TurnStop};
use crate::files::{Completeness, SessionFile};
use crate::limits::Limit;
use crate::machine::results_of_cut_answer;
use crate::message::Message;
use crate::model::{ModelError, ModelErrorKind, Response};
use crate::profile::PinnedSkill;
use crate::queue::QueueId;
use crate::standing::Grant;
use crate::stop::StopReason;
use crate::tool::ToolResult;
use crate::usage::Usage;

/// The version of the schema of [`SessionEvent`].
pub const SESSION_EVENT_SCHEMA: u32 = 1;

/// One event of a session, for its host and its users.
#[derive(Debug, Clone, Serialize)]
pub struct SessionEvent {
    /// The version of this schema.
    pub schema: u32,
    /// Unique within the session: `evt_SEQ_PLACE`.
    pub id: String,
    /// The recorded event that it was derived from. Several can share one; a reader that has seen all of a
    /// `seq` goes on with the next.
    pub seq: u64,
    /// When, in RFC 3339.
    #[serde(serialize_with = "rfc_3339")]
    pub created_at: Timestamp,
    /// Which session.
    pub session_id: SessionId,
    /// What happened; its name is the field `type`.
    #[serde(flatten)]
    pub kind: SessionEventKind,
}

/// What happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum SessionEventKind {
    /// The user said something.
    #[serde(rename = "user.message")]
    UserMessage {
        /// What.
        content: Vec<Block>,
    },
    /// The user said something that waits for its turn; with it, it comes again as `user.message`.
    #[serde(rename = "user.queued_message")]
    UserQueuedMessage {
        /// Its place in the queue.
        queue_id: QueueId,
        /// What.
        content: Vec<Block>,
    },
    /// The user took back what waited for its turn.
    #[serde(rename = "user.unqueued_message")]
    UserUnqueuedMessage {
        /// Its place in the queue.
        queue_id: QueueId,
    },
    /// The user interrupted the turn.
    #[serde(rename = "user.interrupt")]
    UserInterrupt {},
    /// A person decided on a tool call.
    #[serde(rename = "user.tool_confirmation")]
    UserToolConfirmation {
        /// Which call.
        tool_use_id: CallId,
        /// `allow` or `deny`.
        result: &'static str,
        /// Why it was denied.
        #[serde(skip_serializing_if = "Option::is_none")]
        deny_message: Option<String>,
        /// What later calls it allows too, where it does.
        #[serde(skip_serializing_if = "Option::is_none")]
        grant: Option<Grant>,
    },
    /// The model said something.
    #[serde(rename = "agent.message")]
    AgentMessage {
        /// What: all blocks but its thinking and its tool calls.
        content: Vec<Block>,
    },
    /// The model thought.
    #[serde(rename = "agent.thinking")]
    AgentThinking {
        /// What.
        thinking: String,
    },
    /// The model called a tool.
    #[serde(rename = "agent.tool_use")]
    AgentToolUse {
        /// The call's id.
        tool_use_id: CallId,
        /// The tool.
        name: String,
        /// The input, raw.
        input: Arc<RawValue>,
    },
    /// A tool call has its result.
    #[serde(rename = "agent.tool_result")]
    AgentToolResult {
        /// The call's id.
        tool_use_id: CallId,
        /// What the model is told, as a `tool_result` block.
        result: Block,
        /// Whether it is an error.
        is_error: bool,
        /// How it came to be.
        outcome: ToolOutcome,
    },
    /// Other skills are active, or the same in another order: a call has loaded or unloaded one.
    #[serde(rename = "session.skills_changed")]
    SessionSkillsChanged {
        /// The call that did it.
        tool_use_id: CallId,
        /// The active skills from now on, the most recent last.
        active_skills: Vec<PinnedSkill>,
    },
    /// A person allowed more than one call.
    #[serde(rename = "session.grant_given")]
    SessionGrantGiven {
        /// The call that the person was asked about.
        tool_use_id: CallId,
        /// Which calls, and for how long.
        grant: Grant,
    },
    /// The session was given an artifact.
    #[serde(rename = "session.artifact_registered")]
    SessionArtifactRegistered {
        /// Its name.
        name: ArtifactName,
        /// Its media type.
        content_type: String,
        /// Bytes; absent while its URL was not fetched.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// The session does not have an artifact any more.
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
        /// Bytes.
        size: u64,
    },
    /// It is known what files the last turn created or changed.
    #[serde(rename = "session.files_produced")]
    SessionFilesProduced {
        /// Which.
        files: Vec<SessionFile>,
        /// Whether these are all.
        completeness: Completeness,
    },
    /// The session works.
    #[serde(rename = "session.status_running")]
    SessionStatusRunning {},
    /// The session waits for its user.
    #[serde(rename = "session.status_idle")]
    SessionStatusIdle {
        /// Why.
        stop_reason: SessionStopReason,
        /// What the turn's model calls consumed; absent while a call awaits a decision.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// Something failed.
    #[serde(rename = "session.error")]
    SessionError {
        /// What.
        error: ModelError,
    },
    /// The beginning of the history was replaced by a summary. What was told before stays in the record.
    #[serde(rename = "session.compacted")]
    SessionCompacted {
        /// How many of the last messages stayed as they were.
        kept_messages: usize,
        /// What the model reads in place of the others.
        content: Vec<Block>,
    },
    /// A summary of the beginning of the history is being written.
    #[serde(rename = "span.compaction_start")]
    CompactionStart {
        /// The compaction's place in its turn, from 1.
        compaction: u32,
    },
    /// The writing of a summary ended.
    #[serde(rename = "span.compaction_end")]
    CompactionEnd {
        /// The compaction's place in its turn, from 1.
        compaction: u32,
        /// Whether the history stays as it is.
        is_error: bool,
        /// Why it does, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The model that wrote the summary.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What it consumed.
        #[serde(skip_serializing_if = "Option::is_none")]
        model_usage: Option<Usage>,
        /// The service's id of the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
    /// The container in which the service ran code has expired, or is gone; a fresh one takes its place.
    #[serde(rename = "session.container_lost")]
    SessionContainerLost {
        /// Which.
        container_id: ContainerId,
    },
    /// The model is being called.
    #[serde(rename = "span.model_request_start")]
    ModelRequestStart {
        /// The call's place in its turn, from 1.
        call: u32,
    },
    /// The model call ended.
    #[serde(rename = "span.model_request_end")]
    ModelRequestEnd {
        /// The call's place in its turn, from 1.
        call: u32,
        /// Whether it gave no answer.
        is_error: bool,
        /// Why the answer ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
        /// The model that answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What it consumed.
        #[serde(skip_serializing_if = "Option::is_none")]
        model_usage: Option<Usage>,
        /// The service's id of the request.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
    },
}

/// Why a session is idle.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionStopReason {
    /// The model is done.
    EndTurn,
    /// A person must decide on this call.
    RequiresAction {
        /// Which.
        tool_use_id: CallId,
        /// What the person is asked.
        reason: String,
    },
    /// The model call failed for good.
    RetriesExhausted,
    /// The host ended in a call that the service may have acted on: what it did is not known, and the call was not sent again.
    OutcomeUnknown,
    /// A limit was reached.
    BudgetReached {
        /// Which.
        limit: Limit,
    },
    /// The model refused.
    Refusal,
    /// The answer was cut.
    Cut {
        /// By what; none when the service did not say.
        reason: StopReason,
    },
    /// Somebody interrupted it.
    Interrupted,
    /// The deadline of the run passed.
    Deadline,
}

impl SessionEvent {
    /// The event as one line of JSON, without the newline at its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        // Raw content may be spread over lines. A line break in JSON can only stand between tokens (in a
        // string it is escaped), so a space in its place changes no value.
        #[expect(
            clippy::expect_used,
            reason = "texts, numbers and raw JSON under text keys always serialise"
        )]
        let json = serde_json::to_string(self).expect("a session event serialises");
        json.replace(['\n', '\r'], " ")
    }
}

impl From<&TurnStop> for SessionStopReason {
    fn from(stop: &TurnStop) -> Self {
        match stop {
            TurnStop::Answered(_) => Self::EndTurn,
            TurnStop::Cut(reason) => Self::Cut { reason: reason.clone() },
            TurnStop::Refused => Self::Refusal,
            TurnStop::Limit(limit) => Self::BudgetReached { limit: *limit },
            TurnStop::ModelFailed(error) if error.kind == ModelErrorKind::OutcomeUnknown => {
                Self::OutcomeUnknown
            }
            TurnStop::ModelFailed(_) => Self::RetriesExhausted,
            TurnStop::Interrupted => Self::Interrupted,
            TurnStop::Deadline => Self::Deadline,
        }
    }
}

/// The session events of one recorded event, which stands at `seq`. Some have none.
#[must_use]
pub fn session_events(session_id: SessionId, seq: u64, event: &Event) -> Vec<SessionEvent> {
    kinds(&event.kind)
        .into_iter()
        .enumerate()
        .map(|(place, kind)| SessionEvent {
            schema: SESSION_EVENT_SCHEMA,
            id: format!("evt_{seq}_{place}"),
            seq,
            created_at: event.at,
            session_id,
            kind,
        })
        .collect()
}

fn kinds(event: &EventKind) -> Vec<SessionEventKind> {
    use SessionEventKind as Kind;
    match event {
        EventKind::Imported { messages, .. } => messages.iter().flat_map(imported).collect(),
        EventKind::TurnStarted { input, .. } => {
            user_message(input).into_iter().chain([Kind::SessionStatusRunning {}]).collect()
        }
        EventKind::Queued { id, input, .. } => {
            vec![Kind::UserQueuedMessage { queue_id: *id, content: input.clone() }]
        }
        EventKind::Unqueued { id } => vec![Kind::UserUnqueuedMessage { queue_id: *id }],
        EventKind::Steered { input } => user_message(input).into_iter().collect(),
        EventKind::ModelCallStarted { call, .. } => vec![Kind::ModelRequestStart { call: *call }],
        EventKind::ModelAnswered { call, response, .. } => answered(*call, response),
        EventKind::ModelCallFailed { call, error, .. } => vec![
            Kind::ModelRequestEnd {
                call: *call,
                is_error: true,
                stop_reason: None,
                model: None,
                model_usage: None,
                request_id: error.request_id.clone(),
            },
            Kind::SessionError { error: error.clone() },
        ],
        EventKind::ModelCallAbandoned { call, .. } => vec![Kind::ModelRequestEnd {
            call: *call,
            is_error: true,
            stop_reason: None,
            model: None,
            model_usage: None,
            request_id: None,
        }],
        EventKind::ContainerLost { container, .. } => {
            vec![Kind::SessionContainerLost { container_id: container.clone() }]
        }
        EventKind::CompactionStarted { .. }
        | EventKind::Compacted { .. }
        | EventKind::CompactionFailed { .. }
        | EventKind::CompactionAbandoned { .. } => compaction(event),
        EventKind::ApprovalRequested { call, reason } => vec![Kind::SessionStatusIdle {
            stop_reason: SessionStopReason::RequiresAction {
                tool_use_id: call.clone(),
                reason: reason.clone(),
            },
            usage: None,
        }],
        EventKind::ApprovalDecided { call, decision } => {
            let (result, deny_message, grant) = match decision {
                Decision::Allow => ("allow", None, None),
                Decision::Grant { grant } => ("allow", None, Some(grant.clone())),
                Decision::Deny { reason } => ("deny", Some(reason.clone()), None),
            };
            let tool_use_id = call.clone();
            let given =
                grant.clone().map(|grant| Kind::SessionGrantGiven { tool_use_id: call.clone(), grant });
            let confirmation = Kind::UserToolConfirmation { tool_use_id, result, deny_message, grant };
            std::iter::once(confirmation).chain(given).chain([Kind::SessionStatusRunning {}]).collect()
        }
        EventKind::ToolFinished { result, outcome } => {
            let changed = result.active_skills.clone().map(|active_skills| Kind::SessionSkillsChanged {
                tool_use_id: result.tool_use_id.clone(),
                active_skills,
            });
            let fetched = result.fetched.iter().map(artifact_fetched);
            std::iter::once(tool_result(result, *outcome)).chain(changed).chain(fetched).collect()
        }
        EventKind::TurnFinished { stop, usage, .. } => {
            let interrupt = (*stop == TurnStop::Interrupted).then_some(Kind::UserInterrupt {});
            let idle = Kind::SessionStatusIdle { stop_reason: stop.into(), usage: Some(*usage) };
            interrupt.into_iter().chain([idle]).collect()
        }
        EventKind::ArtifactRegistered { artifact } => vec![Kind::SessionArtifactRegistered {
            name: artifact.name.clone(),
            content_type: artifact.content_type.clone(),
            size: artifact.size(),
        }],
        EventKind::ArtifactUnregistered { name } => {
            vec![Kind::SessionArtifactUnregistered { name: name.clone() }]
        }
        EventKind::ArtifactFetched { fetched } => vec![artifact_fetched(fetched)],
        EventKind::FilesProduced { files, completeness: Completeness::Whole, .. } if files.is_empty() => {
            Vec::new()
        }
        EventKind::FilesProduced { files, completeness, .. } => {
            vec![Kind::SessionFilesProduced { files: files.clone(), completeness: *completeness }]
        }
        EventKind::Opened { .. }
        | EventKind::ArtifactUploaded { .. }
        | EventKind::BlockReplaced { .. }
        | EventKind::ModelTold { .. }
        | EventKind::ToolStarted { .. }
        | EventKind::ToolAbandoned { .. } => Vec::new(),
    }
}

fn artifact_fetched(fetched: &FetchedArtifact) -> SessionEventKind {
    SessionEventKind::SessionArtifactFetched {
        name: fetched.name.clone(),
        content_type: fetched.content_type.clone(),
        size: fetched.content.size,
    }
}

/// The span of a compaction, and what came of it.
fn compaction(event: &EventKind) -> Vec<SessionEventKind> {
    use SessionEventKind as Kind;
    let end = |compaction, reason, usage: Option<&Usage>| Kind::CompactionEnd {
        compaction,
        is_error: true,
        reason,
        model: None,
        model_usage: usage.copied(),
        request_id: None,
    };
    match event {
        EventKind::CompactionStarted { compaction, .. } => {
            vec![Kind::CompactionStart { compaction: *compaction }]
        }
        EventKind::Compacted { compaction, kept, summary, usage, model, request_id, .. } => vec![
            Kind::CompactionEnd {
                compaction: *compaction,
                is_error: false,
                reason: None,
                model: model.clone(),
                model_usage: Some(*usage),
                request_id: request_id.clone(),
            },
            Kind::SessionCompacted { kept_messages: *kept, content: summary.clone() },
        ],
        EventKind::CompactionFailed { compaction, error, usage, .. } => {
            vec![end(*compaction, Some(error.to_string()), Some(usage))]
        }
        EventKind::CompactionAbandoned { compaction, .. } => vec![end(*compaction, None, None)],
        _ => Vec::new(),
    }
}

fn user_message(input: &[Block]) -> Option<SessionEventKind> {
    (!input.is_empty()).then(|| SessionEventKind::UserMessage { content: input.to_vec() })
}

fn imported(message: &Message) -> Vec<SessionEventKind> {
    match message.role {
        crate::Role::Assistant => said(&message.content),
        crate::Role::User => {
            let words: Vec<Block> =
                message.content.iter().filter(|block| result_of(block).is_none()).cloned().collect();
            message.content.iter().filter_map(result_of).chain(user_message(&words)).collect()
        }
    }
}

fn result_of(block: &Block) -> Option<SessionEventKind> {
    match block.kind() {
        BlockKind::ToolResult { tool_use_id, is_error, .. } => Some(SessionEventKind::AgentToolResult {
            tool_use_id: CallId::new(tool_use_id.as_str()),
            result: block.clone(),
            is_error: *is_error,
            outcome: ToolOutcome::Finished,
        }),
        _ => None,
    }
}

fn tool_result(result: &ToolResult, outcome: ToolOutcome) -> SessionEventKind {
    SessionEventKind::AgentToolResult {
        tool_use_id: result.tool_use_id.clone(),
        result: Block::tool_result(result),
        is_error: result.is_error,
        outcome,
    }
}

fn answered(call: u32, response: &Response) -> Vec<SessionEventKind> {
    let end = SessionEventKind::ModelRequestEnd {
        call,
        is_error: false,
        stop_reason: Some(response.stop_reason.clone()),
        model: response.model.clone(),
        model_usage: Some(response.usage),
        request_id: response.request_id.clone(),
    };
    let not_run = results_of_cut_answer(response);
    std::iter::once(end)
        .chain(said(&response.content))
        .chain(not_run.iter().map(|result| tool_result(result, ToolOutcome::NotRun)))
        .collect()
}

/// What the model said, in its order; blocks that are neither thinking nor calls are joined.
fn said(content: &[Block]) -> Vec<SessionEventKind> {
    use SessionEventKind as Kind;
    let mut kinds: Vec<Kind> = Vec::new();
    for block in content {
        match (block.kind(), kinds.last_mut()) {
            (BlockKind::Thinking(thinking), _) => {
                kinds.push(Kind::AgentThinking { thinking: thinking.clone() });
            }
            (BlockKind::ToolUse(call), _) => kinds.push(Kind::AgentToolUse {
                tool_use_id: call.id.clone(),
                name: call.name.clone(),
                input: call.input.clone(),
            }),
            (_, Some(Kind::AgentMessage { content })) => content.push(block.clone()),
            _ => kinds.push(Kind::AgentMessage { content: vec![block.clone()] }),
        }
    }
    kinds
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn rfc_3339<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}
