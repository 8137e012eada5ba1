//! The audit log (specification 15): one event of `tracing` for each tool call of a session that ran or was denied, under the
//! target `conjure::audit`; and one for each grant, which lets later calls run without a question.
//!
//! It follows the record: a call is told of when its end is recorded, so each is told of once, whatever ended it, a panic, a
//! cancellation or a crash of the host; then the next incarnation of the session records that its outcome is unknown, and tells
//! so. A call that never ran is not told of. State: the calls of the last answer, in memory. After a crash of the host the
//! conversation has them; when they had begun is not known any more, and one whose end was recorded in the moment of the crash
//! is told of by the record alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_base::{CallId, Redactor, Timestamp, TurnId};
use conjure_conversation::{
    Block, CallStatus, Decision, Event, EventKind, Grant, GrantScope, ResultContent, State, ToolCall,
    ToolEnding, ToolOutcome, ToolResult,
};
use conjure_journal::SessionKey;
use conjure_sandbox::{Boundary, Executor};

use super::redaction::redact_json;
use crate::metrics::Meter;

/// Bytes of an input, and of a name, that are told.
const INPUT: usize = 2_048;
const NAME: usize = 128;

/// The audit log of one session.
pub(crate) struct Audit {
    meter: Meter,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    turn: Option<TurnId>,
    /// The calls without a result.
    open: BTreeMap<CallId, Open>,
    /// Told of as soon as it is known what must not leave.
    pending: Vec<Entry>,
    granted: Vec<Granted>,
    fittings: Option<Fittings>,
}

/// What is known when the session's parts are made.
struct Fittings {
    /// Of the tools: it learns what they learn.
    redactor: Redactor,
    sandbox: &'static str,
}

struct Open {
    call: ToolCall,
    run: Run,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    NotBegun,
    Begun(Timestamp),
    /// Before the session was loaded.
    BegunBefore,
}

/// What a person allowed beyond one call.
struct Granted {
    turn: Option<TurnId>,
    call: CallId,
    grant: Grant,
    at: Timestamp,
}

/// A call that has ended.
struct Entry {
    turn: Option<TurnId>,
    open: Open,
    ended: Option<Timestamp>,
    outcome: &'static str,
    output: Option<usize>,
}

