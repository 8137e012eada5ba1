//! The turns of a session, made from its events.

use conjure::{
    Block, BlockKind, CallId, SessionEvent, SessionEventKind, SessionStopReason, Timestamp, Usage,
};

/// A turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) at: Timestamp,
    /// What the user said.
    pub(super) prompt: String,
    pub(super) model_calls: u32,
    pub(super) tool_calls: u32,
    /// Why it ended; none for the one that is under way.
    pub(super) stop: Option<SessionStopReason>,
    pub(super) usage: Usage,
}

/// A tool call that waits for a person.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: CallId,
    pub(super) tool: String,
    pub(super) reason: String,
}

/// What a session did.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) turns: Vec<Turn>,
    pub(super) waiting: Vec<Waiting>,
    said: String,
    tools: Vec<(CallId, String)>,
}

impl History {
    /// Of these events.
    pub(super) fn of(events: &[SessionEvent]) -> Self {
        let mut history = Self::default();
        for event in events {
            history.take(event);
        }
        history
    }

    fn take(&mut self, event: &SessionEvent) {
        use SessionEventKind as Kind;
        let open = self.turns.last_mut().filter(|turn| turn.stop.is_none());
        match (&event.kind, open) {
            (Kind::UserMessage { content }, None) => self.said = text_of(content),
            (Kind::SessionStatusRunning {}, None) => self.turns.push(Turn {
                at: event.created_at,
                prompt: std::mem::take(&mut self.said),
                model_calls: 0,
                tool_calls: 0,
                stop: None,
                usage: Usage::default(),
            }),
            (Kind::ModelRequestStart { .. }, Some(turn)) => turn.model_calls += 1,
            (Kind::AgentToolUse { tool_use_id, name, .. }, Some(turn)) => {
                turn.tool_calls += 1;
                self.tools.push((tool_use_id.clone(), name.clone()));
            }
            (
                Kind::SessionStatusIdle {
                    stop_reason: SessionStopReason::RequiresAction { tool_use_id, reason },
                    ..
                },
                _,
            ) => {
                let tool = self.tools.iter().rev().find(|(id, _)| id == tool_use_id);
                self.waiting.push(Waiting {
                    call: tool_use_id.clone(),
                    tool: tool.map(|(_, name)| name.clone()).unwrap_or_default(),
                    reason: reason.clone(),
                });
            }
            (
                Kind::UserToolConfirmation { tool_use_id, .. } | Kind::AgentToolResult { tool_use_id, .. },
                _,
            ) => {
                self.waiting.retain(|waiting| waiting.call != *tool_use_id);
            }
            (Kind::SessionStatusIdle { stop_reason, usage }, Some(turn)) => {
                turn.stop = Some(stop_reason.clone());
                turn.usage = usage.unwrap_or_default();
            }
            _ => {}
        }
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

/// Why a turn ended, in words.
pub(super) fn ended(stop: Option<&SessionStopReason>) -> String {
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
