//! Converts message content, and recorded events that can be converted without other events.

use conjure_base::{CallId, SessionId};

use super::event_id::EventId;
use super::types::SessionEventKind;
use crate::content::block::{Block, BlockKind};
use crate::content::message::{Message, Role};
use crate::events::call_outcome::CallOutcome;
use crate::events::event::EventKind;
use crate::model::Usage;
use crate::session::artifact::FetchedArtifact;
use crate::session::session_file::Completeness;
use crate::tools::tool::{ToolCall, ToolResult};
use crate::tools::tool_server::ToolServerFailure;

/// The kinds of the session events of a recorded event that can be converted without other events.
pub(super) fn stateless_event(session: SessionId, event: &EventKind) -> Vec<SessionEventKind> {
    use SessionEventKind as Kind;
    match event {
        EventKind::ModelChanged { from, to, container } => vec![Kind::SessionModelChanged {
            from: from.clone(),
            to: to.clone(),
            container_id: container.clone(),
        }],
        EventKind::ProfileChanged { change } => vec![Kind::SessionUpdated { change: (**change).clone() }],
        EventKind::Forked { from, events, .. } => {
            vec![Kind::SessionForked { from_session_id: *from, events: *events }]
        }
        EventKind::Steered { input } => user_message(input).into_iter().collect(),
        EventKind::ToolServersFailed { failures, .. } => {
            let failed = |failure: &ToolServerFailure| Kind::ToolServerFailed { failure: failure.clone() };
            failures.iter().map(failed).collect()
        }
        EventKind::ModelCallFailed { turn, call, error } => vec![
            Kind::ModelRequestEnd {
                model_request_start_id: EventId::model_call(session, *turn, *call),
                call: *call,
                is_error: true,
                stop_reason: None,
                model: None,
                model_usage: None,
                request_id: error.request_id.clone(),
            },
            Kind::SessionError { error: error.clone() },
        ],
        EventKind::ModelCallAbandoned { turn, call } => vec![Kind::ModelRequestEnd {
            model_request_start_id: EventId::model_call(session, *turn, *call),
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
        | EventKind::CompactionAbandoned { .. } => compaction_events(event),
        EventKind::ArtifactRegistered { artifact } => vec![Kind::SessionArtifactRegistered {
            name: artifact.name.clone(),
            content_type: artifact.content_type.clone(),
            size: artifact.size(),
        }],
        EventKind::ArtifactUnregistered { name } => {
            vec![Kind::SessionArtifactUnregistered { name: name.clone() }]
        }
        EventKind::ArtifactFetched { fetched } => vec![artifact_fetched(fetched)],
        EventKind::FilesProduced { files, completeness: Completeness::Complete, .. } if files.is_empty() => {
            Vec::new()
        }
        EventKind::FilesProduced { files, completeness, .. } => {
            vec![Kind::SessionFilesProduced { files: files.clone(), completeness: *completeness }]
        }
        _ => Vec::new(),
    }
}

pub(super) fn artifact_fetched(fetched: &FetchedArtifact) -> SessionEventKind {
    SessionEventKind::SessionArtifactFetched {
        name: fetched.name.clone(),
        content_type: fetched.content_type.clone(),
        size: fetched.content.size,
    }
}

/// The session events of a compaction.
fn compaction_events(event: &EventKind) -> Vec<SessionEventKind> {
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
    (!input.is_empty()).then(|| SessionEventKind::UserMessage { content: input.to_vec(), queue_id: None })
}

/// The kinds of the session events of an imported message. A tool call comes with its id.
pub(super) fn imported_events(
    session: SessionId,
    message: &Message,
) -> Vec<(Option<CallId>, SessionEventKind)> {
    match message.role {
        Role::Assistant => content_parts(&message.content)
            .into_iter()
            .map(|part| match part {
                ContentPart::Message { kind, .. } => (None, kind),
                ContentPart::Call(ToolCall { id: call_id, name, input }) => {
                    let id = Some(call_id.clone());
                    let evaluated_permission = None;
                    (id, SessionEventKind::AgentToolUse { call_id, name, input, evaluated_permission })
                }
            })
            .collect(),
        Role::User => {
            let is_result = |block: &&Block| matches!(block.kind(), BlockKind::ToolResult { .. });
            let others: Vec<Block> =
                message.content.iter().filter(|block| !is_result(block)).cloned().collect();
            let results = message.content.iter().filter_map(|block| imported_result(session, block));
            results.chain(user_message(&others)).map(|kind| (None, kind)).collect()
        }
    }
}

fn imported_result(session: SessionId, block: &Block) -> Option<SessionEventKind> {
    match block.kind() {
        BlockKind::ToolResult { tool_use_id, is_error, .. } => {
            let call_id = CallId::new(tool_use_id.as_str());
            Some(SessionEventKind::AgentToolResult {
                tool_use_id: EventId::for_call(session, call_id.clone()),
                call_id,
                name: None,
                result: block.clone(),
                is_error: *is_error,
                outcome: CallOutcome::Finished,
            })
        }
        _ => None,
    }
}

pub(super) fn tool_result(
    session: SessionId,
    name: Option<String>,
    result: &ToolResult,
    outcome: CallOutcome,
) -> SessionEventKind {
    SessionEventKind::AgentToolResult {
        tool_use_id: EventId::for_call(session, result.tool_use_id.clone()),
        call_id: result.tool_use_id.clone(),
        name,
        result: Block::tool_result(result),
        is_error: result.is_error,
        outcome,
    }
}

/// A part of a response's content.
pub(super) enum ContentPart {
    /// A message or thinking, and the index of its first block.
    Message { block: usize, kind: SessionEventKind },
    /// A tool call.
    Call(ToolCall),
}

/// The parts of a response's content, in order. Adjacent blocks that are neither thinking nor calls form one message.
pub(super) fn content_parts(content: &[Block]) -> Vec<ContentPart> {
    use SessionEventKind as Kind;
    let mut parts: Vec<ContentPart> = Vec::new();
    for (place, block) in content.iter().enumerate() {
        match (block.kind(), parts.last_mut()) {
            (BlockKind::Thinking(thinking), _) => {
                let kind = Kind::AgentThinking { thinking: thinking.clone() };
                parts.push(ContentPart::Message { block: place, kind });
            }
            (BlockKind::ToolUse(call), _) => parts.push(ContentPart::Call(call.clone())),
            (_, Some(ContentPart::Message { kind: Kind::AgentMessage { content }, .. })) => {
                content.push(block.clone());
            }
            _ => {
                let kind = Kind::AgentMessage { content: vec![block.clone()] };
                parts.push(ContentPart::Message { block: place, kind });
            }
        }
    }
    parts
}
