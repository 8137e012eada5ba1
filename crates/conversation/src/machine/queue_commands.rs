//! The commands on the queue of a session: the events when an input is queued, started or removed.

use super::checks::user_input;
use crate::content::block::Block;
use crate::events::event::EventKind;
use crate::machine::command::Rejection;
use crate::session::queue::{QUEUE_LIMIT, QueueId};
use crate::state::apply::next_turn;
use crate::state::limits::Limits;
use crate::state::session_state::SessionState;

pub(super) fn queue(
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

pub(super) fn start_queued(state: &SessionState, limits: Limits) -> Result<Vec<EventKind>, Rejection> {
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

pub(super) fn unqueue(state: &SessionState, id: QueueId) -> Result<Vec<EventKind>, Rejection> {
    if state.queue.iter().any(|queued| queued.id == id) {
        Ok(vec![EventKind::Unqueued { id }])
    } else {
        Err(Rejection::NotQueued { id })
    }
}
