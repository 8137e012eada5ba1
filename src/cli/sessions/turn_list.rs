//! Lists the turns of a session from its events.

use conjure::model::BlockKind;
use conjure::runtime::Timestamp;
use conjure::session::{RequiredNeed, SessionStopReason};
use conjure::tool::{CallId, ToolCall};
use conjure::{Block, SessionEvent, SessionEventKind, Usage};

use crate::cli::run::TurnSummary;

/// A turn.
#[derive(Debug)]
pub(super) struct TurnRow {
    pub(super) at: Timestamp,
    /// The user's message.
    pub(super) prompt: String,
    pub(super) model_calls: u32,
    pub(super) tool_calls: u32,
    /// Why it ended; `None` for an unfinished turn.
    pub(super) stop: Option<SessionStopReason>,
    pub(super) usage: Usage,
}

/// A tool call that awaits approval.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) call: ToolCall,
    pub(super) reason: String,
}

/// The turns of a session.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) turns: Vec<TurnRow>,
    next_prompt: String,
    /// The queued messages, with the times at which their turns began.
    queued: Vec<(Timestamp, String)>,
}

impl History {
    /// The history of these events.
    pub(super) fn from_events(events: &[SessionEvent]) -> Self {
        let mut history = Self::default();
        for event in events {
            history.apply(event);
        }
        history
    }

    fn apply(&mut self, event: &SessionEvent) {
        use SessionEventKind as Kind;
        let open = self.turns.last_mut().filter(|turn| turn.stop.is_none());
        match (&event.kind, open) {
            (Kind::UserMessage { content, queue_id: Some(_) }, _) => {
                self.queued.extend(event.processed_at.map(|at| (at, text_of(content))));
            }
            (Kind::UserMessage { content, .. }, None) => self.next_prompt = text_of(content),
            (Kind::SessionStatusRunning {}, None) => self.turns.push(TurnRow {
                at: event.created_at,
                prompt: take_prompt(&mut self.next_prompt, &mut self.queued, event.created_at),
                model_calls: 0,
                tool_calls: 0,
                stop: None,
                usage: Usage::default(),
            }),
            (Kind::ModelRequestStart { .. }, Some(turn)) => {
                turn.model_calls += 1;
            }
            (Kind::AgentToolUse { .. } | Kind::AgentCustomToolUse { .. }, Some(turn)) => turn.tool_calls += 1,
            (Kind::SessionStatusIdle { stop_reason: SessionStopReason::RequiresAction { .. }, .. }, _) => {}
            (Kind::SessionStatusIdle { stop_reason, usage }, Some(turn)) => {
                turn.stop = Some(stop_reason.clone());
                turn.usage = usage.unwrap_or_default();
            }
            _ => {}
        }
    }
}

/// The tool calls that await approval, in order.
pub(super) fn pending_calls(events: &[SessionEvent]) -> Vec<PendingCall> {
    let summary = TurnSummary::from_history(events);
    let pending = summary.pending_calls().iter().map(|call| {
        let reason = events.iter().rev().find_map(|event| approval_reason(event, &call.id));
        PendingCall { call: call.clone(), reason: reason.unwrap_or_default().to_owned() }
    });
    pending.collect()
}

/// Why this event asks for the approval of a call; `None` if it does not.
fn approval_reason<'e>(event: &'e SessionEvent, call: &CallId) -> Option<&'e str> {
    let SessionEventKind::SessionStatusIdle { stop_reason, .. } = &event.kind else { return None };
    let SessionStopReason::RequiresAction { actions, .. } = stop_reason else { return None };
    match &actions.iter().find(|action| action.call_id == *call)?.need {
        RequiredNeed::Approval { reason } => Some(reason),
        _ => None,
    }
}

/// The message of the turn that starts now: the message sent just before, or the queued message whose turn began at this time.
fn take_prompt(sent: &mut String, queued: &mut Vec<(Timestamp, String)>, now: Timestamp) -> String {
    match queued.iter().position(|(taken, _)| *taken == now) {
        Some(place) if sent.is_empty() => queued.remove(place).1,
        _ => std::mem::take(sent),
    }
}

/// The texts of a message.
pub(super) fn text_of(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block.kind() {
        BlockKind::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Why a turn ended, as text.
pub(super) fn end_text(stop: Option<&SessionStopReason>) -> String {
    let Some(stop) = stop else { return "under way".to_owned() };
    match stop {
        SessionStopReason::EndTurn => "the model is done".to_owned(),
        SessionStopReason::RequiresAction { .. } => "waits for a person".to_owned(),
        SessionStopReason::RetriesExhausted => "the model call failed".to_owned(),
        SessionStopReason::BudgetReached { limit } => format!("{limit} was reached"),
        SessionStopReason::Refusal => "the model refused".to_owned(),
        SessionStopReason::Cut { reason } => format!("the answer was cut ({reason})"),
        SessionStopReason::Interrupted => "interrupted".to_owned(),
        SessionStopReason::Deadline => "the deadline passed".to_owned(),
        _ => "ended".to_owned(),
    }
}
