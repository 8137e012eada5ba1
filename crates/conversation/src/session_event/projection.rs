//! The projection of a session's recorded events to session events.
//!
//! State: the calls of the last response that have no result yet, and whether the session waits for an action.
//!
//! A start is an event at which a projection may begin without the events before it ([`EventProjection::is_start`]). A reader that
//! begins elsewhere goes back to the last start before. There is at least one start for each response of the model.

use std::sync::Arc;

use conjure_base::{CallId, SessionId, Timestamp, TurnId};

use super::convert::{ContentPart, content_parts, imported_events, stateless_event, tool_result};
use super::event_id::EventId;
use super::stop_reason::{EvaluatedPermission, RequiredAction, SessionStopReason};
use super::types::{SESSION_EVENT_SCHEMA, SessionEvent, SessionEventKind as Kind};
use crate::content::block::Block;
use crate::events::call_outcome::{CallOutcome, Decision, ResultFrom};
use crate::events::event::{Event, EventKind};
use crate::events::turn_stop::TurnStop;
use crate::machine::skipped_results;
use crate::model::Response;
use crate::state::open_call::ActionNeed;
use crate::tools::tool::ToolCall;
use crate::tools::tool::ToolResult;

/// Derives session events from recorded events. The caller passes the recorded events in order.
#[derive(Debug, Clone)]
pub struct EventProjection {
    session: SessionId,
    /// The calls of the last response without a result.
    calls: Vec<OpenCall>,
    /// Whether the session waits for an action.
    is_waiting: bool,
}

#[derive(Debug, Clone)]
struct OpenCall {
    call: ToolCall,
    /// Whether the event of the call was emitted.
    is_emitted: bool,
    is_running: bool,
    need: Option<ActionNeed>,
}

/// The session events of one recorded event.
struct Output {
    session: SessionId,
    seq: u64,
    at: Timestamp,
    place: usize,
    events: Vec<SessionEvent>,
}

impl EventProjection {
    /// A projection that begins with the first event of the session, or with a start.
    #[must_use]
    pub const fn new(session: SessionId) -> Self {
        Self { session, calls: Vec::new(), is_waiting: false }
    }

    /// Whether a projection may begin with this event.
    #[must_use]
    pub const fn is_start(event: &EventKind) -> bool {
        matches!(
            event,
            EventKind::Opened { .. }
                | EventKind::Imported { .. }
                | EventKind::Forked { .. }
                | EventKind::TurnStarted { .. }
                | EventKind::ModelAnswered { .. }
                | EventKind::ModelCallFailed { .. }
                | EventKind::ModelCallAbandoned { .. }
                | EventKind::TurnFinished { .. }
        )
    }

    /// The session events of the next recorded event, which has the sequence number `seq`. Some recorded events have none.
    pub fn apply(&mut self, seq: u64, event: &Event) -> Vec<SessionEvent> {
        let mut output = Output { session: self.session, seq, at: event.at, place: 0, events: Vec::new() };
        self.project(&event.kind, &mut output);
        output.events
    }

