//! [`CallOptions`]: the deadline and the cancellation of one call in a sandbox.

use conjure_base::Deadline;
use tokio_util::sync::CancellationToken;

/// The deadline and the cancellation of one call.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// The point in time at which the call ends, complete or not. Everything that it started is ended, too.
    pub deadline: Deadline,
    /// Cancels the call. The call still returns soon, with its results so far. Dropping its future cancels it too.
    pub cancel: CancellationToken,
}

impl CallOptions {
    /// A call that ends at `deadline` and is not cancelled before.
    #[must_use]
    pub fn until(deadline: Deadline) -> Self {
        Self { deadline, cancel: CancellationToken::new() }
    }
}
