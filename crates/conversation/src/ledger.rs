//! Where events are recorded before anybody goes on.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::event::Event;

/// Why a ledger could not record or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Somebody else has recorded events of this session since it was read.
    #[error("the ledger holds {found} events where {expected} were expected; load the session again")]
    Conflict {
        /// How many events the writer knows of.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Somebody else writes the session now. Whoever gets this stops, and does not load it again.
    #[error("the session was taken over: {reason}")]
    TakenOver {
        /// By whom, as far as it is known.
        reason: String,
    },
    /// It could not be written or read.
    #[error("the ledger failed: {reason}")]
    Failed {
        /// What happened.
        reason: String,
    },
}

/// Records the events of one session, in order. An event's sequence number is its place, from 0.
///
/// What `append` has acknowledged is never lost. What it has not, because it failed or its future was dropped,
/// may or may not be there: the state is then loaded anew.
pub trait Ledger: Send + Sync {
    /// Records all of `events`, or none of them, when the session holds exactly `expected_seq` events so far.
    /// Returns how many it holds afterwards.
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, LedgerError>>;

    /// All events of the session, from the first.
    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, LedgerError>>;
}

impl<L: Ledger + ?Sized> Ledger for Arc<L> {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, LedgerError>> {
        (**self).append(expected_seq, events)
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, LedgerError>> {
        (**self).load()
    }
}

/// A ledger in memory, for the stateless loop and for tests. Its clones share their events; they are gone
/// with the last of them.
#[derive(Debug, Clone, Default)]
pub struct MemoryLedger {
    events: Arc<Mutex<Vec<Event>>>,
}

impl MemoryLedger {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Ledger for MemoryLedger {
    fn append<'a>(
        &'a self,
        expected_seq: u64,
        events: &'a [Event],
    ) -> BoxFuture<'a, Result<u64, LedgerError>> {
        async move {
            let mut recorded = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            let found = recorded.len() as u64;
            if found != expected_seq {
                return Err(LedgerError::Conflict { expected: expected_seq, found });
            }
            recorded.extend_from_slice(events);
            Ok(recorded.len() as u64)
        }
        .boxed()
    }

    fn load(&self) -> BoxFuture<'_, Result<Vec<Event>, LedgerError>> {
        async move { Ok(self.events()) }.boxed()
    }
}