    fn project(&mut self, event: &EventKind, output: &mut Output) {
        match event {
            EventKind::Imported { messages, .. } => {
                for message in messages {
                    for (call, kind) in imported_events(self.session, message) {
                        output.push(call.map(|call| EventId::for_call(self.session, call)), kind);
                    }
                }
            }
            EventKind::TurnStarted { input, queued, queued_at, .. } => {
                self.calls.clear();
                self.is_waiting = false;
                if !input.is_empty() {
                    let id = queued.map(|queued| EventId::for_queued(self.session, queued));
                    let created = queued_at.unwrap_or(output.at);
                    output.push(id, Kind::UserMessage { content: input.clone(), queue_id: *queued });
                    if let Some(message) = output.events.last_mut() {
                        message.created_at = created;
                    }
                }
                output.push_status(Kind::SessionStatusRunning {});
            }
            EventKind::Queued { id, input, .. } => {
                let kind = Kind::UserMessage { content: input.clone(), queue_id: Some(*id) };
                output.push(Some(EventId::for_queued(self.session, *id)), kind);
                if let Some(message) = output.events.last_mut() {
                    message.processed_at = None;
                }
            }
            EventKind::ModelCallStarted { turn, call, .. } => {
                self.resume(output);
                let id = EventId::model_call(self.session, *turn, *call);
                output.push(Some(id), Kind::ModelRequestStart { turn: *turn, call: *call });
            }
            EventKind::ModelAnswered { turn, call, response } => {
                self.project_response(*turn, *call, response, output);
            }
            EventKind::ApprovalRequested { call, reason } => {
                self.emit_call(call, Some(EvaluatedPermission::Ask), output);
                self.set_need(call, Some(ActionNeed::Approval { reason: reason.clone() }));
            }
            EventKind::ApprovalDecided { call, decision } => {
                if !self.is_waiting && !self.calls.iter().any(|open| open.is_running) {
                    // Recorded events of older versions do not say that the turn waits.
                    self.wait(output);
                }
                self.set_need(call, None);
                self.project_decision(call, decision, output);
            }
            EventKind::ResultRequested { call, from, deadline } => {
                match from {
                    ResultFrom::Client => self.emit_custom_call(call, output),
                    _ => self.emit_call(call, Some(EvaluatedPermission::Allow), output),
                }
                self.set_need(call, Some(ActionNeed::Result { from: *from, deadline: *deadline }));
            }
            EventKind::ResultProvided { result, from } => {
                self.calls.retain(|open| open.call.id != result.tool_use_id);
                output.push(None, provided_result(self.session, result, *from));
            }
            EventKind::InputRequired { call, round, request } => {
                self.set_running(call, false);
                let request = Arc::new((**request).clone());
                let id = EventId::for_input(self.session, call.clone(), *round);
                let kind = Kind::AgentInputRequest {
                    call_id: call.clone(),
                    asked_by: request.asked_by.clone(),
                    questions: request.questions.clone(),
                };
                output.push(Some(id), kind);
                self.set_need(call, Some(ActionNeed::Input { round: *round, request }));
            }
            EventKind::InputProvided { call, round, answers } => {
                self.set_need(call, None);
                let kind = Kind::UserInputResponse {
                    input_request_id: EventId::for_input(self.session, call.clone(), *round),
                    call_id: call.clone(),
                    answers: answers.clone(),
                };
                output.push(None, kind);
            }
            EventKind::ActionRequired { .. } => self.wait(output),
            EventKind::ToolStarted { call, .. } => {
                self.resume(output);
                self.emit_call(call, Some(EvaluatedPermission::Allow), output);
                self.set_running(call, true);
            }
            EventKind::ToolAbandoned { call } => self.set_running(call, false),
            EventKind::ToolFinished { result, outcome } => {
                let denied = (*outcome == CallOutcome::Denied).then_some(EvaluatedPermission::Deny);
                self.emit_call(&result.tool_use_id, denied, output);
                let name = self.take_call(&result.tool_use_id);
                self.project_result(name, result, *outcome, output);
            }
            EventKind::TurnFinished { stop, usage, .. } => {
                self.calls.clear();
                self.is_waiting = false;
                if *stop == TurnStop::Interrupted {
                    output.push(None, Kind::UserInterrupt {});
                }
                let idle = Kind::SessionStatusIdle { stop_reason: stop.into(), usage: Some(*usage) };
                output.push_status(idle);
            }
            EventKind::Unqueued { id } => {
                let message_id = EventId::for_queued(self.session, *id);
                output.push(None, Kind::UserUnqueuedMessage { queue_id: *id, message_id });
            }
            other => {
                for kind in stateless_event(self.session, other) {
                    output.push(None, kind);
                }
            }
        }
    }

    fn project_response(&mut self, turn: TurnId, call: u32, response: &Response, output: &mut Output) {
        let end = Kind::ModelRequestEnd {
            model_request_start_id: EventId::model_call(self.session, turn, call),
            call,
            is_error: false,
            stop_reason: Some(response.stop_reason.clone()),
            model: response.model.clone(),
            model_usage: Some(response.usage),
            request_id: response.request_id.clone(),
        };
        output.push(None, end);
        self.is_waiting = false;
        self.calls.clear();
        for part in content_parts(&response.content) {
            match part {
                ContentPart::Message { block, kind } => {
                    output.push(Some(EventId::block(self.session, turn, call, block)), kind);
                }
                ContentPart::Call(call) => {
                    self.calls.push(OpenCall { call, is_emitted: false, is_running: false, need: None });
                }
            }
        }
        for result in skipped_results(response) {
            self.emit_call(&result.tool_use_id, None, output);
            let name = self.take_call(&result.tool_use_id);
            output.push(None, tool_result(self.session, name, &result, CallOutcome::Skipped));
        }
    }

    fn project_decision(&self, call: &CallId, decision: &Decision, output: &mut Output) {
        let (result, deny_message, grant) = match decision {
            Decision::Allow => ("allow", None, None),
            Decision::Grant { grant } => ("allow", None, Some(grant.clone())),
            Decision::Deny { reason } => ("deny", Some(reason.clone()), None),
        };
        let tool_use_id = EventId::for_call(self.session, call.clone());
        let given = grant.clone().map(|grant| Kind::SessionGrantGiven {
            tool_use_id: tool_use_id.clone(),
            call_id: call.clone(),
            grant,
        });
        let call_id = call.clone();
        output.push(None, Kind::UserToolConfirmation { tool_use_id, call_id, result, deny_message, grant });
        if let Some(given) = given {
            output.push(None, given);
        }
    }

