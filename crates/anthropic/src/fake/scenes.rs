//! Which turn answers a request: scripts and turns, and the notes of where each session stands in them.
//!
//! See the [module](super) for the rule. The notes are in memory and end with the fake; without them the place is
//! counted in the history.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Clock, Digest};
use conjure_conversation::scripted::{Script, ScriptedModel};
use conjure_conversation::{ApiErrorKind, Usage};
use conjure_conversation::{Block, Model as _, ModelError, ModelErrorKind, ModelEvent, Response, StopReason};
use futures_util::StreamExt as _;
use serde_json::json;

use super::check::Checked;
use super::compaction::{self, Beginning};
use super::refusal::Refusal;
use super::reply::{Reply, Said};
use super::stream::{Answer, Ending};

/// The most notes that are kept; when there are more, all are forgotten, and places are counted.
const MOST_NOTES: usize = 1 << 20;

/// What plays.
#[derive(Debug, Clone)]
pub(super) enum Play {
    Script(Arc<Script>),
    Turns(Arc<[Reply]>),
}

/// What answers: faults first, then the play of the request's model, then the play for all models.
#[derive(Debug)]
pub(super) struct Scenes {
    of_all: Option<Play>,
    of_model: HashMap<String, Play>,
    faults: Mutex<VecDeque<Reply>>,
    notes: Mutex<HashMap<Place, usize>>,
}

/// A place in the history of a session that plays something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    session: Digest,
    blocks: usize,
}

impl Scenes {
    pub(super) fn new(
        of_all: Option<Play>,
        of_model: HashMap<String, Play>,
        faults: VecDeque<Reply>,
    ) -> Self {
        Self { of_all, of_model, faults: Mutex::new(faults), notes: Mutex::default() }
    }

    pub(super) fn add_fault(&self, fault: Reply) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// The reply to a request.
    pub(super) async fn reply(&self, checked: &Checked, clock: &Arc<dyn Clock>) -> Reply {
        if let Some(fault) = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop_front() {
            return fault;
        }
        let Some(play) = self.of_model.get(&checked.model).or(self.of_all.as_ref()) else {
            return at_end("the fake was given nothing to say; give it a script or turns");
        };
        let session = Digest::of(format!("{}\n{}", checked.model, checked.session).as_bytes());
        let here = Place { session, blocks: checked.blocks };
        let turn = self.note(here).unwrap_or(checked.answers);
        if let Beginning::Paused { messages } = checked.beginning {
            // The play goes on when it comes back.
            self.set_note(Place { blocks: checked.blocks.saturating_add(1), ..here }, turn);
            return saying(compaction::paused(messages));
        }
        let reply = match play {
            Play::Script(script) => of_script(script, turn, checked, clock).await,
            Play::Turns(turns) => turns.get(turn).cloned().unwrap_or_else(|| {
                at_end(&format!("there are {} turns, and number {} was asked for", turns.len(), turn + 1))
            }),
        };
        let reply = match checked.beginning {
            Beginning::Compacted { messages } => reply.behind_compaction(messages),
            _ => reply,
        };
        // An answer is found again behind its blocks; a failure leaves none, so it is noted where it happened.
        let added = if reply.is_answer() { reply.blocks_added() } else { 0 };
        self.set_note(Place { blocks: checked.blocks.saturating_add(added), ..here }, turn.saturating_add(1));
        reply
    }

    fn note(&self, place: Place) -> Option<usize> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).get(&place).copied()
    }

    fn set_note(&self, place: Place, turn: usize) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() >= MOST_NOTES {
            notes.clear();
        }
        notes.insert(place, turn);
    }
}

/// What is said when nothing is left to be said: an error that no client repeats.
fn at_end(reason: &str) -> Reply {
    Reply::error(Refusal::invalid(reason)).with_header("x-should-retry", "false")
}

/// Plays one turn of a script.
async fn of_script(script: &Arc<Script>, turn: usize, checked: &Checked, clock: &Arc<dyn Clock>) -> Reply {
    let model = ScriptedModel::new(Arc::clone(script)).starting_at(turn).with_clock(Arc::clone(clock));
    let mut events = model.stream(checked.request.clone());
    let mut deltas = Vec::new();
    let mut has_begun = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(ModelEvent::Started) => has_begun = true,
            Ok(ModelEvent::Finished(response)) => {
                let request_id = response.request_id.clone();
                let answer = Answer { deltas, ..Answer::new(*response, 1) };
                return Reply { request_id, ..saying(answer) };
            }
            Ok(delta) => deltas.push(delta),
            Err(error) if has_begun => return broken(deltas, error),
            Err(error) => return failed(error),
        }
    }
    let after = deltas.len();
    saying(Answer { ending: Ending::Cut { after }, ..of_deltas(deltas) })
}

/// As much of an answer as was said.
fn of_deltas(deltas: Vec<ModelEvent>) -> Answer {
    let response = heard(&deltas);
    Answer { deltas, ..Answer::new(response, 1) }
}

fn saying(answer: Answer) -> Reply {
    Reply { said: Said::Answer(Box::new(answer)), ..Reply::hang_up() }
}

/// An error in mid-stream.
fn broken(deltas: Vec<ModelEvent>, error: ModelError) -> Reply {
    let after = deltas.len();
    let ending = match error.kind {
        ModelErrorKind::Api(kind) => Ending::Broken { after, refusal: Refusal::new(kind, error.message) },
        _ => Ending::Cut { after },
    };
    let reply = saying(Answer { ending, ..of_deltas(deltas) });
    Reply { request_id: error.request_id, ..reply }
}

/// An error instead of an answer.
fn failed(error: ModelError) -> Reply {
    let reply = match error.kind {
        ModelErrorKind::Api(kind) => Reply::error(Refusal::new(kind, error.message)),
        ModelErrorKind::Connection => Reply::hang_up(),
        ModelErrorKind::Timeout => Reply::silence(),
        ModelErrorKind::Truncated => Reply::raw(200, "text/event-stream; charset=utf-8", ""),
        ModelErrorKind::Protocol => Reply::html(200),
        _ => at_end(&error.message),
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

/// As much of an answer as its deltas tell: a script does not say more of one that is never finished.
fn heard(deltas: &[ModelEvent]) -> Response {
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
    }
}

/// The reply to a key that has used its window up.
pub(super) fn rate_limited(wait: Duration) -> Reply {
    let message = "This request would exceed the rate limit of this key. Please try again later.";
    Reply::error(Refusal::new(ApiErrorKind::RateLimit, message))
        .with_header("retry-after", rounded_up(wait).to_string())
        .with_header("x-should-retry", "true")
}
