//! A mutex and condition variable around [`FairQueue`]: a bounded queue that is fair to tenants.
//! A busy tenant delays another by one batch at most, however large its bodies are, and fills only its own share of the queue.
//! State: the waiting calls, in memory. When the thread that takes them ends, they are dropped and their callers get an error.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use conjure_base::lock;

use super::fair_queue::{FairQueue, LaneKey, QueueFull, QueueLimits, QueueLoad};
use crate::error::JournalError;
use crate::tenant_weights::TenantWeights;

pub(crate) struct CallQueue<J> {
    limits: QueueLimits,
    state: Mutex<QueueState<J>>,
    changed: Condvar,
}

struct QueueState<J> {
    calls: FairQueue<J>,
    weights: TenantWeights,
    /// Why no more calls are accepted.
    close_reason: Option<JournalError>,
}

/// The limits of one batch. A batch has at least one call, whatever its size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
}

/// What to do when the queue is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnEmpty {
    Wait,
    Return,
}

impl<J> CallQueue<J> {
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let state = QueueState {
            calls: FairQueue::new(limits),
            weights: TenantWeights::default(),
            close_reason: None,
        };
        Self { limits, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Sets the weights of the tenants.
    pub(crate) fn set_weights(&self, weights: TenantWeights) {
        self.lock().weights = weights;
    }

    pub(crate) fn weights(&self) -> TenantWeights {
        self.lock().weights.clone()
    }

    /// Queues a call with bodies of this size.
    pub(crate) fn push(&self, lane: LaneKey, bytes: usize, call: J) -> Result<(), JournalError> {
        let mut state = self.lock();
        match &state.close_reason {
            Some(JournalError::Lost { part, reason }) => {
                return Err(JournalError::ThreadEnded { part, reason: reason.clone() });
            }
            Some(reason) => return Err(reason.clone()),
            None => {}
        }
        let tenant = lane.as_ref().map(|tenant| tenant.as_str().to_owned());
        state.calls.push(lane, bytes, call).map_err(|refused| match refused {
            QueueFull::Tenant(QueueLoad { calls, bytes }) => {
                JournalError::Overloaded { tenant, waiting: calls, bytes }
            }
            QueueFull::Total(QueueLoad { calls, bytes }) => {
                JournalError::Overloaded { tenant: None, waiting: calls, bytes }
            }
        })?;
        self.changed.notify_one();
        Ok(())
    }

    /// Takes a batch of calls. Returns `None` when the queue is closed and empty.
    pub(crate) fn take(&self, limits: BatchLimits, on_empty: OnEmpty) -> Option<Vec<J>> {
        let mut state = self.lock();
        while state.calls.load().calls == 0 {
            state.calls.reset_idle();
            if state.close_reason.is_some() {
                return None;
            }
            if on_empty == OnEmpty::Return {
                return Some(Vec::new());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Some(state.take(limits))
    }

    /// Closes the queue. Waiting calls are still taken.
    pub(crate) fn close(&self) {
        self.lock().close_reason.get_or_insert(JournalError::Closed);
        self.changed.notify_all();
    }

    /// Closes the queue with an error, and drops the waiting calls.
    pub(crate) fn fail_all(&self, error: JournalError) {
        let mut state = self.lock();
        state.close_reason = Some(error);
        let waiting = std::mem::replace(&mut state.calls, FairQueue::new(self.limits));
        self.changed.notify_all();
        drop(state);
        // Dropping them wakes callers, which should not happen under the lock.
        drop(waiting);
    }

    /// Why it accepts no more calls.
    pub(crate) fn close_reason(&self) -> Option<JournalError> {
        self.lock().close_reason.clone()
    }

    /// The number of waiting calls.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().calls.load().calls
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<J>> {
        lock(&self.state)
    }
}

impl<J> QueueState<J> {
    fn take(&mut self, limits: BatchLimits) -> Vec<J> {
        let Self { calls, weights, .. } = self;
        let mut batch = Vec::with_capacity(limits.calls.min(calls.load().calls));
        let mut bytes = 0_usize;
        while let Some(more) = calls.next_bytes() {
            bytes = bytes.saturating_add(more);
            if !batch.is_empty() && (batch.len() >= limits.calls || bytes > limits.bytes) {
                break;
            }
            let lane_weight = |lane: &LaneKey| {
                lane.as_ref().map_or_else(|| weights.default_weight(), |tenant| weights.weight_of(tenant))
            };
            batch.extend(calls.take(lane_weight));
        }
        batch
    }
}
