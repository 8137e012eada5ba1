//! [`until`]: waits for what only looking again can tell.

use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

/// Looks again until it is so.
///
/// # Panics
///
/// Where it is not so for ten minutes, which is far more than a loaded machine takes.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = SystemClock.deadline(Duration::from_secs(600));
    while !is_so() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "timed out waiting until {what}");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
}
