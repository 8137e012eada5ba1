//! When a call that does not return is abandoned, after its time limit or its cancellation, and the result that says so.

use std::time::Duration;

use conjure_base::Deadline;
use futures_util::future::{self, Either};
use tokio_util::sync::CancellationToken;

use super::Toolbox;
use crate::tool::{ToolOutput, ToolStatus};

/// How long a cancelled call may take to clean up. It is shorter than the driver's own grace period (`CANCEL_GRACE`). So the result
/// from here, which is more precise, comes first.
const CLEANUP_GRACE: Duration = Duration::from_millis(1500);

/// How long a sandbox may take after a call's deadline to kill its processes and to send the output so far. It is longer than the
/// sandbox's own timeout for its guest, so that the sandbox can report itself as lost. An embedder's tool is dropped at its
/// deadline.
pub(super) const SANDBOX_GRACE: Duration = Duration::from_secs(4);

impl Toolbox {
    /// Completes when a call that does not return must be abandoned: `overtime` after its deadline, or a grace period after its
    /// cancellation.
    pub(super) async fn wait_for_abort(
        &self,
        deadline: Deadline,
        overtime: Duration,
        cancel: &CancellationToken,
    ) -> CallAbort {
        let cancelled = async {
            cancel.cancelled().await;
            self.clock.sleep_until(self.clock.deadline(CLEANUP_GRACE)).await;
        };
        let deadline_reached = async {
            self.clock.sleep_until(deadline).await;
            self.clock.sleep_until(self.clock.deadline(overtime)).await;
        };
        match future::select(Box::pin(cancelled), Box::pin(deadline_reached)).await {
            Either::Left(_) => CallAbort::Cancelled,
            Either::Right(_) => CallAbort::TimedOut,
        }
    }
}

/// Why a call was abandoned.
#[derive(Clone, Copy)]
pub(super) enum CallAbort {
    TimedOut,
    Cancelled,
}

pub(super) fn abort_result(reason: CallAbort, tool: &str, when: &str) -> ToolOutput {
    let (status, what) = match reason {
        CallAbort::TimedOut => (ToolStatus::TimedOut, "timed out"),
        CallAbort::Cancelled => (ToolStatus::Cancelled, "cancelled"),
    };
    ToolOutput::with_status(status, format!("{what}: `{tool}` was given up {when}"))
}