    /// Removes a call that has its result, and returns its tool's name.
    fn take_call(&mut self, call: &CallId) -> Option<String> {
        let place = self.calls.iter().position(|open| open.call.id == *call)?;
        Some(self.calls.remove(place).call.name)
    }

    fn project_result(
        &self,
        name: Option<String>,
        result: &ToolResult,
        outcome: CallOutcome,
        output: &mut Output,
    ) {
        output.push(None, tool_result(self.session, name, result, outcome));
        if let Some(active_skills) = result.active_skills.clone() {
            let changed = Kind::SessionSkillsChanged {
                tool_use_id: EventId::for_call(self.session, result.tool_use_id.clone()),
                call_id: result.tool_use_id.clone(),
                active_skills,
            };
            output.push(None, changed);
        }
        for fetched in &result.fetched {
            output.push(None, super::convert::artifact_fetched(fetched));
        }
    }

    /// Emits the event of a call, once.
    fn emit_call(
        &mut self,
        call: &CallId,
        evaluated_permission: Option<EvaluatedPermission>,
        output: &mut Output,
    ) {
        if let Some(call) = self.take_unemitted(call) {
            let id = EventId::for_call(self.session, call.id.clone());
            let ToolCall { id: call_id, name, input } = call;
            output.push(Some(id), Kind::AgentToolUse { call_id, name, input, evaluated_permission });
        }
    }

    fn emit_custom_call(&mut self, call: &CallId, output: &mut Output) {
        if let Some(call) = self.take_unemitted(call) {
            let id = EventId::for_call(self.session, call.id.clone());
            let ToolCall { id: call_id, name, input } = call;
            output.push(Some(id), Kind::AgentCustomToolUse { call_id, name, input });
        }
    }

    fn take_unemitted(&mut self, call: &CallId) -> Option<ToolCall> {
        let open = self.calls.iter_mut().find(|open| open.call.id == *call && !open.is_emitted)?;
        open.is_emitted = true;
        Some(open.call.clone())
    }

    fn set_need(&mut self, call: &CallId, need: Option<ActionNeed>) {
        if let Some(open) = self.calls.iter_mut().find(|open| open.call.id == *call) {
            open.need = need;
        }
    }

    fn set_running(&mut self, call: &CallId, is_running: bool) {
        if let Some(open) = self.calls.iter_mut().find(|open| open.call.id == *call) {
            open.is_running = is_running;
            open.need = None;
        }
    }

    /// Emits that the session waits for all pending actions.
    fn wait(&mut self, output: &mut Output) {
        self.is_waiting = true;
        let actions: Vec<RequiredAction> = self
            .calls
            .iter()
            .filter_map(|open| {
                let (need, call) = (open.need.clone()?, open.call.id.clone());
                let event_id = match &need {
                    ActionNeed::Input { round, .. } => EventId::for_input(self.session, call.clone(), *round),
                    _ => EventId::for_call(self.session, call.clone()),
                };
                Some(RequiredAction { event_id, call_id: call, need: need.into() })
            })
            .collect();
        let event_ids = actions.iter().map(|action| action.event_id.clone()).collect();
        let stop_reason = SessionStopReason::RequiresAction { event_ids, actions };
        output.push_status(Kind::SessionStatusIdle { stop_reason, usage: None });
    }

    /// Emits that the session runs again, if it has waited.
    fn resume(&mut self, output: &mut Output) {
        if std::mem::take(&mut self.is_waiting) {
            output.push_status(Kind::SessionStatusRunning {});
        }
    }
}

impl Output {
    /// Adds an event. An event without an id of its own gets one from its position.
    fn push(&mut self, id: Option<EventId>, kind: Kind) {
        let id = id.unwrap_or_else(|| {
            let id = EventId::recorded(self.session, self.seq, self.place);
            self.place += 1;
            id
        });
        self.events.push(SessionEvent {
            schema: SESSION_EVENT_SCHEMA,
            id,
            seq: self.seq,
            created_at: self.at,
            processed_at: Some(self.at),
            session_id: self.session,
            kind,
        });
    }

    fn push_status(&mut self, kind: Kind) {
        self.push(Some(EventId::status(self.session, self.seq)), kind);
    }
}

fn provided_result(session: SessionId, result: &ToolResult, from: ResultFrom) -> Kind {
    let call_id = result.tool_use_id.clone();
    let id = EventId::for_call(session, call_id.clone());
    let (is_error, result) = (result.is_error, Block::tool_result(result));
    match from {
        ResultFrom::Client => {
            Kind::UserCustomToolResult { custom_tool_use_id: id, call_id, result, is_error }
        }
        _ => Kind::UserToolResult { tool_use_id: id, call_id, result, is_error },
    }
}
