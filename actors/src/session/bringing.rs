//! Bringing what a session's commands wrote to the host, where its sandbox has a workspace of its own
//! ([`Sharing::Transferred`]): after each turn, and before the session is put away.
//!
//! Until that is over, nobody hears of the turn's end: whoever does finds its files. Only where that takes too long, fails, or is
//! interrupted, it is told without; the log says so.
//!
//! It keeps no state: the executor knows what was brought. What fails is logged and tried again after the next turn; a crash
//! of the host, or a sandbox that is lost in the middle of a turn, loses what was changed since.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_journal::SessionKey;
use conjure_sandbox::{CallOptions, Executor, Sharing};
use tokio_util::sync::CancellationToken;

use super::shared::Shared;

/// How long it may take after a turn. Its end is told then at the latest; calls of the session's handles wait meanwhile; an interruption ends it.
const AFTER_TURN: Duration = Duration::from_secs(300);

/// How long it may take where somebody waits for the session's end, or has interrupted its turn.
pub(crate) const IN_HASTE: Duration = Duration::from_secs(10);

/// How many files that stay behind are logged by name.
const TOLD: usize = 10;

/// Holds back the end of the turn that runs, for as long as it is there.
pub(crate) struct HeldEnd(Arc<Shared>);

impl HeldEnd {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        shared.hub.hold_ends();
        Self(Arc::clone(shared))
    }
}

impl Drop for HeldEnd {
    fn drop(&mut self) {
        self.0.tell_end();
    }
}

/// Brings back what there is. `cancel` ends it; one that is cancelled already makes it hurry instead.
pub(crate) async fn bring_back(
    key: &SessionKey,
    executor: Option<&dyn Executor>,
    cancel: &CancellationToken,
) {
    let Some(executor) = executor.filter(|executor| executor.sharing() == Sharing::Transferred) else {
        return;
    };
    let (patience, cancel) = if cancel.is_cancelled() {
        (IN_HASTE, CancellationToken::new())
    } else {
        (AFTER_TURN, cancel.clone())
    };
    let deadline = SystemClock.deadline(patience);
    let over = cancel.clone();
    let brought = tokio::select! {
        biased;
        brought = executor.bring_back(CallOptions { deadline, cancel }) => brought,
        () = over.cancelled() => {
            tracing::warn!(session = %key, "what the turn changed was not brought to the host: it was interrupted");
            return;
        }
        () = SystemClock.sleep_until(deadline) => {
            tracing::warn!(session = %key, "what the turn changed was not brought to the host in time");
            return;
        }
    };
    match brought {
        Ok(brought) => {
            for left in brought.left.iter().take(TOLD) {
                tracing::warn!(session = %key, path = %left.path, reason = %left.reason, "a file stays in the sandbox");
            }
            if let Some(more @ 1..) = brought.left.len().checked_sub(TOLD) {
                tracing::warn!(session = %key, more, "further files stay in the sandbox");
            }
        }
        Err(error) => {
            tracing::warn!(session = %key, %error, "not all that the turn changed was brought to the host");
        }
    }
}
