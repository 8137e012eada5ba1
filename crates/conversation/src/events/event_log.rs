//! The port for the event log of one session.

use std::sync::{Arc, Mutex};

use conjure_base::lock;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::events::event::Event;
use crate::state::session_state::SessionState;

/// A failure of the event log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventLogError {
    /// Another writer has recorded events of this session since it was read.
    #[error("the event log has {found} events, but {expected} were expected; load the session again")]
    Conflict {
        /// The writer's number of events.
        expected: u64,
        /// The actual number of events.
        found: u64,
    },
    /// Another process writes the session now. The caller must stop, and not load the session again.
    #[error("the session was taken over: {reason}")]
    Fenced {
        /// The new writer, as far as it is known.
        reason: String,
    },
    /// It could not be written or read.
    #[error("the event log failed: {reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
}

/// The append-only event log of one session. Sequence numbers count from 0.
///
/// Acknowledged events are never lost. After a failed append, or a dropped future, the events may be recorded or not: the state must be
/// loaded again.
pub trait EventLog: Send + Sync {
    /// Appends all of `events`, if the log has exactly `expected_seq` events. Returns the new number of events.
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>>;

    /// Appends as [`EventLog::append`] does, for a log that also stores an overview of the session. `_state` is the state before
    /// the events.
    fn append_after<'a>(
        &'a self,
        _state: &SessionState,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        self.append(expected_seq, events)
    }

    /// All events of the session, from the first.
    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>>;
}

impl<L: EventLog + ?Sized> EventLog for Arc<L> {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        (**self).append(expected_seq, events)
    }

    fn append_after<'a>(
        &'a self,
        state: &SessionState,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        (**self).append_after(state, expected_seq, events)
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>> {
        (**self).load()
    }
}

/// An event log in memory, for the stateless loop and for tests. Clones share their events.
#[derive(Debug, Clone, Default)]
pub struct MemoryEventLog {
    events: Arc<Mutex<Vec<Event>>>,
}

impl MemoryEventLog {
    /// An empty event log.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }
}

impl EventLog for MemoryEventLog {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, EventLogError>> {
        async move {
            let mut recorded = lock(&self.events);
            let found = recorded.len() as u64;
            if found != expected_seq {
                return Err(EventLogError::Conflict { expected: expected_seq, found });
            }
            recorded.extend_from_slice(events);
            Ok(recorded.len() as u64)
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, EventLogError>> {
        async move { Ok(self.events()) }.boxed()
    }
}
