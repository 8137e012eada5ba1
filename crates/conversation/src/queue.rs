//! The durable queue: what the user said while a turn ran, to be turns of their own, first in, first out.
//!
//! It is a part of the state, so it survives whoever holds it; a turn takes its input out of it by the event that starts
//! the turn. It is bounded: what does not fit is refused, and said to whoever sent it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::apply::next_turn;
use crate::command::Rejection;
use crate::content::Block;
use crate::event::EventKind;
use crate::limits::Limits;
use crate::machine::user_input;
use crate::state::State;

/// How many inputs may wait for their turn.
pub const QUEUE_LIMIT: usize = 64;

/// Which input of a session's queue: they are counted from 1, also those that are no longer in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueId(u64);

impl QueueId {
    /// Its place among all that were ever queued, from 1.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An input that waits for its turn.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedInput {
    /// Which.
    pub id: QueueId,
    /// What the user said.
    pub input: Vec<Block>,
    /// What its turn may consume, where that was said.
    pub limits: Option<Limits>,
}

pub(crate) fn queue(
    state: &State,
    input: Vec<Block>,
    limits: Option<Limits>,
) -> Result<Vec<EventKind>, Rejection> {
    let input = user_input(input)?;
    if input.is_empty() {
        return Err(Rejection::EmptyInput);
    }
    if state.queue.len() >= QUEUE_LIMIT {
        return Err(Rejection::QueueFull { limit: QUEUE_LIMIT });
    }
    Ok(vec![EventKind::Queued { id: state.last_queued.next(), input, limits }])
}

pub(crate) fn start_queued(state: &State, limits: Limits) -> Result<Vec<EventKind>, Rejection> {
    if state.turn.is_some() {
        return Err(Rejection::TurnRunning);
    }
    let first = state.queue.front().ok_or(Rejection::QueueEmpty)?;
    let (input, queued) = (first.input.clone(), Some(first.id));
    let limits = first.limits.clone().unwrap_or(limits);
    Ok(vec![EventKind::TurnStarted { turn: next_turn(state), input, limits, queued }])
}

pub(crate) fn unqueue(state: &State, id: QueueId) -> Result<Vec<EventKind>, Rejection> {
    if state.queue.iter().any(|queued| queued.id == id) {
        Ok(vec![EventKind::Unqueued { id }])
    } else {
        Err(Rejection::NotQueued { id })
    }
}
