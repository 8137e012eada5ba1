//! Where calls wait: bounded, and fair to tenants.
//!
//! A lock and a bell around the machine that says whose turn it is (`turns`). So a tenant that appends without end delays
//! another by one group at most, however large its bodies are, and fills only its own share of the places.
//!
//! State: the calls that wait, in memory. When the thread that takes them ends, they are dropped, and their callers hear
//! of it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::turns::{Bounds, Lane, Load, Refused, Turns};
use crate::error::JournalError;
use crate::weights::Weights;

pub(crate) struct Queue<J> {
    bounds: Bounds,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    turns: Turns<J>,
    weights: Weights,
    /// Why no more calls are accepted.
    end: Option<JournalError>,
}

/// How much is taken at a time. One call is, whatever it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
}

/// What to do when nothing waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenEmpty {
    Wait,
    Return,
}

impl<J> Queue<J> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let state = State { turns: Turns::new(bounds), weights: Weights::default(), end: None };
        Self { bounds, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Tenants have their turns by these weights from now on.
    pub(crate) fn set_weights(&self, weights: Weights) {
        self.lock().weights = weights;
    }

    pub(crate) fn weights(&self) -> Weights {
        self.lock().weights.clone()
    }

    /// Lets a call with bodies of so many bytes wait.
    pub(crate) fn push(&self, lane: Lane, bytes: usize, call: J) -> Result<(), JournalError> {
        let mut state = self.lock();
        match &state.end {
            Some(JournalError::Lost { part, reason }) => {
                return Err(JournalError::Ended { part, reason: reason.clone() });
            }
            Some(end) => return Err(end.clone()),
            None => {}
        }
        let tenant = lane.as_ref().map(|tenant| tenant.as_str().to_owned());
        state.turns.push(lane, bytes, call).map_err(|refused| match refused {
            Refused::OfTenant(Load { calls, bytes }) => {
                JournalError::Overloaded { tenant, waiting: calls, bytes }
            }
            Refused::OfAll(Load { calls, bytes }) => {
                JournalError::Overloaded { tenant: None, waiting: calls, bytes }
            }
        })?;
        self.changed.notify_one();
        Ok(())
    }

    /// Takes up to a group of calls; `None` when there are none and will be none.
    pub(crate) fn take(&self, most: Group, when_empty: WhenEmpty) -> Option<Vec<J>> {
        let mut state = self.lock();
        while state.turns.load().calls == 0 {
            state.turns.rest();
            if state.end.is_some() {
                return None;
            }
            if when_empty == WhenEmpty::Return {
                return Some(Vec::new());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(state.take(most))
    }

    /// Accepts no more. What waits is still taken.
    pub(crate) fn close(&self) {
        self.lock().end.get_or_insert(JournalError::Closed);
        self.changed.notify_all();
    }

    /// Accepts no more, and drops what waits: nobody will take it.
    pub(crate) fn fail(&self, error: JournalError) {
        let mut state = self.lock();
        state.end = Some(error);
        let waiting = std::mem::replace(&mut state.turns, Turns::new(self.bounds));
        self.changed.notify_all();
        drop(state);
        // Callers wake up, which should not happen under the lock.
        drop(waiting);
    }

    /// Why it accepts no more.
    pub(crate) fn end(&self) -> Option<JournalError> {
        self.lock().end.clone()
    }

    /// How many calls wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().turns.load().calls
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> State<J> {
    fn take(&mut self, most: Group) -> Vec<J> {
        let Self { turns, weights, .. } = self;
        let mut taken = Vec::with_capacity(most.calls.min(turns.load().calls));
        let mut bytes = 0_usize;
        while let Some(more) = turns.next_bytes() {
            bytes = bytes.saturating_add(more);
            if !taken.is_empty() && (taken.len() >= most.calls || bytes > most.bytes) {
                break;
            }
            let of_lane =
                |lane: &Lane| lane.as_ref().map_or_else(|| weights.standard(), |tenant| weights.of(tenant));
            taken.extend(turns.take(of_lane));
        }
        taken
    }
}
