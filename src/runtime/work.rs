//! What is done for a caller as a whole: each a tracked task, which no dropping of the caller's future breaks off.
//!
//! Opening, finding and deleting a session take many steps, on the disk and in the journal. So they are never the caller's own
//! future: that may be dropped between any two of them. State: the tasks that run. [`Work::close`] takes no more and waits for them;
//! what is ended by a deadline, or by a crash, is completed by the next start (`broken_off`).

use std::future::Future;

use conjure_actors::session::SessionError;
use conjure_base::{Clock as _, Deadline, SystemClock};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::error::RuntimeError;

/// The tasks of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Work {
    tasks: TaskTracker,
    /// Nothing more is begun.
    closed: CancellationToken,
    /// What runs is ended where it is.
    ended: CancellationToken,
}

/// How what ran has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// All of it was done to its end.
    Whole,
    /// Some of it was ended in between.
    BrokenOff,
}

impl Work {
    /// Does it to its end, whatever becomes of the caller.
    pub(crate) async fn whole<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (give, take) = oneshot::channel();
        self.begin(async move {
            // Nobody may want to know.
            let _ = give.send(work.await);
        })?;
        take.await.unwrap_or_else(|_| Err(self.broken_off(what)))
    }

    /// The same for what somebody must have: unless the caller has taken it, `undo` follows.
    pub(crate) async fn handed_over<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
        undo: impl Future<Output = ()> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (give, take) = oneshot::channel();
        self.begin(async move {
            match work.await {
                Ok(value) => {
                    let (took, taken) = oneshot::channel();
                    let is_gone = give.send(Ok((value, took))).is_err();
                    if is_gone || taken.await.is_err() {
                        undo.await;
                    }
                }
                Err(error) => drop(give.send(Err(error))),
            }
        })?;
        match take.await {
            // The caller has it as soon as this is polled; it is not dropped in between.
            Ok(Ok((value, took))) => {
                let _ = took.send(());
                Ok(value)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.broken_off(what)),
        }
    }

    /// Does it beside everything else, for as long as nobody closes: it is not waited for.
    pub(crate) fn aside(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = work => {}
            }
        };
        // Whoever is closing wants no more of it.
        let _ = self.begin(task);
    }

    /// Resolves when nothing more is to be begun.
    pub(crate) async fn closing(&self) {
        self.closed.cancelled().await;
    }

    fn begin(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<(), RuntimeError> {
        // From here on, whoever closes waits.
        let _counted = self.tasks.token();
        if self.closed.is_cancelled() {
            return Err(SessionError::ShuttingDown.into());
        }
        let ended = self.ended.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = ended.cancelled_owned() => {}
                () = work => {}
            }
        };
        drop(self.tasks.spawn(task.in_current_span()));
        Ok(())
    }

    /// Begins nothing more, and waits for what runs; at the deadline that is ended where it is. May be called again.
    pub(crate) async fn close(&self, deadline: Deadline) -> Closed {
        self.closed.cancel();
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = SystemClock.sleep_until(deadline) => {
                tracing::warn!(tasks = self.tasks.len(), "what was done for callers is broken off; the next start completes it");
                self.ended.cancel();
                self.tasks.wait().await;
            }
        }
        if self.ended.is_cancelled() { Closed::BrokenOff } else { Closed::Whole }
    }

    fn broken_off(&self, what: &'static str) -> RuntimeError {
        if self.ended.is_cancelled() {
            return SessionError::ShuttingDown.into();
        }
        RuntimeError::broke_off(what, &"its task ended by a defect")
    }
}

#[cfg(test)]
#[path = "work/tests.rs"]
mod tests;
