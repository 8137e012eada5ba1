//! The guest's one clock: time since some fixed moment, never set back.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Now.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
