//! Bringing what a session's commands wrote to the host, where its sandbox has a workspace of its own
//! ([`HostAccess::Copied`]): after each turn, and before the session is put away.
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
use conjure_sandbox::{CallOptions, Executor, HostAccess};
use tokio_util::sync::CancellationToken;

use super::session_entry::SessionEntry;

/// How long it may take after a turn. Its end is told then at the latest; calls of the session's handles wait meanwhile; an interruption ends it.
const TURN_TIMEOUT: Duration = Duration::from_secs(300);

/// How long it may take where somebody waits for the session's end, or has interrupted its turn.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// How many files that stay behind are logged by name.
const LOGGED_FILES: usize = 10;

/// Holds back the end of the turn that runs, for as long as it is there.
pub(crate) struct TurnEndHold(Arc<SessionEntry>);

impl TurnEndHold {
    pub(crate) fn new(entry: &Arc<SessionEntry>) -> Self {
        entry.observer.hub.defer_turn_ends();
        Self(Arc::clone(entry))
    }
}

impl Drop for TurnEndHold {
    fn drop(&mut self) {
        self.0.observer.release_turn_end();
    }
}

/// Brings back what there is. `cancel` ends it; one that is cancelled already makes it hurry instead.
pub(crate) async fn copy_out(key: &SessionKey, executor: Option<&dyn Executor>, cancel: &CancellationToken) {
    let Some(executor) = executor.filter(|executor| executor.host_access() == HostAccess::Copied) else {
        return;
    };
    let (timeout, cancel) = if cancel.is_cancelled() {
        (SHUTDOWN_TIMEOUT, CancellationToken::new())
    } else {
        (TURN_TIMEOUT, cancel.clone())
    };
    let deadline = SystemClock.deadline(timeout);
    let cancelled = cancel.clone();
    let report = tokio::select! {
        biased;
        report = executor.copy_out(CallOptions { deadline, cancel }) => report,
        () = cancelled.cancelled() => {
            tracing::warn!(session = %key, "what the turn changed was not brought to the host: it was interrupted");
            return;
        }
        () = SystemClock.sleep_until(deadline) => {
            tracing::warn!(session = %key, "what the turn changed was not brought to the host in time");
            return;
        }
    };
    match report {
        Ok(report) => {
            for skipped in report.skipped.iter().take(LOGGED_FILES) {
                tracing::warn!(session = %key, path = %skipped.path, reason = %skipped.reason, "a file stays in the sandbox");
            }
            if let Some(more @ 1..) = report.skipped.len().checked_sub(LOGGED_FILES) {
                tracing::warn!(session = %key, more, "further files stay in the sandbox");
            }
        }
        Err(error) => {
            tracing::warn!(session = %key, %error, "not all that the turn changed was brought to the host");
        }
    }
}
