//! [`ManualClock`]: a clock that a test moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

/// A clock that a test moves, and that records which times are waited for. It starts at the time of its creation.
#[derive(Debug, Clone)]
pub struct ManualClock {
    origin: Instant,
    elapsed: Arc<watch::Sender<Duration>>,
    awaited: Arc<watch::Sender<Vec<Duration>>>,
}

impl Default for ManualClock {
    #[expect(clippy::disallowed_methods, reason = "the only look at the real time")]
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            elapsed: Arc::new(watch::Sender::new(Duration::ZERO)),
            awaited: Arc::new(watch::Sender::new(Vec::new())),
        }
    }
}

impl ManualClock {
    /// Waits until the time `at` after the start is waited for, and moves the clock there.
    pub async fn move_to(&self, at: Duration) {
        self.is_awaited(at).await;
        self.set(at);
    }

    /// Waits until the time `at` after the start is waited for.
    pub async fn is_awaited(&self, at: Duration) {
        // This clock keeps the sender, so this ends with a value.
        let _ = self.awaited.subscribe().wait_for(|awaited| awaited.contains(&at)).await;
    }

    /// Moves the clock to the time `at` after the start.
    pub fn set(&self, at: Duration) {
        self.elapsed.send_replace(at);
    }
}

impl Clock for ManualClock {
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn deadline(&self, after: Duration) -> Deadline {
        Deadline::at(self.origin + *self.elapsed.borrow() + after)
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        let at = deadline.instant().map(|at| at - self.origin);
        at.map_or(Duration::MAX, |at| at.saturating_sub(*self.elapsed.borrow()))
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let until = deadline.instant().map_or(Duration::MAX, |at| at - self.origin);
        let (mut elapsed, awaited) = (self.elapsed.subscribe(), Arc::clone(&self.awaited));
        Box::pin(async move {
            awaited.send_modify(|awaited| awaited.push(until));
            let _ = elapsed.wait_for(|elapsed| *elapsed >= until).await;
        })
    }
}
