//! Accumulates the summary of a turn from the session's events.

use std::collections::BTreeSet;

use conjure::conversation::{AfterResponse, TurnStop};
use conjure::model::ModelErrorKind;
use conjure::session::{RequiredAction, RequiredNeed, SessionStopReason};
use conjure::tool::{CallId, ToolCall};
use conjure::{Block, Message, ModelError, SessionEvent, SessionEventKind, StopReason, Usage};

use crate::cli::approvals::PendingInput;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnEnd {
    /// The turn ended.
    Stopped(TurnStop),
    /// This tool call awaits approval, and the user did not decide.
    AwaitingApproval(ToolCall),
    /// This tool call asks the user, and the user did not answer.
    AwaitingInput(PendingInput),
    /// This tool call waits for its result from the client.
    AwaitingResult(ToolCall),
}

/// The summary of a turn.
#[derive(Debug, Default)]
pub(crate) struct TurnSummary {
    /// The last response. After a pause it includes the earlier parts that it continues.
    response: Vec<Block>,
    next_part: ResponsePart,
    error: Option<ModelError>,
    /// The number of model calls in the last turn.
    model_calls: u32,
    usage: Usage,
    /// The models of responses without a cost, by the service's names; `None` for a response without a name.
    unpriced: BTreeSet<Option<String>>,
    /// The tool calls of the last response.
    calls: Vec<ToolCall>,
    /// The calls that await approval, in order.
    pending_calls: Vec<ToolCall>,
    /// The calls that ask the user, in order.
    pending_inputs: Vec<PendingInput>,
    /// The calls that wait for their result from the client, in order.
    pending_results: Vec<ToolCall>,
}

/// The response that the next content belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ResponsePart {
    /// A new response.
    #[default]
    New,
    /// The previous response.
    Continued,
}

fn pending_input(action: &RequiredAction) -> Option<PendingInput> {
    match &action.need {
        RequiredNeed::Input { round, asked_by, questions } => Some(PendingInput {
            call: action.call_id.clone(),
            round: *round,
            asked_by: asked_by.clone(),
            questions: questions.clone(),
        }),
        _ => None,
    }
}

impl TurnSummary {
    /// A summary after earlier events. Of those events only the open tool calls count.
    pub(crate) fn from_history<'e>(events: impl IntoIterator<Item = &'e SessionEvent>) -> Self {
        let mut before = Self::default();
        for event in events {
            before.apply(event);
        }
        let Self { calls, pending_calls, pending_inputs, pending_results, .. } = before;
        Self { calls, pending_calls, pending_inputs, pending_results, ..Self::default() }
    }

    /// The calls that await approval, in order.
    pub(crate) fn pending_calls(&self) -> &[ToolCall] {
        &self.pending_calls
    }

    /// The calls that ask the user, in order.
    pub(crate) fn pending_inputs(&self) -> &[PendingInput] {
        &self.pending_inputs
    }

    /// The calls that wait for their result from the client, in order.
    pub(crate) fn pending_results(&self) -> &[ToolCall] {
        &self.pending_results
    }

    /// Removes a call after a decision.
    pub(crate) fn mark_decided(&mut self, call: &CallId) {
        self.pending_calls.retain(|pending| pending.id != *call);
        self.pending_inputs.retain(|pending| pending.call != *call);
    }

    /// Applies an event. Returns the reason if the event ends the turn.
    pub(crate) fn apply(&mut self, event: &SessionEvent) -> Option<TurnStop> {
        match &event.kind {
            SessionEventKind::SessionStatusRunning {} => {
                self.error = None;
                self.pending_inputs.clear();
                self.pending_results.clear();
            }
            SessionEventKind::ModelRequestStart { call, .. } => self.model_calls = *call,
            SessionEventKind::ModelRequestEnd { stop_reason: Some(reason), model, model_usage, .. } => {
                if model_usage.is_some_and(|usage| usage.total() > 0 && usage.cost_micros == 0) {
                    self.unpriced.insert(model.clone());
                }
                // Content before a pause is continued; otherwise the next response replaces it.
                if self.next_part == ResponsePart::New {
                    self.response.clear();
                }
                self.calls.clear();
                self.next_part = match reason.after_response() {
                    AfterResponse::Resume => ResponsePart::Continued,
                    _ => ResponsePart::New,
                };
            }
            SessionEventKind::AgentMessage { content } => self.response.extend(content.iter().cloned()),
            SessionEventKind::SessionError { error } => self.error = Some(error.clone()),
            SessionEventKind::AgentToolUse { call_id, name, input, .. }
            | SessionEventKind::AgentCustomToolUse { call_id, name, input } => {
                let call = ToolCall { id: call_id.clone(), name: name.clone(), input: input.clone() };
                self.calls.push(call);
            }
            SessionEventKind::SessionStatusIdle {
                stop_reason: SessionStopReason::RequiresAction { actions, .. },
                ..
            } => {
                let call_of = |action: &RequiredAction| {
                    self.calls.iter().find(|call| call.id == action.call_id).cloned()
                };
                let calls_with = |fits: fn(&RequiredNeed) -> bool| {
                    actions.iter().filter(|action| fits(&action.need)).filter_map(call_of).collect()
                };
                self.pending_calls = calls_with(|need| matches!(need, RequiredNeed::Approval { .. }));
                self.pending_results = calls_with(|need| matches!(need, RequiredNeed::Result { .. }));
                self.pending_inputs = actions.iter().filter_map(pending_input).collect();
            }
            SessionEventKind::UserToolConfirmation { call_id, .. }
            | SessionEventKind::AgentToolResult { call_id, .. } => self.mark_decided(call_id),
            SessionEventKind::SessionStatusIdle { stop_reason, usage } => {
                self.usage.add(&usage.unwrap_or_default());
                self.pending_calls.clear();
                self.pending_inputs.clear();
                self.pending_results.clear();
                return Some(self.stop(stop_reason));
            }
            _ => {}
        }
        None
    }

    /// The text of the last response.
    pub(crate) fn text(&self) -> String {
        Message::assistant(self.response.clone()).text()
    }

    /// The number of model calls in the last turn.
    pub(crate) const fn model_calls(&self) -> u32 {
        self.model_calls
    }

    /// Takes the models of responses without a cost, by the service's names.
    pub(crate) fn take_unpriced(&mut self) -> BTreeSet<Option<String>> {
        std::mem::take(&mut self.unpriced)
    }

    /// The usage of all turns.
    pub(crate) const fn usage(&self) -> &Usage {
        &self.usage
    }

    fn stop(&self, reason: &SessionStopReason) -> TurnStop {
        match reason {
            SessionStopReason::EndTurn => TurnStop::Answered(StopReason::EndTurn),
            SessionStopReason::BudgetReached { limit } => TurnStop::Limit(*limit),
            SessionStopReason::Refusal => TurnStop::Refused,
            SessionStopReason::Cut { reason } => TurnStop::Truncated(reason.clone()),
            SessionStopReason::Deadline => TurnStop::Deadline,
            SessionStopReason::RetriesExhausted => {
                let unknown = || ModelError::new(ModelErrorKind::Protocol, "its error is not recorded");
                TurnStop::ModelFailed(self.error.clone().unwrap_or_else(unknown))
            }
            _ => TurnStop::Interrupted,
        }
    }
}
