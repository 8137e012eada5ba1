//! A fork: the events of a session up to a message, as the beginning of a session of its own.
//!
//! The function is pure. It reads the original's events, and adds one that names the original.

use conjure_base::{SessionId, Timestamp};

use crate::content::block::Block;
use crate::events::event::{Event, EventKind};
use crate::state::apply::apply;
use crate::state::session_state::SessionState;

/// The note to the model of a fork that had a container of its service.
const FRESH_CONTAINER: &str = "[This conversation was copied, and goes on in a fresh container of the service: files that were made in the \
    former one are not in it.]";

/// The point of a session at which its fork begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ForkPoint {
    /// After all events.
    #[default]
    End,
    /// Before the last turn that began with a message of the user. The fork may then begin with another message.
    BeforeLastMessage,
    /// Before the event with this sequence number ([`SessionEvent::seq`](crate::SessionEvent::seq)). No turn may be running there.
    Before(u64),
}

/// Why a session cannot be forked at a point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// A turn of the original runs, waits for a person, or was left unfinished.
    #[error("a turn of the session is under way; wait for its end, or interrupt it")]
    TurnRunning,
    /// No turn of the session began with a message of the user.
    #[error("no turn of the session began with a message")]
    NoMessage,
    /// The session has fewer events, or the fork would have none.
    #[error(
        "the session has {events} events, so it can be forked before event 1 to {events}, and not before {at}"
    )]
    OutOfRange {
        /// The requested sequence number.
        at: u64,
        /// How many events there are.
        events: u64,
    },
    /// The point lies in the middle of a turn, so a fork would have half a response.
    #[error(
        "event {at} is in the middle of a turn; fork before event {start}, where it began, or before event {end}, after its end"
    )]
    WithinTurn {
        /// The requested sequence number.
        at: u64,
        /// The sequence number of the turn's first event.
        start: u64,
        /// The sequence number after its last event.
        end: u64,
    },
}

/// The events of a fork of a session with these events: those up to the fork point, and one that names the original
/// ([`EventKind::Forked`]).
///
/// The fork begins idle, with an empty queue and without a container of the model's service. Its usage so far is that of its
/// events. Files that the service made, and uploads to it, belong to the original.
///
/// # Errors
/// When a turn is running, or there is no such point.
pub fn fork_events(
    original: SessionId,
    events: &[Event],
    point: ForkPoint,
    now: Timestamp,
) -> Result<Vec<Event>, ForkError> {
    let turns = find_turns(events)?;
    let count = events.len() as u64;
    let at = match point {
        ForkPoint::End => count,
        ForkPoint::BeforeLastMessage => {
            turns.iter().rev().find(|turn| turn.has_input).ok_or(ForkError::NoMessage)?.start
        }
        ForkPoint::Before(at) => at,
    };
    if at == 0 || at > count {
        return Err(ForkError::OutOfRange { at, events: count });
    }
    if let Some(turn) = turns.iter().find(|turn| turn.start < at && at < turn.end) {
        return Err(ForkError::WithinTurn { at, start: turn.start, end: turn.end });
    }
    let kept = usize::try_from(at).unwrap_or(usize::MAX).min(events.len());
    let mut events = events[..kept].to_vec();
    let mut state = SessionState::default();
    for event in &events {
        apply(&mut state, event);
    }
    let note = state.container.is_some().then(|| Block::text(FRESH_CONTAINER));
    events.push(Event { at: now, kind: EventKind::Forked { from: original, events: at, note } });
    Ok(events)
}

/// A finished turn of an event log.
struct RecordedTurn {
    start: u64,
    /// The sequence number after its last event.
    end: u64,
    /// Whether it began with a message.
    has_input: bool,
}

/// The turns of an event log, all of which must be finished.
fn find_turns(events: &[Event]) -> Result<Vec<RecordedTurn>, ForkError> {
    let (mut turns, mut open) = (Vec::new(), None);
    for (seq, event) in (0..).zip(events) {
        match &event.kind {
            EventKind::TurnStarted { input, .. } => open = Some((seq, !input.is_empty())),
            EventKind::TurnFinished { .. } => {
                let finished = open.take();
                turns.extend(finished.map(|(start, has_input)| RecordedTurn {
                    start,
                    end: seq + 1,
                    has_input,
                }));
            }
            _ => {}
        }
    }
    if open.is_some() { Err(ForkError::TurnRunning) } else { Ok(turns) }
}
