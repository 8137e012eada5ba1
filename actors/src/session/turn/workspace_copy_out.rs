//! Copies the files that a session's commands changed from the sandbox to the host, if the sandbox has its own workspace
//! ([`HostAccess::Copied`]). This happens after each turn, and before the session is passivated.
//!
//! The end of the turn is reported afterwards, so a subscriber that sees the end finds the files. If the copy takes too
//! long, fails or is interrupted, the end is reported without it, and the log says so.
//!
//! State: none. The executor knows what it has copied. A failed copy is logged and tried again after the next turn. A
//! crash of the process, or of the sandbox during a turn, loses the changes since the last copy.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_journal::SessionKey;
use conjure_sandbox::{CallOptions, Executor, HostAccess};
use tokio_util::sync::CancellationToken;

use crate::session::lifecycle::session_entry::SessionEntry;

/// The time limit for a copy after a turn. When it has passed, the turn's end is reported without the copy. During the
/// copy, calls of the session's handles wait; an interruption ends the copy.
const TURN_TIMEOUT: Duration = Duration::from_secs(300);

/// How long a copy may take when the session stops or its turn was interrupted.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// How many files that were not copied the log names.
const LOGGED_FILES: usize = 10;

/// Holds back the end of the running turn until it is dropped.
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

/// Copies the changed files to the host. `cancel` ends the copy; if it is already cancelled, the copy uses the shorter
/// time limit.
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
            tracing::warn!(session = %key, "the changes of the turn were not copied to the host, because it was interrupted");
            return;
        }
        () = SystemClock.sleep_until(deadline) => {
            tracing::warn!(session = %key, "the changes of the turn were not copied to the host in time");
            return;
        }
    };
    match report {
        Ok(report) => {
            for skipped in report.skipped.iter().take(LOGGED_FILES) {
                tracing::warn!(session = %key, path = %skipped.path, reason = %skipped.reason, "a file was not copied from the sandbox");
            }
            if let Some(more @ 1..) = report.skipped.len().checked_sub(LOGGED_FILES) {
                tracing::warn!(session = %key, more, "further files were not copied from the sandbox");
            }
        }
        Err(error) => {
            tracing::warn!(session = %key, %error, "some changes of the turn were not copied to the host");
        }
    }
}
