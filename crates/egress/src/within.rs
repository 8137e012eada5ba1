//! Waiting for something, but not beyond a deadline. It owns no state.

use std::future::Future;

use conjure_base::{Clock, Deadline};

/// The deadline came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimedOut;

/// What `future` gives, unless `deadline` comes first; then it is dropped.
pub(crate) async fn within<F: Future>(
    clock: &dyn Clock,
    deadline: Deadline,
    future: F,
) -> Result<F::Output, TimedOut> {
    let over = clock.sleep_until(deadline);
    tokio::select! {
        biased;
        output = future => Ok(output),
        () = over => Err(TimedOut),
    }
}
