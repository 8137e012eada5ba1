//! The fake's rate limit: a number of requests per key and time window.

use std::collections::HashMap;
use std::time::Duration;

use conjure_base::Timestamp;

/// The rate limit of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests per window. Refused requests do not count.
    pub requests: u32,
    /// The length of a window. A window begins with the first request after the end of the previous one.
    pub window: Duration,
}

/// A window of one key.
#[derive(Debug, Clone, Copy)]
struct Window {
    started: Timestamp,
    used: u32,
}

/// The decision for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateDecision {
    /// Admitted; `remaining` requests are left.
    Admitted { remaining: u32 },
    /// Refused; the client should wait for `wait`.
    Refused { wait: Duration },
}

/// The windows of all keys.
#[derive(Debug, Default)]
pub(super) struct RateWindows(HashMap<String, Window>);

impl RateWindows {
    pub(super) fn admit(&mut self, limit: RateLimit, key: &str, now: Timestamp) -> RateDecision {
        let window = self.0.entry(key.to_owned()).or_insert(Window { started: now, used: 0 });
        if now.duration_since(window.started) >= limit.window {
            *window = Window { started: now, used: 0 };
        }
        if window.used < limit.requests {
            window.used += 1;
            return RateDecision::Admitted { remaining: limit.requests - window.used };
        }
        RateDecision::Refused { wait: limit.window.saturating_sub(now.duration_since(window.started)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_windows_are_per_key_and_restart() {
        let limit = RateLimit { requests: 2, window: Duration::from_secs(10) };
        let mut windows = RateWindows::default();
        let at_millis = |millis: u64| Timestamp::from_millis(1_000_000 + millis);
        assert_eq!(windows.admit(limit, "a", at_millis(0)), RateDecision::Admitted { remaining: 1 });
        assert_eq!(windows.admit(limit, "a", at_millis(1)), RateDecision::Admitted { remaining: 0 });
        let wait = Duration::from_millis(9_500);
        assert_eq!(windows.admit(limit, "a", at_millis(500)), RateDecision::Refused { wait });
        assert_eq!(windows.admit(limit, "b", at_millis(500)), RateDecision::Admitted { remaining: 1 });
        assert_eq!(windows.admit(limit, "a", at_millis(10_000)), RateDecision::Admitted { remaining: 1 });
    }
}
