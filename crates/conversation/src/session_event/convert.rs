//! The conversion of recorded events to session events.

use conjure_base::{CallId, SessionId};

use super::types::{SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind, SessionStopReason};
use crate::artifact::FetchedArtifact;
use crate::block::{Block, BlockKind};
use crate::event::{CallOutcome, Decision, Event, EventKind, TurnStop};
use crate::machine::skipped_results;
use crate::message::Message;
use crate::model::Response;
use crate::model::Usage;
use crate::session_file::Completeness;
use crate::tool::ToolResult;

/// The session events of one recorded event with the sequence number `seq`. Some recorded events have none.
#[must_use]
pub fn session_events(session_id: SessionId, seq: u64, event: &Event) -> Vec<SessionEvent> {
    convert_event(&event.kind)
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

fn convert_event(event: &EventKind) -> Vec<SessionEventKind> {
    use SessionEventKind as Kind;
    match event {
        EventKind::Imported { messages, .. } => messages.iter().flat_map(imported_events).collect(),
        EventKind::TurnStarted { input, .. } => {
            user_message(input).into_iter().chain([Kind::SessionStatusRunning {}]).collect()
        }
        EventKind::ModelChanged { from, to, container } => vec![Kind::SessionModelChanged {
            from: from.clone(),
            to: to.clone(),
            container_id: container.clone(),
        }],
        EventKind::Forked { from, events, .. } => {
            vec![Kind::SessionForked { from_session_id: *from, events: *events }]
        }
        EventKind::Queued { id, input, .. } => {
            vec![Kind::UserQueuedMessage { queue_id: *id, content: input.clone() }]
        }
        EventKind::Unqueued { id } => vec![Kind::UserUnqueuedMessage { queue_id: *id }],
        EventKind::Steered { input } => user_message(input).into_iter().collect(),
        EventKind::ModelCallStarted { call, .. } => vec![Kind::ModelRequestStart { call: *call }],
        EventKind::ModelAnswered { call, response, .. } => response_events(*call, response),
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
        | EventKind::CompactionAbandoned { .. } => compaction_events(event),
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
        EventKind::FilesProduced { files, completeness: Completeness::Complete, .. } if files.is_empty() => {
            Vec::new()
        }
        EventKind::FilesProduced { files, completeness, .. } => {
            vec![Kind::SessionFilesProduced { files: files.clone(), completeness: *completeness }]
        }
        EventKind::Opened { .. }
        | EventKind::ArtifactUploaded { .. }
        | EventKind::BlockReplaced { .. }
        | EventKind::NoteAdded { .. }
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
    (!input.is_empty()).then(|| SessionEventKind::UserMessage { content: input.to_vec() })
}

fn imported_events(message: &Message) -> Vec<SessionEventKind> {
    match message.role {
        crate::Role::Assistant => text_events(&message.content),
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
            outcome: CallOutcome::Finished,
        }),
        _ => None,
    }
}

fn tool_result(result: &ToolResult, outcome: CallOutcome) -> SessionEventKind {
    SessionEventKind::AgentToolResult {
        tool_use_id: result.tool_use_id.clone(),
        result: Block::tool_result(result),
        is_error: result.is_error,
        outcome,
    }
}

fn response_events(call: u32, response: &Response) -> Vec<SessionEventKind> {
    let end = SessionEventKind::ModelRequestEnd {
        call,
        is_error: false,
        stop_reason: Some(response.stop_reason.clone()),
        model: response.model.clone(),
        model_usage: Some(response.usage),
        request_id: response.request_id.clone(),
    };
    let not_run = skipped_results(response);
    std::iter::once(end)
        .chain(text_events(&response.content))
        .chain(not_run.iter().map(|result| tool_result(result, CallOutcome::Skipped)))
        .collect()
}

/// The session events of the model's blocks, in order. Adjacent blocks that are neither thinking nor calls form one message.
fn text_events(content: &[Block]) -> Vec<SessionEventKind> {
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
