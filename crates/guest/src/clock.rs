//! The guest's only clock. It is monotonic.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since an arbitrary fixed point.
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
