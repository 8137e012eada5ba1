//! [`ReplyRouter`]: chooses the reply to a request from faults, scripts and turns, and records the position of each session.
//!
//! See the [module](super) for the rules. Positions are in memory; without them the position is counted in the history.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Digest};
use conjure_conversation::scripted::{Script, ScriptedModel};
use conjure_conversation::{ApiErrorKind, Usage};
use conjure_conversation::{Block, Model as _, ModelError, ModelErrorKind, ModelEvent, Response, StopReason};
use futures_util::StreamExt as _;
use serde_json::json;

use super::compaction::{self, ResponseStart};
use super::refusal::Refusal;
use super::reply::{Reply, ReplyBody};
use super::response_writer::{Ending, FakeResponse};
use super::validate::ValidatedRequest;

/// The most recorded positions. Above it, all are dropped and positions are counted again.
const MAX_POSITIONS: usize = 1 << 20;

/// A source of replies.
#[derive(Debug, Clone)]
pub(super) enum ReplySource {
    Script(Arc<Script>),
    Turns(Arc<[Reply]>),
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
    blocks: usize,
}

impl ReplyRouter {
    pub(super) fn new(
        of_all: Option<ReplySource>,
        of_model: HashMap<String, ReplySource>,
        faults: VecDeque<Reply>,
    ) -> Self {
        Self {
            default_source: of_all,
            sources_by_model: of_model,
            faults: Mutex::new(faults),
            positions: Mutex::default(),
        }
    }

    pub(super) fn add_fault(&self, fault: Reply) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// The reply to a request.
    pub(super) async fn reply(&self, checked: &ValidatedRequest, clock: &Arc<dyn Clock>) -> Reply {
        if let Some(fault) = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            return fault;
        }
        let Some(source) = self.sources_by_model.get(&checked.model).or(self.default_source.as_ref()) else {
            return no_reply_left("the fake was given nothing to say; give it a script or turns");
        };
        let session = Digest::of_bytes(format!("{}\n{}", checked.model, checked.session).as_bytes());
        let here = HistoryPosition { session, blocks: checked.blocks };
        let turn = self.position(here).unwrap_or(checked.answers);
        if let ResponseStart::Paused { messages } = checked.beginning {
            // The turn follows when the request comes back.
            self.set_position(HistoryPosition { blocks: checked.blocks.saturating_add(1), ..here }, turn);
            return answer_reply(compaction::paused(messages));
        }
        let reply = match source {
            ReplySource::Script(script) => script_reply(script, turn, checked, clock).await,
            ReplySource::Turns(turns) => turns.get(turn).cloned().unwrap_or_else(|| {
                no_reply_left(&format!(
                    "there are {} turns, and number {} was asked for",
                    turns.len(),
                    turn + 1
                ))
            }),
        };
        let reply = match checked.beginning {
            ResponseStart::Compacted { messages } => reply.behind_compaction(messages),
            _ => reply,
        };
        // A response is recorded after its blocks. A failure adds none, so it is recorded at its own position.
        let added = if reply.is_answer() { reply.blocks_added() } else { 0 };
        self.set_position(
            HistoryPosition { blocks: checked.blocks.saturating_add(added), ..here },
            turn.saturating_add(1),
        );
        reply
    }

    fn position(&self, place: HistoryPosition) -> Option<usize> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner).get(&place).copied()
    }

    fn set_position(&self, place: HistoryPosition, turn: usize) {
        let mut notes = self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= MAX_POSITIONS {
            notes.clear();
        }
        notes.insert(place, turn);
    }
}

/// The reply when no turn is left: an error that no client repeats.
fn no_reply_left(reason: &str) -> Reply {
    Reply::error(Refusal::invalid(reason)).with_header("x-should-retry", "false")
}

