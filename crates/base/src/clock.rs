//! The one place that reads the time. Everything else gets the time as a value.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{Deadline, Timestamp};

/// A source of time. Tests give one that they move by hand; programs give [`SystemClock`].
///
/// The two readings differ on purpose: [`Clock::timestamp`] is what a person reads and may jump;
/// [`Clock::deadline`] and [`Clock::sleep_until`] are monotonic and follow Tokio's (pausable) time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock, in milliseconds since the Unix epoch.
    fn timestamp(&self) -> Timestamp;

    /// The moment that lies `after` from now, on the monotonic clock.
    fn deadline(&self, after: Duration) -> Deadline;

    /// How much is left until `deadline`; zero when it has passed.
    fn remaining(&self, deadline: Deadline) -> Duration;

    /// Resolves once `deadline` has passed. [`Deadline::NEVER`] never resolves.
    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>>;
}

/// The machine's clocks, through Tokio. Must be used within a Tokio runtime whose time driver is enabled.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn timestamp(&self) -> Timestamp {
        Timestamp::from_system_time(std::time::SystemTime::now())
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn deadline(&self, after: Duration) -> Deadline {
        // A duration beyond what the clock can add is as good as no deadline at all.
        tokio::time::Instant::now().checked_add(after).map_or(Deadline::NEVER, Deadline::at)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn remaining(&self, deadline: Deadline) -> Duration {
        match deadline.instant() {
            Some(instant) => instant.saturating_duration_since(tokio::time::Instant::now()),
            None => Duration::MAX,
        }
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        match deadline.instant() {
            Some(instant) => Box::pin(tokio::time::sleep_until(instant)),
            None => Box::pin(std::future::pending()),
        }
    }
}
