//! [`until`]: waits for a condition by polling.

use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

/// Polls every 5 ms until `is_so` returns true.
///
/// # Panics
///
/// If the condition is not met within ten minutes, far more than a loaded machine needs.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = SystemClock.deadline(Duration::from_secs(600));
    while !is_so() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "timed out waiting until {what}");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
}
