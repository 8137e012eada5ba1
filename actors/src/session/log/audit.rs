//! The audit log (specification 15). Its entries are `tracing` events with the target `conjure::audit`. It emits one for
//! each tool call that ran or was denied, and one for each grant that lets later calls run without an approval.
//!
//! An entry is emitted when the end of the call is recorded. So each call has one entry, also after a panic, a
//! cancellation or a crash of the process: the next incarnation records that its outcome is unknown, and emits the
//! entry. A call that never ran has no entry.
//!
//! State: the calls of the last response, in memory. After a crash they are read from the conversation, without their
//! start times. A crash between the record of a call's end and its entry loses the entry.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use conjure_base::{CallId, Redactor, Timestamp, TurnId, lock};
use conjure_conversation::{
    Block, CallOutcome, CallStatus, Decision, Event, EventKind, Grant, GrantScope, ResultContent,
    SessionState, ToolCall, ToolEnding, ToolResult,
};
use conjure_journal::SessionKey;
use conjure_sandbox::{Boundary, Executor};

use crate::metrics::RuntimeMetrics;
use crate::session::event_redaction::redact_json;

/// The maximum number of bytes of an input, and of a name, in an entry.
const INPUT: usize = 2_048;
const NAME: usize = 128;

/// The audit log of one session.
pub(crate) struct AuditLog {
    metrics: RuntimeMetrics,
    state: Mutex<AuditState>,
}

#[derive(Default)]
struct AuditState {
    turn: Option<TurnId>,
    /// The calls without a result.
    open: BTreeMap<CallId, AuditedCall>,
    /// Finished calls whose entries wait until the secrets are known.
    pending: Vec<FinishedCall>,
    granted: Vec<GrantRecord>,
    facts: Option<AuditFacts>,
}

/// Facts that are known only when the session's components are built.
struct AuditFacts {
    /// The redactor of the tools, which also redacts secrets that are added later.
    redactor: Redactor,
    sandbox: &'static str,
}

struct AuditedCall {
    call: ToolCall,
    run: RunState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunState {
    NotStarted,
    Started(Timestamp),
    /// It started before the session was loaded.
    StartedEarlier,
}

/// A grant of a person for more than one call.
struct GrantRecord {
    turn: Option<TurnId>,
    call: CallId,
    grant: Grant,
    at: Timestamp,
}

/// A finished call.
struct FinishedCall {
    turn: Option<TurnId>,
    open: AuditedCall,
    ended: Option<Timestamp>,
    outcome: &'static str,
    output: Option<usize>,
}

impl AuditLog {
    /// An empty audit log that also counts its entries as metrics.
    pub(crate) fn with_metrics(metrics: RuntimeMetrics) -> Self {
        Self { metrics, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, AuditState> {
        lock(&self.state)
    }

    /// Adds the open calls of a loaded conversation, and finishes the known calls that ended without a notification.
    pub(crate) fn on_loaded(&self, conversation: &SessionState) {
        let mut state = self.state();
        let mut known = std::mem::take(&mut state.open);
        for open in conversation.open_calls() {
            let before = known.remove(&open.call.id).map_or(RunState::NotStarted, |known| known.run);
            let run = match (&open.status, before) {
                (CallStatus::Finished(result), RunState::Started(_)) => {
                    // Its end was recorded, but the audit log was not notified.
                    let open = AuditedCall { call: open.call.clone(), run: before };
                    let outcome = outcome_label(CallOutcome::Finished, result).unwrap_or("unknown");
                    state.end(open, None, outcome, Some(bytes(result)));
                    continue;
                }
                (CallStatus::Finished(_), _) => continue,
                (CallStatus::Started { .. }, RunState::NotStarted) => RunState::StartedEarlier,
                _ => before,
            };
            state.open.insert(open.call.id.clone(), AuditedCall { call: open.call.clone(), run });
        }
        for (_, open) in known {
            if open.run != RunState::NotStarted {
                state.end(open, None, "unknown", None);
            }
        }
        state.turn = conversation.turn().map(conjure_conversation::RunningTurn::id);
    }

    /// Sets the facts, and emits the entries that waited for them.
    pub(crate) fn set_facts(&self, key: &SessionKey, redactor: &Redactor, executor: Option<&dyn Executor>) {
        let sandbox = match executor.map(Executor::isolation) {
            None => "none",
            Some(isolation) if isolation.filesystem == Boundary::Enforced => "isolated",
            Some(_) => "open",
        };
        let mut state = self.state();
        state.facts = Some(AuditFacts { redactor: redactor.clone(), sandbox });
        state.emit(key, &self.metrics);
    }

    /// Handles a recorded event.
    pub(crate) fn on_recorded(&self, key: &SessionKey, event: &Event) {
        let mut state = self.state();
        match &event.kind {
            EventKind::TurnStarted { turn, .. } => state.turn = Some(*turn),
            EventKind::ModelAnswered { response, .. } => {
                state.finish_open_calls();
                let calls = response.content.iter().filter_map(Block::tool_call);
                let open = |call: &ToolCall| {
                    (call.id.clone(), AuditedCall { call: call.clone(), run: RunState::NotStarted })
                };
                state.open = calls.map(open).collect();
            }
            EventKind::TurnFinished { .. } => state.finish_open_calls(),
            EventKind::ToolStarted { call, .. } => {
                if let Some(open) = state.open.get_mut(call) {
                    open.run = RunState::Started(event.at);
                }
            }
            EventKind::ApprovalDecided { call, decision: Decision::Grant { grant } } => {
                let (turn, call, grant) = (state.turn, call.clone(), grant.clone());
                state.granted.push(GrantRecord { turn, call, grant, at: event.at });
            }
            EventKind::ToolAbandoned { call } => {
                // The call ran, and will run again. This entry is for the abandoned run.
                if let Some(open) = state.open.get_mut(call) {
                    let run = std::mem::replace(&mut open.run, RunState::NotStarted);
                    let open = AuditedCall { call: open.call.clone(), run };
                    state.end(open, Some(event.at), "unknown", None);
                }
            }
            EventKind::ToolFinished { result, outcome } => {
                if let Some(open) = state.open.remove(&result.tool_use_id)
                    && let Some(label) = outcome_label(*outcome, result)
                {
                    let output = (*outcome == CallOutcome::Finished).then(|| bytes(result));
                    state.end(open, Some(event.at), label, output);
                }
            }
            _ => return,
        }
        state.emit(key, &self.metrics);
    }
}

impl AuditState {
    /// Finishes the calls that had started and whose end was recorded without a notification, because the journal
    /// failed.
    fn finish_open_calls(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            if open.run != RunState::NotStarted {
                self.end(open, None, "unknown", None);
            }
        }
    }

    fn end(
        &mut self,
        open: AuditedCall,
        ended: Option<Timestamp>,
        outcome: &'static str,
        output: Option<usize>,
    ) {
        self.pending.push(FinishedCall { turn: self.turn, open, ended, outcome, output });
    }

    fn emit(&mut self, key: &SessionKey, metrics: &RuntimeMetrics) {
        let Some(AuditFacts { redactor, sandbox }) = &self.facts else { return };
        for granted in self.granted.drain(..) {
            granted.emit(key, redactor);
        }
        for entry in self.pending.drain(..) {
            let (tool, took) = (&entry.open.call.name, entry.took());
            metrics.tool_call(&key.tenant, tool, entry.outcome, took);
            if tracing::enabled!(target: "conjure::audit", tracing::Level::INFO) {
                entry.emit(key, redactor, sandbox);
            }
        }
    }
}

impl GrantRecord {
    fn emit(self, key: &SessionKey, redactor: &Redactor) {
        let Self { turn, call, grant, at } = self;
        let (id, rule) = (redactor.redact(call.as_str()), redactor.redact(&grant.rule));
        let skill = match &grant.scope {
            GrantScope::Skill(skill) => Some(format!("{}@{}", redactor.redact(&skill.name), skill.digest)),
            _ => None,
        };
        tracing::info!(
            target: "conjure::audit",
            tenant = %key.tenant,
            session = %key.session,
            turn = turn.map(TurnId::number),
            call_id = cut(&id, NAME),
            rule = cut(&rule, INPUT),
            skill,
            granted = %at,
            "a person allowed more than one call"
        );
    }
}

impl FinishedCall {
    /// When the call started, if that is known.
    const fn began(&self) -> Option<Timestamp> {
        match self.open.run {
            RunState::Started(at) => Some(at),
            RunState::NotStarted | RunState::StartedEarlier => None,
        }
    }

