//! The durable queue of a session: inputs of the user that wait for a turn of their own, first in, first out.
//! The queue is part of the state, so it survives a restart. The event that starts a turn removes the turn's input from the queue. The
//! queue is bounded: an input that does not fit is rejected.

use std::fmt;

use conjure_base::Timestamp;
use serde::{Deserialize, Serialize};

use crate::apply::next_turn;
use crate::block::Block;
use crate::command::Rejection;
use crate::event::EventKind;
use crate::limits::Limits;
use crate::machine::user_input;
use crate::session_state::SessionState;

/// The most inputs that may wait for their turn.
pub const QUEUE_LIMIT: usize = 64;

/// The id of a queued input. Ids count from 1 and are never reused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QueueId(u64);

impl QueueId {
    /// Its number, from 1.
    #[must_use]
    pub const fn get(self) -> u64 {
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
    /// When it was queued.
    pub at: Timestamp,
    /// What the user said.
    pub input: Vec<Block>,
    /// The limits of its turn, if the sender set any.
    pub limits: Option<Limits>,
}

pub(crate) fn queue(
    state: &SessionState,
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

pub(crate) fn start_queued(state: &SessionState, limits: Limits) -> Result<Vec<EventKind>, Rejection> {
    if state.turn.is_some() {
        return Err(Rejection::TurnRunning);
    }
    let first = state.queue.front().ok_or(Rejection::QueueEmpty)?;
    let limits = first.limits.clone().unwrap_or(limits);
    Ok(vec![EventKind::TurnStarted {
        turn: next_turn(state),
        input: first.input.clone(),
        limits,
        queued: Some(first.id),
        queued_at: Some(first.at),
    }])
}

pub(crate) fn unqueue(state: &SessionState, id: QueueId) -> Result<Vec<EventKind>, Rejection> {
    if state.queue.iter().any(|queued| queued.id == id) {
        Ok(vec![EventKind::Unqueued { id }])
    } else {
        Err(Rejection::NotQueued { id })
    }
}
