//! Where calls wait: bounded, and fair to tenants.
//!
//! Each tenant has a lane, first in first out; lanes take turns, one call at a time. So a tenant that appends without end
//! delays another by one group at most, and fills only its own share of the places.
//!
//! State: the calls that wait, in memory. When the thread that takes them ends, they are dropped, and their callers hear
//! of it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use conjure_base::TenantId;

use crate::error::JournalError;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) calls: usize,
    pub(crate) per_tenant: usize,
    pub(crate) bytes: usize,
}

/// Whose call it is; `None` when it is nobody's, such as a list of tenants.
type Lane = Option<TenantId>;

pub(crate) struct Queue<J> {
    bounds: Bounds,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    lanes: HashMap<Lane, VecDeque<(J, usize)>>,
    /// The lanes that have calls, in the order of their turns.
    turns: VecDeque<Lane>,
    calls: usize,
    bytes: usize,
    /// Why no more calls are accepted.
    end: Option<JournalError>,
}

/// What to do when nothing waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenEmpty {
    Wait,
    Return,
}

impl<J> Queue<J> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let state = State { lanes: HashMap::new(), turns: VecDeque::new(), calls: 0, bytes: 0, end: None };
        Self { bounds, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Lets a call with bodies of so many bytes wait.
    pub(crate) fn push(&self, lane: Lane, bytes: usize, call: J) -> Result<(), JournalError> {
        let mut state = self.lock();
        if let Some(end) = &state.end {
            return Err(end.clone());
        }
        let of_tenant = state.lanes.get(&lane).map_or(0, VecDeque::len);
        let is_full =
            state.calls >= self.bounds.calls || (state.calls > 0 && state.bytes + bytes > self.bounds.bytes);
        if is_full {
            let (waiting, bytes) = (state.calls, state.bytes);
            return Err(JournalError::Overloaded { tenant: None, waiting, bytes });
        }
        if of_tenant >= self.bounds.per_tenant {
            let tenant = lane.map(String::from);
            return Err(JournalError::Overloaded { tenant, waiting: of_tenant, bytes: state.bytes });
        }
        if of_tenant == 0 {
            state.turns.push_back(lane.clone());
        }
        state.lanes.entry(lane).or_default().push_back((call, bytes));
        state.calls += 1;
        state.bytes += bytes;
        self.changed.notify_one();
        Ok(())
    }

    /// Takes up to `most` calls; `None` when there are none and will be none.
    pub(crate) fn take(&self, most: usize, when_empty: WhenEmpty) -> Option<Vec<J>> {
        let mut state = self.lock();
        while state.calls == 0 {
            if state.end.is_some() {
                return None;
            }
            if when_empty == WhenEmpty::Return {
                return Some(Vec::new());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut taken = Vec::with_capacity(most.min(state.calls));
        while taken.len() < most
            && let Some(call) = state.take_one()
        {
            taken.push(call);
        }
        Some(taken)
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
        let waiting = std::mem::take(&mut state.lanes);
        state.turns.clear();
        (state.calls, state.bytes) = (0, 0);
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
        self.lock().calls
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> State<J> {
    /// The next call of the lane whose turn it is.
    fn take_one(&mut self) -> Option<J> {
        let lane = self.turns.pop_front()?;
        let waiting = self.lanes.get_mut(&lane)?;
        let (call, bytes) = waiting.pop_front()?;
        if waiting.is_empty() {
            // A tenant that has left leaves nothing.
            self.lanes.remove(&lane);
        } else {
            self.turns.push_back(lane);
        }
        self.calls -= 1;
        self.bytes -= bytes;
        Some(call)
    }
}
