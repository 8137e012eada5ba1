//! The lease of a session: the exclusive right to write it and to work in its workspace.
//!
//! The actor acquires the lease when it starts, with a new epoch. It renews the lease after a third of its duration, and
//! sooner after a failure. The lease is released when the actor has ended and its sandbox is gone.
//!
//! If renewals fail, the owner stops before the lease ends, so two owners never write at the same time. If another
//! process takes the lease, the owner stops at once. After a crash of the process, the lease expires.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, with_deadline};
use conjure_conversation::EventLogError;
use conjure_journal::{Epoch, LeaseOwner, SessionKey};
use tokio_util::sync::CancellationToken;

use super::journal_event_log::to_log_error;
use crate::executors::SandboxLifecycle;
use crate::journal::{JournalCallError, JournalHandle};

/// An acquired lease.
#[derive(Debug, Clone)]
pub(crate) struct SessionLease {
    journal: JournalHandle,
    key: Arc<SessionKey>,
    epoch: Epoch,
    time: Duration,
    /// The time until which the lease certainly holds, by this machine's clock. It counts from before the request.
    until: Deadline,
}

/// Why a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LeaseLoss {
    #[error("the session was taken over: {0}")]
    TakenOver(String),
    #[error("the lease could not be renewed before its end: {last}")]
    Expired {
        /// The last error.
        last: String,
        /// The time until which the lease still holds.
        until: Deadline,
    },
}

impl SessionLease {
    /// Acquires the lease.
    pub(crate) async fn acquire(
        journal: JournalHandle,
        key: Arc<SessionKey>,
        owner: &LeaseOwner,
        time: Duration,
    ) -> Result<Self, JournalCallError> {
        let until = SystemClock.deadline(time);
        let lease = journal.call(|journal| journal.acquire_lease(&key, owner, time)).await?;
        Ok(Self { journal, key, epoch: lease.epoch, time, until })
    }

    pub(crate) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Renews the lease until its owner has ended and the sandbox is gone, then releases it. `shutdown` is cancelled when
    /// the owner ends. `notify` notifies the owner if the lease is lost before that.
    pub(crate) async fn renew_until<F>(
        self,
        lifecycle: Arc<SandboxLifecycle>,
        shutdown: CancellationToken,
        notify: impl FnOnce(LeaseLoss) -> F,
    ) where
        F: Future<Output = ()>,
    {
        let renewing = self.clone().renew_loop();
        tokio::pin!(renewing);
        let ended = shutdown.run_until_cancelled(&mut renewing).await;
        if let Some(end) = ended {
            Box::pin(shutdown.run_until_cancelled(notify(end))).await;
            shutdown.cancelled().await;
            return Box::pin(lifecycle.close()).await;
        }
        let mut closing = Box::pin(lifecycle.close());
        tokio::select! {
            biased;
            () = &mut closing => {
                if let Err(error) = Box::pin(self.release()).await {
                    tracing::debug!(session = %self.key, %error, "a lease was not released; it ends by itself");
                }
            }
            end = renewing => {
                tracing::warn!(session = %self.key, %end, "a session's lease has ended, and its sandbox still exists");
                closing.await;
            }
        }
    }

    /// Renews the lease until it is lost. Returns early enough for the owner to stop before the lease ends.
    async fn renew_loop(mut self) -> LeaseLoss {
        let mut last = String::new();
        let mut pause = self.time / 3;
        loop {
            let stop_by = earlier(self.until, self.time / 6);
            let next = SystemClock.deadline(pause).min(stop_by);
            SystemClock.sleep_until(next).await;
            if SystemClock.remaining(stop_by).is_zero() {
                return LeaseLoss::Expired { last, until: self.until };
            }
            let until = SystemClock.deadline(self.time);
            // Boxed, so that the task, which each live session has all the time, stays small. A renewal takes moments.
            let Some(renewed) = Box::pin(self.renew(stop_by)).await else {
                let last = "the journal did not answer".to_owned();
                return LeaseLoss::Expired { last, until: self.until };
            };
            match renewed {
                Ok(()) => {
                    self.until = until;
                    pause = self.time / 3;
                }
                Err(EventLogError::Fenced { reason }) => return LeaseLoss::TakenOver(reason),
                Err(error) => {
                    tracing::warn!(session = %self.key, %error, "a lease was not renewed; it is tried again");
                    last = error.to_string();
                    pause = self.time / 30;
                }
            }
        }
    }

    /// Renews the lease once. Returns `None` if the journal does not answer in time.
    async fn renew(&self, stop_by: Deadline) -> Option<Result<(), EventLogError>> {
        let (epoch, time) = (self.epoch, self.time);
        let renewal = self.journal.call(|journal| journal.renew_lease(&self.key, epoch, time));
        let renewed = with_deadline(&SystemClock, stop_by, renewal).await.ok()?;
        Some(renewed.map(drop).map_err(to_log_error))
    }

    /// Releases the lease.
    async fn release(&self) -> Result<(), EventLogError> {
        self.journal.call(|journal| journal.release_lease(&self.key, self.epoch)).await.map_err(to_log_error)
    }
}

/// The deadline minus `time`; now if that has passed.
fn earlier(deadline: Deadline, time: Duration) -> Deadline {
    SystemClock.deadline(SystemClock.remaining(deadline).saturating_sub(time))
}
