//! The state for reviving a session: where its running actor is, and how often it has crashed.
//!
//! State: in memory, across restarts of the actor. If no actor runs, one caller at a time starts it, and the others share
//! the result.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use conjure_base::lock;
use tokio::sync::{Notify, watch};

use super::actor_message::ActorMessage;
use crate::session::error::SessionError;
use crate::supervision::Address;

/// Address, start attempts and crashes of one session's actor.
pub(crate) struct Revival {
    address: Mutex<Option<Address<ActorMessage>>>,
    crashes: Mutex<CrashCount>,
    /// Held while a caller starts the actor. Holds the error of the last attempt.
    starting: tokio::sync::Mutex<Option<SessionError>>,
    /// How many start attempts have ended.
    attempts: AtomicU64,
    /// How many callers wait for a running actor. The actor is not idle while there are some.
    callers: AtomicUsize,
    /// Notified when the last of them stops waiting.
    callers_done: Notify,
    /// Changes when an incarnation begins and when the last one is gone.
    incarnations: watch::Sender<u64>,
}

/// The incarnations since the last success, which count as failures.
#[derive(Debug, Clone, Default)]
pub(crate) struct CrashCount {
    pub(crate) failures: u32,
    /// The last failure, empty when unknown.
    pub(crate) last: String,
}

/// Marks a caller as waiting for a running actor, until it is dropped.
pub(crate) struct CallerGuard<'a>(&'a Revival);

impl Revival {
    pub(crate) fn new() -> Self {
        Self {
            address: Mutex::new(None),
            crashes: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            attempts: AtomicU64::new(0),
            callers: AtomicUsize::new(0),
            callers_done: Notify::new(),
            incarnations: watch::Sender::new(0),
        }
    }

    /// The address of the last incarnation.
    pub(crate) fn address(&self) -> Option<Address<ActorMessage>> {
        lock(&self.address).clone()
    }

    /// The address of the running incarnation, if there is one.
    pub(crate) fn running(&self) -> Option<Address<ActorMessage>> {
        self.address().filter(Address::is_running)
    }

    /// Records a new incarnation with this address. It counts as failed until [`Revival::reset_failures`] or
    /// [`Revival::forgive_failure`].
    pub(crate) fn incarnation_started(&self, address: &Address<ActorMessage>) {
        *lock(&self.address) = Some(address.clone());
        self.crash_count().failures += 1;
        self.notify_incarnations();
    }

    /// Wakes the callers that wait for an incarnation to begin or to end.
    pub(crate) fn notify_incarnations(&self) {
        self.incarnations.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Changes when an incarnation begins and when the last one is gone.
    pub(crate) fn incarnations(&self) -> watch::Receiver<u64> {
        self.incarnations.subscribe()
    }

    fn crash_count(&self) -> MutexGuard<'_, CrashCount> {
        lock(&self.crashes)
    }

    pub(crate) fn crashes(&self) -> CrashCount {
        self.crash_count().clone()
    }

    /// Forgets all failures, for example because the incarnation succeeded at something.
    pub(crate) fn reset_failures(&self) {
        *self.crash_count() = CrashCount::default();
    }

    /// Does not count the last failure, because the session did not cause it.
    pub(crate) fn forgive_failure(&self) {
        let mut crashes = self.crash_count();
        crashes.failures = crashes.failures.saturating_sub(1);
    }

    pub(crate) fn set_failure(&self, reason: String) {
        self.crash_count().last = reason;
    }

    /// Runs `start`. If another caller is running it, waits for that attempt and shares its error. After a success of
    /// that attempt, `start` runs too and finds the running actor.
    ///
    /// # Errors
    /// As `start`.
    pub(crate) async fn start_once<T, F>(&self, start: F) -> Result<T, SessionError>
    where
        F: Future<Output = Result<T, SessionError>>,
    {
        let seen = self.attempts.load(Ordering::Acquire);
        let mut last_error = self.starting.lock().await;
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(error) = &*last_error
        {
            return Err(error.clone());
        }
        let started = start.await;
        *last_error = started.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::AcqRel);
        started
    }

    /// Keeps the actor from being idle until the guard is dropped.
    pub(crate) fn caller(&self) -> CallerGuard<'_> {
        self.callers.fetch_add(1, Ordering::AcqRel);
        CallerGuard(self)
    }

    /// Returns when no caller waits for a running actor.
    pub(crate) async fn wait_callers_done(&self) {
        loop {
            let mut done = pin!(self.callers_done.notified());
            // From here on no notification is missed.
            done.as_mut().enable();
            if self.callers.load(Ordering::Acquire) == 0 {
                return;
            }
            done.await;
        }
    }
}

impl Drop for CallerGuard<'_> {
    fn drop(&mut self) {
        if self.0.callers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.callers_done.notify_waiters();
        }
    }
}