/// The reply of one turn of a script.
async fn script_reply(
    script: &Arc<Script>,
    turn: usize,
    checked: &ValidatedRequest,
    clock: &Arc<dyn Clock>,
) -> Reply {
    let model = ScriptedModel::new(Arc::clone(script)).starting_at(turn).with_clock(Arc::clone(clock));
    let mut events = model.stream(checked.request.clone());
    let mut deltas = Vec::new();
    let mut has_begun = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(ModelEvent::Started) => has_begun = true,
            Ok(ModelEvent::Finished(response)) => {
                let request_id = response.request_id.clone();
                let answer = FakeResponse { deltas, ..FakeResponse::new(*response, 1) };
                return Reply { request_id, ..answer_reply(answer) };
            }
            Ok(delta) => deltas.push(delta),
            Err(error) if has_begun => return broken(deltas, error),
            Err(error) => return failed(error),
        }
    }
    let after = deltas.len();
    answer_reply(FakeResponse { ending: Ending::Cut { after }, ..from_deltas(deltas) })
}

/// A partial response with these deltas.
fn from_deltas(deltas: Vec<ModelEvent>) -> FakeResponse {
    let response = partial_response(&deltas);
    FakeResponse { deltas, ..FakeResponse::new(response, 1) }
}

fn answer_reply(answer: FakeResponse) -> Reply {
    Reply { body: ReplyBody::Answer(Box::new(answer)), ..Reply::hang_up() }
}

/// A reply with an error in the stream.
fn broken(deltas: Vec<ModelEvent>, error: ModelError) -> Reply {
    let after = deltas.len();
    let ending = match error.kind {
        ModelErrorKind::Api(kind) => Ending::Broken { after, refusal: Refusal::new(kind, error.message) },
        _ => Ending::Cut { after },
    };
    let reply = answer_reply(FakeResponse { ending, ..from_deltas(deltas) });
    Reply { request_id: error.request_id, ..reply }
}

/// A reply with an error instead of a response.
fn failed(error: ModelError) -> Reply {
    let reply = match error.kind {
        ModelErrorKind::Api(kind) => Reply::error(Refusal::new(kind, error.message)),
        ModelErrorKind::Connection => Reply::hang_up(),
        ModelErrorKind::Timeout => Reply::silence(),
        ModelErrorKind::Truncated => Reply::raw(200, "text/event-stream; charset=utf-8", ""),
        ModelErrorKind::Protocol => Reply::html(200),
        _ => no_reply_left(&error.message),
    };
    let reply = match error.retry_after {
        Some(wait) => reply
            .with_header("retry-after-ms", wait.as_millis().to_string())
            .with_header("retry-after", rounded_up(wait).to_string()),
        None => reply,
    };
    Reply { request_id: error.request_id, ..reply }
}

pub(super) const fn rounded_up(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(if wait.subsec_nanos() > 0 { 1 } else { 0 })
}

/// The partial response of deltas. A script holds no more about an unfinished response.
fn partial_response(deltas: &[ModelEvent]) -> Response {
    let mut blocks: Vec<serde_json::Value> = Vec::new();
    for delta in deltas {
        let (index, block) = match delta {
            ModelEvent::TextDelta { index, .. } => (*index, json!({"type": "text", "text": ""})),
            ModelEvent::ThinkingDelta { index, .. } => {
                (*index, json!({"type": "thinking", "thinking": "", "signature": ""}))
            }
            ModelEvent::ToolUseStarted { index, name } => (
                *index,
                json!({"type": "tool_use", "id": format!("toolu_cut_{index}"), "name": name, "input": {}}),
            ),
            _ => continue,
        };
        // Blocks without deltas leave gaps, which the stream cannot have.
        while blocks.len() < index {
            blocks.push(json!({"type": "text", "text": ""}));
        }
        if blocks.len() == index {
            blocks.push(block);
        }
    }
    let block = |block: serde_json::Value| Block::from_json(block.to_string()).ok();
    Response {
        id: None,
        model: None,
        content: blocks.into_iter().filter_map(block).collect(),
        stop_reason: StopReason::Missing,
        usage: Usage::default(),
        request_id: None,
        container: None,
        native: None,
    }
}

/// The reply to a key that has reached its rate limit.
pub(super) fn rate_limited(wait: Duration) -> Reply {
    let message = "This request would exceed the rate limit of this key. Please try again later.";
    Reply::error(Refusal::new(ApiErrorKind::RateLimit, message))
        .with_header("retry-after", rounded_up(wait).to_string())
        .with_header("x-should-retry", "true")
}
