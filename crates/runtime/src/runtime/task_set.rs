//! Tracked tasks that are not cancelled with their caller.
//!
//! Opening, finding and deleting a session take many steps, on the disk and in the journal. The caller's future may be
//! dropped between any two steps, so the steps run in a task.
//!
//! State: the running tasks. [`TaskSet::close`] accepts no more tasks, and waits for the running ones. If a deadline or
//! a crash ends a task, the next start completes its operation (`recover_intents`).

use std::future::Future;

use conjure_actors::session::SessionError;
use conjure_base::{Clock as _, Deadline, SystemClock};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::runtime::error::RuntimeError;

/// The tracked tasks of a runtime.
#[derive(Debug, Default)]
pub(crate) struct TaskSet {
    tasks: TaskTracker,
    /// Cancelled when no more tasks are accepted.
    closed: CancellationToken,
    /// Cancelled when the running tasks are aborted.
    ended: CancellationToken,
}

/// How the running tasks ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseOutcome {
    /// All tasks were completed.
    Completed,
    /// Some tasks were aborted.
    Aborted,
}

impl TaskSet {
    /// Runs `work` to its end, even if the caller's future is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (result_sender, result_receiver) = oneshot::channel();
        self.begin(async move {
            // The caller's future may have been dropped.
            let _ = result_sender.send(work.await);
        })?;
        result_receiver.await.unwrap_or_else(|_| Err(self.interrupted(what)))
    }

    /// Runs `work` to its end. If the caller does not receive the value, `undo` runs after it.
    pub(crate) async fn run_or_undo<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, RuntimeError>> + Send + 'static,
        undo: impl Future<Output = ()> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let (result_sender, result_receiver) = oneshot::channel();
        self.begin(async move {
            match work.await {
                Ok(value) => {
                    let (receipt_sender, receipt_receiver) = oneshot::channel();
                    let is_gone = result_sender.send(Ok((value, receipt_sender))).is_err();
                    if is_gone || receipt_receiver.await.is_err() {
                        undo.await;
                    }
                }
                Err(error) => drop(result_sender.send(Err(error))),
            }
        })?;
        match result_receiver.await {
            // This future cannot be dropped between the two lines, so the caller receives the value.
            Ok(Ok((value, receipt_sender))) => {
                let _ = receipt_sender.send(());
                Ok(value)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.interrupted(what)),
        }
    }

    /// Runs `work` in the background until the set is closed. No caller waits for it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closed = self.closed.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = work => {}
            }
        };
        // A closed set drops the task.
        let _ = self.begin(task);
    }

    /// Resolves when the set is closed.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    fn begin(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<(), RuntimeError> {
        // From here on, `close` waits for this task.
        let _counted = self.tasks.token();
        if self.closed.is_cancelled() {
            return Err(SessionError::ShuttingDown.into());
        }
        self.start(Box::pin(work.in_current_span()));
        Ok(())
    }

    /// Boxed work is one type, so that Tokio's code for a task is compiled once, not for each caller.
    fn start(&self, work: BoxFuture<'static, ()>) {
        let ended = self.ended.clone();
        drop(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = ended.cancelled_owned() => {}
                () = work => {}
            }
        }));
    }

    /// Starts no more tasks, and waits for the running ones. At the deadline they are aborted. May be called again.
    pub(crate) async fn close(&self, deadline: Deadline) -> CloseOutcome {
        self.closed.cancel();
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = SystemClock.sleep_until(deadline) => {
                tracing::warn!(tasks = self.tasks.len(), "tasks were aborted; the next start completes them");
                self.ended.cancel();
                self.tasks.wait().await;
            }
        }
        if self.ended.is_cancelled() { CloseOutcome::Aborted } else { CloseOutcome::Completed }
    }

    fn interrupted(&self, what: &'static str) -> RuntimeError {
        if self.ended.is_cancelled() {
            return SessionError::ShuttingDown.into();
        }
        RuntimeError::interrupted(what, &"its task ended by a defect")
    }
}

/// Runs blocking work on a thread for such work. A panic becomes an error.
pub(crate) async fn run_blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    let done = conjure_fs::run_blocking(work).await;
    done.unwrap_or_else(|error| Err(RuntimeError::interrupted(what, &error)))
}

#[cfg(test)]
mod tests;
