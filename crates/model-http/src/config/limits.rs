//! The timeouts and size limits of a call.

use std::time::Duration;

/// The timeouts of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The maximum time to connect: 10 s by default.
    pub connect: Duration,
    /// The maximum time between two chunks of a streamed response, and before the first: 120 s by default. Services ping far more often.
    pub idle: Duration,
    /// The maximum time of the whole call, including waits and retries: 10 min by default.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(600),
        }
    }
}

/// The size limits of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseLimits {
    /// The maximum size of one event of a stream, in bytes: 8 MiB by default.
    pub event: usize,
    /// The maximum size of a whole response, in bytes: 32 MiB by default.
    pub total: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self { event: 8 << 20, total: 32 << 20 }
    }
}
