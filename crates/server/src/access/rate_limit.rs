//! [`RateLimit`]: limits the requests per minute of each key.
//!
//! State, in memory: one time for each key. Processes do not share it, and a restart forgets it.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use conjure_base::lock;

use super::key::ApiKeyId;

const MINUTE: Duration = Duration::from_secs(60);

/// A limit for each key. Requests at an even pace are admitted at the rate. A burst may have up to a minute's requests.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// The minimum average interval between two requests; `None`: no limit.
    interval: Mutex<Option<Duration>>,
    /// For each key, the time up to which its requests so far use the rate.
    even_at: Mutex<HashMap<ApiKeyId, Duration>>,
}

impl RateLimit {
    pub(crate) fn per_minute(requests: Option<NonZeroU32>) -> Self {
        let limit = Self::default();
        limit.set_per_minute(requests);
        limit
    }

    /// Sets the limit for requests from now on.
    pub(crate) fn set_per_minute(&self, requests: Option<NonZeroU32>) {
        *lock(&self.interval) = requests.map(|requests| MINUTE / requests.get());
    }

    /// Admits a request, or returns how long to wait. `now` must be a monotonic time.
    pub(crate) fn admit(&self, key: ApiKeyId, now: Duration) -> Result<(), Duration> {
        let Some(interval) = *lock(&self.interval) else { return Ok(()) };
        let mut even_at = lock(&self.even_at);
        let even = even_at.entry(key).or_insert(now);
        let next = (*even).max(now) + interval;
        match next.checked_sub(now + MINUTE).filter(|wait| !wait.is_zero()) {
            Some(wait) => Err(wait),
            None => {
                *even = next;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> ApiKeyId {
        "key_0123456789abcdef0123456789abcdef".parse().unwrap()
    }

    #[test]
    fn a_minutes_worth_may_come_at_once_and_then_one_at_a_time() {
        let limit = RateLimit::per_minute(NonZeroU32::new(60));
        let start = Duration::from_secs(1_000);
        for _ in 0..60 {
            assert_eq!(limit.admit(key(), start), Ok(()));
        }
        assert_eq!(limit.admit(key(), start), Err(Duration::from_secs(1)));
        assert_eq!(limit.admit(key(), start + Duration::from_secs(1)), Ok(()));
        assert!(limit.admit(key(), start + Duration::from_secs(1)).is_err());
        let other = "key_ffffffffffffffffffffffffffffffff".parse().unwrap();
        assert_eq!(limit.admit(other, start), Ok(()), "each key for itself");
        assert_eq!(RateLimit::default().admit(key(), start), Ok(()));
        limit.set_per_minute(NonZeroU32::new(6_000));
        assert_eq!(limit.admit(key(), start + Duration::from_secs(2)), Ok(()), "another rate holds at once");
        limit.set_per_minute(None);
        assert_eq!(limit.admit(key(), start), Ok(()));
    }

    proptest! {
        #[test]
        fn no_minute_has_more_than_twice_the_limit(gaps in proptest::collection::vec(0_u64..4_000, 1..200)) {
            let (limit, mut now, mut admitted) = (RateLimit::per_minute(NonZeroU32::new(30)), Duration::ZERO, Vec::new());
            for gap in gaps {
                now += Duration::from_millis(gap);
                if limit.admit(key(), now).is_ok() {
                    admitted.push(now);
                }
                let recent = admitted.iter().filter(|at| now.saturating_sub(**at) < MINUTE).count();
                prop_assert!(recent <= 60, "{recent}");
            }
        }
    }
}
