//! The rate limit of the fake: so many requests of a key in a window of time.

use std::collections::HashMap;
use std::time::Duration;

use conjure_base::Timestamp;

/// How many requests a key may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// How many in a window. Those that are refused do not count.
    pub requests: u32,
    /// How long a window is. It begins with the first request after the one before has ended.
    pub window: Duration,
}

/// A window of one key.
#[derive(Debug, Clone, Copy)]
struct Window {
    began: Timestamp,
    used: u32,
}

/// What is left to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may; so many remain after this one.
    Admitted { remaining: u32 },
    /// It may not before this time has passed.
    Refused { wait: Duration },
}

/// The windows of all keys.
#[derive(Debug, Default)]
pub(super) struct Windows(HashMap<String, Window>);

impl Windows {
    pub(super) fn admit(&mut self, limit: RateLimit, key: &str, now: Timestamp) -> Standing {
        let window = self.0.entry(key.to_owned()).or_insert(Window { began: now, used: 0 });
        if now.since(window.began) >= limit.window {
            *window = Window { began: now, used: 0 };
        }
        if window.used < limit.requests {
            window.used += 1;
            return Standing::Admitted { remaining: limit.requests - window.used };
        }
        Standing::Refused { wait: limit.window.saturating_sub(now.since(window.began)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_of_one_key_and_begins_anew() {
        let limit = RateLimit { requests: 2, window: Duration::from_secs(10) };
        let mut windows = Windows::default();
        let at = |millis: u64| Timestamp::from_millis(1_000_000 + millis);
        assert_eq!(windows.admit(limit, "a", at(0)), Standing::Admitted { remaining: 1 });
        assert_eq!(windows.admit(limit, "a", at(1)), Standing::Admitted { remaining: 0 });
        let wait = Duration::from_millis(9_500);
        assert_eq!(windows.admit(limit, "a", at(500)), Standing::Refused { wait });
        assert_eq!(windows.admit(limit, "b", at(500)), Standing::Admitted { remaining: 1 });
        assert_eq!(windows.admit(limit, "a", at(10_000)), Standing::Admitted { remaining: 1 });
    }
}
