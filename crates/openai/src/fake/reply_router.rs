//! [`ReplyRouter`]: chooses the reply to a request from faults, scripts and turns. See the [module](super) for the rules.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use conjure_base::{Clock, Digest, lock};
use conjure_conversation::scripted::{Script, ScriptedModel};
use conjure_conversation::{Model as _, ModelError, ModelErrorKind, ModelEvent};
use futures_util::StreamExt as _;

use super::error::FakeError;
use super::reply::{Reply, ReplyBody};
use super::validated::ValidatedRequest;

/// The most recorded positions. Above it, all are dropped and positions are counted again.
const MAX_POSITIONS: usize = 1 << 20;

/// A source of replies.
#[derive(Debug, Clone)]
pub(super) enum ReplySource {
    Script(Arc<Script>),
    Turns(Arc<[Reply]>),
}

/// Chooses replies: faults first, then the source.
#[derive(Debug)]
pub(super) struct ReplyRouter {
    source: Option<ReplySource>,
    faults: Mutex<VecDeque<Reply>>,
    /// The next turn of a session, by the number of answers in its history.
    positions: Mutex<HashMap<(Digest, usize), usize>>,
}

impl ReplyRouter {
    pub(super) fn new(source: Option<ReplySource>, faults: VecDeque<Reply>) -> Self {
        Self { source, faults: Mutex::new(faults), positions: Mutex::default() }
    }

    pub(super) fn add_fault(&self, fault: Reply) {
        lock(&self.faults).push_back(fault);
    }

    /// The reply to a request.
    pub(super) async fn reply(&self, request: &ValidatedRequest, clock: &Arc<dyn Clock>) -> Reply {
        if let Some(fault) = lock(&self.faults).pop_front() {
            return fault;
        }
        let Some(source) = &self.source else {
            return no_reply_left("the fake was given nothing to say; give it a script or turns");
        };
        let session = Digest::of_bytes(format!("{}\n{}", request.model, request.session).as_bytes());
        let known = lock(&self.positions).get(&(session, request.answers)).copied();
        let turn = known.unwrap_or(request.answers);
        let reply = match source {
            ReplySource::Script(script) => script_reply(script, turn, request, clock).await,
            ReplySource::Turns(turns) => turns.get(turn).cloned().unwrap_or_else(|| {
                no_reply_left(&format!(
                    "there are {} turns, and number {} was asked for",
                    turns.len(),
                    turn + 1
                ))
            }),
        };
        let mut positions = lock(&self.positions);
        if positions.len() >= MAX_POSITIONS {
            positions.clear();
        }
        // A failure adds no answer, so it is recorded at its own position.
        positions.insert((session, request.answers + usize::from(reply.is_answer())), turn + 1);
        reply
    }
}

/// The reply when no turn is left: an error that no client repeats.
fn no_reply_left(reason: &str) -> Reply {
    Reply::error(FakeError::invalid(reason)).with_header("x-should-retry", "false")
}

/// The reply of one turn of a script.
async fn script_reply(
    script: &Arc<Script>,
    turn: usize,
    request: &ValidatedRequest,
    clock: &Arc<dyn Clock>,
) -> Reply {
    let model = ScriptedModel::new(Arc::clone(script)).starting_at(turn).with_clock(Arc::clone(clock));
    let mut events = model.stream(request.request.clone());
    let mut has_begun = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(ModelEvent::Finished(response)) => return Reply::answer(*response),
            Ok(ModelEvent::Started) => has_begun = true,
            Ok(_) => {}
            Err(error) if has_begun => {
                let begun = Reply::blocks(vec![conjure_conversation::Block::text("It began")]);
                return match error.kind {
                    ModelErrorKind::Api(kind) => {
                        begun.broken_after_events(3, FakeError::new(&kind, error.message))
                    }
                    _ => begun.cut_after_events(3),
                };
            }
            Err(error) => return failed(error),
        }
    }
    Reply::blocks(vec![conjure_conversation::Block::text("It began")]).cut_after_events(3)
}

/// A reply with an error instead of an answer.
fn failed(error: ModelError) -> Reply {
    let reply = match error.kind {
        ModelErrorKind::Api(kind) => Reply::error(FakeError::new(&kind, error.message)),
        ModelErrorKind::Connection => Reply::hang_up(),
        ModelErrorKind::Timeout => Reply::new(ReplyBody::Silence),
        ModelErrorKind::Truncated => Reply::stream(""),
        _ => no_reply_left(&error.message),
    };
    match error.retry_after {
        Some(wait) => reply.with_header("retry-after-ms", wait.as_millis().to_string()),
        None => reply,
    }
}
