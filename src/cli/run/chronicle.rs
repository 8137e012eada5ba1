//! What a turn comes to, gathered from the session's events.

use conjure::{
    AfterAnswer, Block, CallId, Message, ModelError, ModelErrorKind, SessionEvent, SessionEventKind,
    SessionStopReason, StopReason, ToolCall, TurnStop, Usage,
};

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// It is over.
    Stopped(TurnStop),
    /// This tool call waits for a person, who was not there or did not decide.
    Waits(ToolCall),
}

/// What was gathered.
#[derive(Debug, Default)]
pub(crate) struct Chronicle {
    /// The last answer, over its pauses.
    answer: Vec<Block>,
    place: Place,
    error: Option<ModelError>,
    /// How often the model was called in the last turn.
    model_calls: u32,
    usage: Usage,
    /// The calls of the last answer.
    calls: Vec<ToolCall>,
    /// Those of them that wait for a person, in order.
    waiting: Vec<ToolCall>,
}

/// Where the parts of an answer belong.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// They are those of an answer of its own.
    #[default]
    Fresh,
    /// They continue the one before.
    Continued,
}

impl Chronicle {
    /// Of a session in which this happened before: of that only the tool calls under way count.
    pub(crate) fn after<'e>(events: impl IntoIterator<Item = &'e SessionEvent>) -> Self {
        let mut before = Self::default();
        for event in events {
            before.take(event);
        }
        Self { calls: before.calls, waiting: before.waiting, ..Self::default() }
    }

    /// The calls that wait for a person, in order.
    pub(crate) fn waiting(&self) -> &[ToolCall] {
        &self.waiting
    }

    /// It was decided on this call.
    pub(crate) fn decided(&mut self, call: &CallId) {
        self.waiting.retain(|waiting| waiting.id != *call);
    }

    /// Takes in an event, and says whether it ends a turn.
    pub(crate) fn take(&mut self, event: &SessionEvent) -> Option<TurnStop> {
        match &event.kind {
            SessionEventKind::SessionStatusRunning {} => self.error = None,
            SessionEventKind::ModelRequestStart { call } => self.model_calls = *call,
            SessionEventKind::ModelRequestEnd { stop_reason: Some(reason), .. } => {
                // Parts that came before continue it, if it goes on; those of this answer come next.
                if self.place == Place::Fresh {
                    self.answer.clear();
                }
                self.calls.clear();
                self.place = match reason.consequence() {
                    AfterAnswer::Resume => Place::Continued,
                    _ => Place::Fresh,
                };
            }
            SessionEventKind::AgentMessage { content } => self.answer.extend(content.iter().cloned()),
            SessionEventKind::SessionError { error } => self.error = Some(error.clone()),
            SessionEventKind::AgentToolUse { tool_use_id, name, input } => {
                let call = ToolCall { id: tool_use_id.clone(), name: name.clone(), input: input.clone() };
                self.calls.push(call);
            }
            SessionEventKind::SessionStatusIdle {
                stop_reason: SessionStopReason::RequiresAction { tool_use_id, .. },
                ..
            } => {
                self.waiting.extend(self.calls.iter().find(|call| call.id == *tool_use_id).cloned());
            }
            SessionEventKind::UserToolConfirmation { tool_use_id, .. }
            | SessionEventKind::AgentToolResult { tool_use_id, .. } => self.decided(tool_use_id),
            SessionEventKind::SessionStatusIdle { stop_reason, usage } => {
                self.usage.add(&usage.unwrap_or_default());
                self.waiting.clear();
                return Some(self.stop(stop_reason));
            }
            _ => {}
        }
        None
    }

    /// The text of the last answer.
    pub(crate) fn text(&self) -> String {
        Message::assistant(self.answer.clone()).text()
    }

    /// How often the model was called in the last turn.
    pub(crate) const fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// What all turns consumed.
    pub(crate) const fn usage(&self) -> &Usage {
        &self.usage
    }

    fn stop(&self, reason: &SessionStopReason) -> TurnStop {
        match reason {
            SessionStopReason::EndTurn => TurnStop::Answered(StopReason::EndTurn),
            SessionStopReason::BudgetReached { limit } => TurnStop::Limit(*limit),
            SessionStopReason::Refusal => TurnStop::Refused,
            SessionStopReason::Cut { reason } => TurnStop::Cut(reason.clone()),
            SessionStopReason::Deadline => TurnStop::Deadline,
            SessionStopReason::RetriesExhausted => {
                let unknown = || ModelError::new(ModelErrorKind::Protocol, "its error is not recorded");
                TurnStop::ModelFailed(self.error.clone().unwrap_or_else(unknown))
            }
            _ => TurnStop::Interrupted,
        }
    }
}