    fn took(&self) -> Option<Duration> {
        self.began().zip(self.ended).map(|(began, ended)| ended.duration_since(began))
    }

    fn emit(self, key: &SessionKey, redactor: &Redactor, sandbox: &str) {
        let (began, took) = (self.began(), self.took());
        let Self { turn, open: AuditedCall { call, .. }, outcome, output, .. } = self;
        // Texts that the model chose may contain secrets that were sent to it.
        let id = redactor.redact(call.id.as_str());
        let name = redactor.redact(&call.name);
        let input = redact_json(redactor, call.input.get());
        tracing::info!(
            target: "conjure::audit",
            tenant = %key.tenant,
            session = %key.session,
            turn = turn.map(TurnId::number),
            call_id = cut(&id, NAME),
            tool = cut(&name, NAME),
            input = cut(&input, INPUT),
            sandbox,
            began = began.map(tracing::field::display),
            duration_ms = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            outcome,
            output_bytes = output.map(|bytes| bytes as u64),
            "a tool call ended"
        );
    }
}

/// The label of a call's outcome; `None` if the call neither ran nor was denied.
const fn outcome_label(outcome: CallOutcome, result: &ToolResult) -> Option<&'static str> {
    Some(match (outcome, result.ending) {
        (CallOutcome::Denied, _) => "denied",
        (CallOutcome::Cancelled, _) | (CallOutcome::Finished, ToolEnding::Cancelled) => "cancelled",
        (CallOutcome::Finished, ToolEnding::Rejected) => "rejected",
        (CallOutcome::Finished, ToolEnding::TimedOut) => "timed_out",
        (CallOutcome::Finished, ToolEnding::Lost) => "lost",
        (CallOutcome::Finished, ToolEnding::Crashed) => "crashed",
        (CallOutcome::Finished, _) if result.is_error => "error",
        (CallOutcome::Finished, _) => "ok",
        (CallOutcome::Skipped, _) => return None,
        // Later versions may add variants.
        _ => "unknown",
    })
}

/// The size of a result as the model gets it, in bytes.
fn bytes(result: &ToolResult) -> usize {
    let part = |part: &ResultContent| match part {
        ResultContent::Text { text } => text.len(),
        ResultContent::Image { data, .. } | ResultContent::Document { data, .. } => data.len(),
    };
    result.content.iter().map(part).sum()
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
