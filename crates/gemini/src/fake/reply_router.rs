//! [`ReplyRouter`]: chooses the reply to a request from faults, scripts and turns, and records the position of each session.
//!
//! See the [module](super) for the rules. Positions are in memory; without them the position is counted in the history.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use conjure_base::{Clock, Digest};
use conjure_conversation::scripted::{Script, ScriptedModel};
use conjure_conversation::{Model as _, ModelError, ModelErrorKind, ModelEvent, Request};
use futures_util::StreamExt as _;

use super::answer_writer::{Ending, FakeAnswer, TOKEN};
use super::refusal::Refusal;
use super::reply::Reply;

/// The most recorded positions. Above it, all are dropped and positions are counted again.
const MAX_POSITIONS: usize = 1 << 20;

/// A source of replies.
#[derive(Debug, Clone)]
pub(super) enum ReplySource {
    Script(Arc<Script>),
    Turns(Arc<[Reply]>),
}

/// A request that is to be answered.
#[derive(Debug)]
pub(super) struct RoutedRequest {
    pub(super) model: String,
    /// What tells sessions apart.
    pub(super) session: String,
    /// The token of an answer that is to be continued. Such an answer is not in the history.
    pub(super) token: Option<String>,
    /// How many contents of the model are in its history.
    pub(super) answers: usize,
    pub(super) request: Request,
}

/// Chooses replies: faults first, then the source of the request's model, then the default source.
#[derive(Debug)]
pub(super) struct ReplyRouter {
    default_source: Option<ReplySource>,
    sources_by_model: HashMap<String, ReplySource>,
    faults: Mutex<VecDeque<Reply>>,
    positions: Mutex<HashMap<HistoryPosition, usize>>,
}

/// A position in the history of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HistoryPosition {
    session: Digest,
    answers: usize,
}

impl ReplyRouter {
    pub(super) fn new(
        default_source: Option<ReplySource>,
        sources_by_model: HashMap<String, ReplySource>,
        faults: VecDeque<Reply>,
    ) -> Self {
        Self { default_source, sources_by_model, faults: Mutex::new(faults), positions: Mutex::default() }
    }

    pub(super) fn add_fault(&self, fault: Reply) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// The reply to a request.
    pub(super) async fn reply(&self, routed: &RoutedRequest, clock: &Arc<dyn Clock>) -> Reply {
        if let Some(fault) = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            return fault;
        }
        let Some(source) = self.sources_by_model.get(&routed.model).or(self.default_source.as_ref()) else {
            return no_reply_left("the fake was given nothing to say; give it a script or turns");
        };
        let position = |token: &str, answers: usize| {
            let session = format!("{token}\n{}\n{}", routed.model, routed.session);
            HistoryPosition { session: Digest::of_bytes(session.as_bytes()), answers }
        };
        let here = position(routed.token.as_deref().unwrap_or_default(), routed.answers);
        let turn = self.position(here).unwrap_or(routed.answers);
        let reply = match source {
            ReplySource::Script(script) => script_reply(script, turn, routed.request.clone(), clock).await,
            ReplySource::Turns(turns) => turns.get(turn).cloned().unwrap_or_else(|| {
                let (count, asked) = (turns.len(), turn + 1);
                no_reply_left(&format!("there are {count} turns, and number {asked} was asked for"))
            }),
        };
        // An answer is one content more. A failure adds none, so it is recorded at its own position.
        let next = match (reply.is_answer(), reply.is_continued()) {
            (true, true) => position(TOKEN, routed.answers),
            (true, false) => position("", routed.answers.saturating_add(1)),
            (false, _) => here,
        };
        self.set_position(next, turn.saturating_add(1));
        reply
    }

    fn position(&self, place: HistoryPosition) -> Option<usize> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner).get(&place).copied()
    }

    fn set_position(&self, place: HistoryPosition, turn: usize) {
        let mut positions = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        if positions.len() >= MAX_POSITIONS {
            positions.clear();
        }
        positions.insert(place, turn);
    }
}

/// The reply when no turn is left: an error that no client repeats.
fn no_reply_left(reason: &str) -> Reply {
    Reply::error(Refusal::invalid(reason))
}

/// The reply of one turn of a script.
async fn script_reply(script: &Arc<Script>, turn: usize, request: Request, clock: &Arc<dyn Clock>) -> Reply {
    let model = ScriptedModel::new(Arc::clone(script)).starting_at(turn).with_clock(Arc::clone(clock));
    let mut events = model.stream(request);
    let mut shown = Vec::new();
    let mut has_begun = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(ModelEvent::Started) => has_begun = true,
            Ok(ModelEvent::Finished(response)) => return Reply::answer(*response),
            Ok(event) => shown.push(event),
            Err(error) if has_begun => return broken(&shown, error),
            Err(error) => return failed(error),
        }
    }
    Reply::of_answer(FakeAnswer::of_events(&shown, Ending::Cut { after: usize::MAX }))
}

/// A reply with an error in the stream.
fn broken(shown: &[ModelEvent], error: ModelError) -> Reply {
    let after = usize::MAX;
    let ending = match error.kind {
        ModelErrorKind::Api(kind) => Ending::Broken { after, refusal: Refusal::new(kind, error.message) },
        _ => Ending::Cut { after },
    };
    Reply::of_answer(FakeAnswer::of_events(shown, ending))
}

/// A reply with an error instead of an answer.
fn failed(error: ModelError) -> Reply {
    match error.kind {
        ModelErrorKind::Api(kind) => {
            let refusal = Refusal::new(kind, error.message);
            Reply::error(match error.retry_after {
                Some(wait) => refusal.with_retry_delay(wait),
                None => refusal,
            })
        }
        ModelErrorKind::Connection => Reply::hang_up(),
        ModelErrorKind::Timeout => Reply::silence(),
        ModelErrorKind::Truncated => Reply::raw(200, "text/event-stream", ""),
        ModelErrorKind::Protocol => Reply::html(200),
        _ => no_reply_left(&error.message),
    }
}
