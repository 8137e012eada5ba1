//! The overview of a session for lists: a projection of its events that is stored with each append.
//!
//! It is computed before the events are recorded, from the earlier state and the events. It needs the history only for the rare
//! events that change old messages. Otherwise the work does not depend on the history's length.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use conjure_base::TurnId;
use serde::{Deserialize, Serialize};

use crate::content::message::Role;
use crate::events::event::{Event, EventKind};
use crate::events::turn_stop::TurnStop;
use crate::machine::{Step, next};
use crate::model::{ModelErrorKind, Usage};
use crate::session::queue::QueuedInput;
use crate::state::apply::apply;
use crate::state::session_state::SessionState;

/// The longest text of an overview, in characters.
const MAX_TEXT_CHARS: usize = 512;

/// The status of a session in its overview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverviewStatus {
    /// It waits for an input.
    #[default]
    Idle,
    /// A turn is running, or an input in the queue may start one. If no process drives it, it must be resumed.
    Running,
    /// Its turn waits for an action from outside.
    AwaitingAction,
}

/// The overview of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionOverview {
    /// Its status.
    pub status: OverviewStatus,
    /// The running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The number of turns, including a running one.
    pub turns: u64,
    /// The number of inputs in the queue.
    #[serde(default)]
    pub queued: usize,
    /// How the last finished turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_stop: Option<TurnStop>,
    /// The beginning of the text of the last response.
    #[serde(default)]
    pub last_text: TextHead,
    /// The usage of all model calls.
    pub usage: Usage,
    /// The name of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The embedder's metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// A text, or its beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextHead {
    /// The text.
    pub text: String,
    /// Whether the end is missing.
    #[serde(rename = "is_cut", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_truncated: bool,
}

impl TextHead {
    fn new(mut text: String) -> Self {
        let end = text.char_indices().nth(MAX_TEXT_CHARS).map(|(end, _)| end);
        if let Some(end) = end {
            text.truncate(end);
        }
        Self { text, is_truncated: end.is_some() }
    }
}

impl SessionOverview {
    /// The overview of a session in this state.
    #[must_use]
    pub fn of(state: &SessionState) -> Self {
        let (turn, last, profile) = (state.turn(), state.last_turn(), state.profile());
        let turns = turn.map(|turn| turn.id()).or(last.map(|last| last.turn)).map_or(0, TurnId::number);
        // What the service did in the last turn is not known. So a person must look before the next input is taken.
        let is_held = matches!(last.map(|last| &last.stop), Some(TurnStop::ModelFailed(error))
            if error.kind == ModelErrorKind::OutcomeUnknown);
        Self {
            status: match next(state) {
                Step::Idle if state.queue().len() == 0 || is_held => OverviewStatus::Idle,
                Step::AwaitAction => OverviewStatus::AwaitingAction,
                _ => OverviewStatus::Running,
            },
            turn: turn.map(|turn| turn.id()),
            turns,
            queued: state.queue().len(),
            last_stop: last.map(|last| last.stop.clone()),
            last_text: TextHead::new(state.last_text()),
            usage: *state.usage(),
            model: profile.and_then(|profile| profile.model.clone()),
            title: profile.and_then(|profile| profile.title.clone()),
            metadata: profile.map(|profile| profile.metadata.clone()).unwrap_or_default(),
        }
    }

    /// The overview of a session that was in this state before these events.
    #[must_use]
    pub fn after(state: &SessionState, events: &[Event]) -> Self {
        // These events name messages by their position, so they need the history. They are rare.
        let changes_history = |event: &Event| {
            matches!(event.kind, EventKind::BlockReplaced { .. } | EventKind::Compacted { .. })
        };
        let mut after =
            if events.iter().any(changes_history) { state.clone() } else { without_history(state) };
        for event in events {
            apply(&mut after, event);
        }
        Self::of(&after)
    }
}

/// The state without what an overview does not show. Of the history it keeps only the last response and the last message.
fn without_history(state: &SessionState) -> SessionState {
    let SessionState { messages, queue, turn, .. } = state;
    let last = messages.last();
    let response = messages.iter().rev().find(|message| message.role == Role::Assistant);
    let response = response.filter(|response| !last.is_some_and(|last| Arc::ptr_eq(last, response)));
    let queue: VecDeque<QueuedInput> = queue
        .iter()
        .map(|queued| QueuedInput { id: queued.id, at: queued.at, input: Vec::new(), limits: None })
        .collect();
    SessionState {
        profile: state.profile.clone(),
        messages: response.into_iter().chain(last).cloned().collect(),
        last_message: state.last_message,
        steering: state.steering.clone(),
        queue,
        turn: turn.clone(),
        last: state.last.clone(),
        usage: state.usage,
        call_ids: HashSet::new(),
        answers: HashMap::new(),
        ..SessionState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let head = TextHead::new("ü".repeat(MAX_TEXT_CHARS + 1));
        assert_eq!((head.text.chars().count(), head.is_truncated), (MAX_TEXT_CHARS, true));
        let whole = TextHead::new("ü".repeat(MAX_TEXT_CHARS));
        assert_eq!((whole.text.chars().count(), whole.is_truncated), (MAX_TEXT_CHARS, false));
    }

    #[test]
    fn the_stored_form_stays_as_it_is() {
        let overview = SessionOverview {
            status: OverviewStatus::AwaitingAction,
            turn: Some(TurnId::FIRST.next()),
            turns: 2,
            queued: 1,
            last_stop: Some(TurnStop::Refused),
            last_text: TextHead { text: "hello".to_owned(), is_truncated: true },
            usage: Usage { input_tokens: 5, ..Usage::default() },
            model: Some("scripted".to_owned()),
            title: Some("A title".to_owned()),
            metadata: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
        };
        let stored = serde_json::to_string(&overview).unwrap();
        assert_eq!(serde_json::from_str::<SessionOverview>(&stored).unwrap(), overview);
        let golden = r#"{"status":"awaiting_action","turn":2,"turns":2,"queued":1,"last_stop":"refused","last_text":{"text":"hello","is_cut":true},"usage":{"input_tokens":5,"output_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cost_micros":0},"model":"scripted","title":"A title","metadata":{"key":"value"}}"#;
        assert_eq!(stored, golden);
    }
}
