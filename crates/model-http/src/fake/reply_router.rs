//! [`ReplyRouter`]: chooses the reply to a request from faults, scripts and turns, and records the position of each session.
//!
//! See the [module](super) for the rules. Recorded positions are in memory. Without one, the router counts the position in the history.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use conjure_base::{Clock, Digest, lock};
use conjure_conversation::scripted::{Script, ScriptedModel};
use conjure_conversation::{Model as _, ModelError, ModelErrorKind, ModelEvent, Request};
use futures_util::StreamExt as _;

use super::reply::{Ending, FakeReply, ReplyBody, WireAnswer, WireError};

/// The maximum number of recorded positions. Above it, all are dropped and positions are counted again.
const MAX_POSITIONS: usize = 1 << 20;

/// A source of replies.
#[derive(Debug, Clone)]
pub enum ReplySource<A, E> {
    /// The turns of this script.
    Script(Arc<Script>),
    /// These turns.
    Turns(Arc<[FakeReply<A, E>]>),
}

/// Chooses replies: faults first, then those of the source.
#[derive(Debug)]
pub struct ReplyRouter<A, E> {
    source: Option<ReplySource<A, E>>,
    faults: Mutex<VecDeque<FakeReply<A, E>>>,
    positions: Mutex<HashMap<HistoryPosition, usize>>,
    clock: Arc<dyn Clock>,
}

/// A position in the history of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HistoryPosition {
    session: Digest,
    index: usize,
}

impl HistoryPosition {
    /// The position of a session with this model after `index` answers, or after `index` blocks of answers.
    #[must_use]
    pub fn new(model: &str, session: &str, index: usize) -> Self {
        Self { session: Digest::of_bytes(format!("{model}\n{session}").as_bytes()), index }
    }

    /// The position that is `more` answers or blocks later.
    #[must_use]
    pub const fn after(self, more: usize) -> Self {
        Self { index: self.index.saturating_add(more), ..self }
    }
}

impl<A: WireAnswer, E: WireError> ReplyRouter<A, E> {
    pub(super) fn new(
        source: Option<ReplySource<A, E>>,
        faults: VecDeque<FakeReply<A, E>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { source, faults: Mutex::new(faults), positions: Mutex::default(), clock }
    }

    pub(super) fn add_fault(&self, fault: FakeReply<A, E>) {
        lock(&self.faults).push_back(fault);
    }

    /// Takes the next fault. Faults are used before scripts and turns.
    pub fn take_fault(&self) -> Option<FakeReply<A, E>> {
        lock(&self.faults).pop_front()
    }

    /// The turn that was recorded at this position.
    pub fn turn_at(&self, position: HistoryPosition) -> Option<usize> {
        lock(&self.positions).get(&position).copied()
    }

    /// Records the turn that follows at this position.
    pub fn record(&self, position: HistoryPosition, turn: usize) {
        let mut positions = lock(&self.positions);
        if positions.len() >= MAX_POSITIONS {
            positions.clear();
        }
        positions.insert(position, turn);
    }

    /// Chooses the reply to a request at this position: a fault, or the next turn. `answers` is the number of answers in the history.
    ///
    /// `next` is the position after a complete answer. A failure adds nothing to a history, so it is recorded at its own position.
    pub async fn reply(
        &self,
        request: Request,
        position: HistoryPosition,
        answers: usize,
        next: impl FnOnce(&A) -> HistoryPosition,
    ) -> FakeReply<A, E> {
        if let Some(fault) = self.take_fault() {
            return fault;
        }
        let turn = self.turn_at(position).unwrap_or(answers);
        let reply = self.reply_for_turn(turn, request).await;
        self.record(reply.complete_answer().map_or(position, next), turn.saturating_add(1));
        reply
    }

    /// The reply for one turn of the source.
    pub async fn reply_for_turn(&self, turn: usize, request: Request) -> FakeReply<A, E> {
        match &self.source {
            None => {
                FakeReply::no_reply_left("the fake has no replies; configure a script or turns".to_owned())
            }
            Some(ReplySource::Script(script)) => self.reply_from_script(script, turn, request).await,
            Some(ReplySource::Turns(turns)) => turns.get(turn).cloned().unwrap_or_else(|| {
                let (count, number) = (turns.len(), turn + 1);
                FakeReply::no_reply_left(format!(
                    "the fake has {count} turns, but turn {number} was requested"
                ))
            }),
        }
    }

    async fn reply_from_script(
        &self,
        script: &Arc<Script>,
        turn: usize,
        request: Request,
    ) -> FakeReply<A, E> {
        let model =
            ScriptedModel::new(Arc::clone(script)).starting_at(turn).with_clock(Arc::clone(&self.clock));
        let mut stream = model.stream(request);
        let (mut events, mut has_started) = (Vec::new(), false);
        while let Some(event) = stream.next().await {
            match event {
                Ok(ModelEvent::Started) => has_started = true,
                Ok(ModelEvent::Finished(response)) => {
                    let request_id = response.request_id.clone();
                    return FakeReply { request_id, ..FakeReply::answer(A::from_turn(*response, events)) };
                }
                Ok(event) => events.push(event),
                Err(error) if has_started => return partial_reply(events, Some(error)),
                Err(error) => return failed(error),
            }
        }
        partial_reply(events, None)
    }
}

/// A reply that stops after these events, with an error of the service or without an end.
fn partial_reply<A: WireAnswer, E: WireError>(
    events: Vec<ModelEvent>,
    error: Option<ModelError>,
) -> FakeReply<A, E> {
    let (answer, after) = A::from_partial(events);
    let request_id = error.as_ref().and_then(|error| error.request_id.clone());
    let ending = match error {
        Some(ModelError { kind: ModelErrorKind::Api(kind), message, .. }) => {
            Ending::Broken { after, error: E::from_kind(kind, message) }
        }
        _ => Ending::Cut { after },
    };
    FakeReply { request_id, ..FakeReply::new(ReplyBody::Answer { answer: Box::new(answer), ending }) }
}

/// A reply with an error in place of an answer.
fn failed<A: WireAnswer, E: WireError>(error: ModelError) -> FakeReply<A, E> {
    let reply = match error.kind {
        ModelErrorKind::Api(kind) => {
            let failure = E::from_kind(kind, error.message);
            let (failure, headers) = match error.retry_after {
                Some(wait) => failure.with_wait(wait),
                None => (failure, Vec::new()),
            };
            FakeReply { headers, ..FakeReply::new(ReplyBody::Error(failure)) }
        }
        ModelErrorKind::Connection => FakeReply::new(ReplyBody::HangUp),
        ModelErrorKind::Timeout => FakeReply::new(ReplyBody::Silence),
        ModelErrorKind::Truncated => FakeReply::raw(200, "text/event-stream", ""),
        ModelErrorKind::Protocol => FakeReply::html(200),
        _ => FakeReply::no_reply_left(error.message),
    };
    FakeReply { request_id: error.request_id, ..reply }
}
