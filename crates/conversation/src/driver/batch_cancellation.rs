//! How running tools end at the cancellation or the deadline: they are cancelled first, and dropped after the grace period.

use std::time::Duration;

use conjure_base::Clock;
use futures_util::future::{BoxFuture, select};
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use crate::tools::tool_runner::CallContext;

/// How long cancelled tools may take to clean up before they are dropped.
pub const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Waits for the cancellation or the deadline, whichever comes first.
pub(super) fn cancelled_or_expired(
    context: &CallContext,
    clock: &dyn Clock,
) -> impl Future<Output = ()> + Send + 'static {
    let (cancelled, deadline) =
        (context.cancel.clone().cancelled_owned(), clock.sleep_until(context.deadline));
    async move {
        select(std::pin::pin!(cancelled), deadline).await;
    }
}

/// The phase of a batch.
pub(super) enum BatchPhase {
    /// The tools are running; waits for the cancellation or the deadline.
    Running(BoxFuture<'static, ()>),
    /// The tools are cancelled; waits for the end of the grace period.
    Grace(BoxFuture<'static, ()>),
    /// The grace period is over, the tools are dropped.
    Dropped,
}

impl BatchPhase {
    /// Moves to the next phase: cancels running tools, then drops cancelled ones.
    pub(super) fn cancel_then_drop<F>(
        &mut self,
        running: &mut FuturesUnordered<F>,
        cancel: &CancellationToken,
        clock: &dyn Clock,
        grace: Duration,
    ) {
        if let Self::Running(_) = self {
            cancel.cancel();
            *self = Self::Grace(clock.sleep_until(clock.deadline(grace)));
        } else {
            running.clear();
            *self = Self::Dropped;
        }
    }
}