impl Audit {
    /// An empty one; what it tells of is counted, too.
    pub(crate) fn counted_by(meter: Meter) -> Self {
        Self { meter, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The conversation was read from the record, and goes on from there.
    pub(crate) fn loaded(&self, state: &State) {
        let mut book = self.book();
        let mut known = std::mem::take(&mut book.open);
        for open in state.open_calls() {
            let before = known.remove(&open.call.id).map_or(Run::NotBegun, |known| known.run);
            let run = match (&open.status, before) {
                (CallStatus::Finished(result), Run::Begun(_)) => {
                    // Its end was recorded when this was not told any more.
                    let open = Open { call: open.call.clone(), run: before };
                    let how = how(ToolOutcome::Finished, result).unwrap_or("unknown");
                    book.end(open, None, how, Some(bytes(result)));
                    continue;
                }
                (CallStatus::Finished(_), _) => continue,
                (CallStatus::Started { .. }, Run::NotBegun) => Run::BegunBefore,
                _ => before,
            };
            book.open.insert(open.call.id.clone(), Open { call: open.call.clone(), run });
        }
        for (_, open) in known {
            if open.run != Run::NotBegun {
                book.end(open, None, "unknown", None);
            }
        }
        book.turn = state.turn().map(conjure_conversation::Turn::id);
    }

    /// The session's parts are made.
    pub(crate) fn fitted(&self, key: &SessionKey, redactor: &Redactor, executor: Option<&dyn Executor>) {
        let sandbox = match executor.map(Executor::isolation) {
            None => "none",
            Some(isolation) if isolation.filesystem == Boundary::Enforced => "isolated",
            Some(_) => "open",
        };
        let mut book = self.book();
        book.fittings = Some(Fittings { redactor: redactor.clone(), sandbox });
        book.tell(key, &self.meter);
    }

    /// This was recorded.
    pub(crate) fn recorded(&self, key: &SessionKey, event: &Event) {
        let mut book = self.book();
        match &event.kind {
            EventKind::TurnStarted { turn, .. } => book.turn = Some(*turn),
            EventKind::ModelAnswered { response, .. } => {
                book.forget();
                let calls = response.content.iter().filter_map(Block::tool_call);
                let open =
                    |call: &ToolCall| (call.id.clone(), Open { call: call.clone(), run: Run::NotBegun });
                book.open = calls.map(open).collect();
            }
            EventKind::TurnFinished { .. } => book.forget(),
            EventKind::ToolStarted { call, .. } => {
                if let Some(open) = book.open.get_mut(call) {
                    open.run = Run::Begun(event.at);
                }
            }
            EventKind::ApprovalDecided { call, decision: Decision::Grant { grant } } => {
                let (turn, call, grant) = (book.turn, call.clone(), grant.clone());
                book.granted.push(Granted { turn, call, grant, at: event.at });
            }
            EventKind::ToolAbandoned { call } => {
                // It ran, and will run again.
                if let Some(open) = book.open.get_mut(call) {
                    let run = std::mem::replace(&mut open.run, Run::NotBegun);
                    let open = Open { call: open.call.clone(), run };
                    book.end(open, Some(event.at), "unknown", None);
                }
            }
            EventKind::ToolFinished { result, outcome } => {
                if let Some(open) = book.open.remove(&result.tool_use_id)
                    && let Some(how) = how(*outcome, result)
                {
                    let output = (*outcome == ToolOutcome::Finished).then(|| bytes(result));
                    book.end(open, Some(event.at), how, output);
                }
            }
            _ => return,
        }
        book.tell(key, &self.meter);
    }
}

impl Book {
    /// What has begun has ended, and that was recorded when nobody could be told, as the journal failed.
    fn forget(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            if open.run != Run::NotBegun {
                self.end(open, None, "unknown", None);
            }
        }
    }

    fn end(&mut self, open: Open, ended: Option<Timestamp>, outcome: &'static str, output: Option<usize>) {
        self.pending.push(Entry { turn: self.turn, open, ended, outcome, output });
    }

    fn tell(&mut self, key: &SessionKey, meter: &Meter) {
        let Some(Fittings { redactor, sandbox }) = &self.fittings else { return };
        for granted in self.granted.drain(..) {
            granted.tell(key, redactor);
        }
        for entry in self.pending.drain(..) {
            let (tool, took) = (&entry.open.call.name, entry.took());
            meter.tool_call(&key.tenant, tool, entry.outcome, took);
            if tracing::enabled!(target: "conjure::audit", tracing::Level::INFO) {
                entry.tell(key, redactor, sandbox);
            }
        }
    }
}

impl Granted {
    fn tell(self, key: &SessionKey, redactor: &Redactor) {
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

impl Entry {
    /// When it began, where that is known.
    const fn began(&self) -> Option<Timestamp> {
        match self.open.run {
            Run::Begun(at) => Some(at),
            Run::NotBegun | Run::BegunBefore => None,
        }
    }

    fn took(&self) -> Option<Duration> {
        self.began().zip(self.ended).map(|(began, ended)| ended.since(began))
    }

    fn tell(self, key: &SessionKey, redactor: &Redactor, sandbox: &str) {
        let (began, took) = (self.began(), self.took());
        let Self { turn, open: Open { call, .. }, outcome, output, .. } = self;
        // What the model chose may hold what it was told.
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

/// How a call ended; `None` when it never ran and nobody denied it.
const fn how(outcome: ToolOutcome, result: &ToolResult) -> Option<&'static str> {
    Some(match (outcome, result.ending) {
        (ToolOutcome::Denied, _) => "denied",
        (ToolOutcome::Cancelled, _) | (ToolOutcome::Finished, ToolEnding::Cancelled) => "cancelled",
        (ToolOutcome::Finished, ToolEnding::Rejected) => "rejected",
        (ToolOutcome::Finished, ToolEnding::TimedOut) => "timed_out",
        (ToolOutcome::Finished, ToolEnding::Lost) => "lost",
        (ToolOutcome::Finished, ToolEnding::Crashed) => "crashed",
        (ToolOutcome::Finished, _) if result.is_error => "error",
        (ToolOutcome::Finished, _) => "ok",
        (ToolOutcome::NotRun, _) => return None,
        // What a later version may add is not known here.
        _ => "unknown",
    })
}

/// How much of a result the model is told.
fn bytes(result: &ToolResult) -> usize {
    let part = |part: &ResultContent| match part {
        ResultContent::Text { text } => text.len(),
        ResultContent::Image { data, .. } => data.len(),
    };
    result.content.iter().map(part).sum()
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
