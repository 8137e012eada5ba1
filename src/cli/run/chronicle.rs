//! What a turn comes to, gathered from the session's events.

use conjure::{
    AfterAnswer, Block, Message, ModelError, ModelErrorKind, SessionEvent, SessionEventKind,
    SessionStopReason, StopReason, TurnStop, Usage,
};

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// It is over.
    Stopped(TurnStop),
    /// A tool call waits for a person.
    Waits,
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
    /// Takes in an event, and says whether it ends a turn, or has it wait.
    pub(crate) fn take(&mut self, event: &SessionEvent) -> Option<End> {
        match &event.kind {
            SessionEventKind::SessionStatusRunning {} => self.error = None,
            SessionEventKind::ModelRequestStart { call } => self.model_calls = *call,
            SessionEventKind::ModelRequestEnd { stop_reason: Some(reason), .. } => {
                // Parts that came before continue it, if it goes on; those of this answer come next.
                if self.place == Place::Fresh {
                    self.answer.clear();
                }
                self.place = match reason.consequence() {
                    AfterAnswer::Resume => Place::Continued,
                    _ => Place::Fresh,
                };
            }
            SessionEventKind::AgentMessage { content } => self.answer.extend(content.iter().cloned()),
            SessionEventKind::SessionError { error } => self.error = Some(error.clone()),
            SessionEventKind::SessionStatusIdle {
                stop_reason: SessionStopReason::RequiresAction { .. },
                ..
            } => {
                return Some(End::Waits);
            }
            SessionEventKind::SessionStatusIdle { stop_reason, usage } => {
                self.usage.add(&usage.unwrap_or_default());
                return Some(End::Stopped(self.stop(stop_reason)));
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
