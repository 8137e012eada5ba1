//! A clock for sandboxes by which nobody loses patience on a machine that is busy.

use std::pin::Pin;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock, Timestamp};

/// How much longer everything may take.
const FACTOR: u32 = 20;

/// The machine's clock, but for how long a sandbox waits for what usually takes a moment: for the answer, the end and the last
/// words of its guest, and until all of it is removed. The deadlines of calls are what they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PatientClock;

impl Clock for PatientClock {
    fn timestamp(&self) -> Timestamp {
        SystemClock.timestamp()
    }

    fn deadline(&self, after: Duration) -> Deadline {
        SystemClock.deadline(after.saturating_mul(FACTOR))
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        SystemClock.remaining(deadline)
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        SystemClock.sleep_until(deadline)
    }
}
