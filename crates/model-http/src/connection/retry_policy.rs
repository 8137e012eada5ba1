//! Retry decisions and backoff, by the rules that the SDKs of Anthropic and OpenAI share.

use std::time::Duration;

use conjure_base::{Backoff, Timestamp};
use reqwest::header::HeaderMap;

/// The longest accepted `retry-after`. A longer one is treated as a clock error of the service.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(4_294_967);

/// Whether the service wants a failed call to be repeated: its `x-should-retry` header, or what its error body says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The call should be repeated: `x-should-retry: true`.
    Retry,
    /// The call should not be repeated: `x-should-retry: false`, or a quota that is used up.
    GiveUp,
    /// No advice: the status or the kind of the error decides.
    #[default]
    ByStatus,
}

impl RetryAdvice {
    /// Reads the header `x-should-retry`.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Self {
        match headers.get("x-should-retry").map(reqwest::header::HeaderValue::as_bytes) {
            Some(b"true") => Self::Retry,
            Some(b"false") => Self::GiveUp,
            _ => Self::ByStatus,
        }
    }

    /// This advice, or `other` if this is [`RetryAdvice::ByStatus`].
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        match self {
            Self::ByStatus => other,
            advice => advice,
        }
    }

    /// Whether to retry after a response of this status.
    #[must_use]
    pub const fn should_retry(self, status: u16) -> bool {
        match self {
            Self::Retry => true,
            Self::GiveUp => false,
            Self::ByStatus => matches!(status, 408 | 409 | 429) || status >= 500,
        }
    }
}

/// Whether this status makes all calls of the key wait: rate limit or overload.
#[must_use]
pub const fn is_limit(status: u16) -> bool {
    matches!(status, 429 | 529)
}

/// The requested wait: `retry-after-ms`, else `retry-after` in seconds or as a date. `None` if absent or zero.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    let wait = text("retry-after-ms").and_then(number).map(|millis| duration(millis / 1000.0));
    let wait = wait.or_else(|| {
        let after = text("retry-after")?;
        match number(after) {
            Some(seconds) => Some(duration(seconds)),
            None => {
                let date = httpdate::parse_http_date(after).ok()?;
                Some(Timestamp::from_system_time(date).duration_since(now))
            }
        }
    })?;
    (!wait.is_zero()).then(|| wait.min(MAX_RETRY_AFTER))
}

/// Converts seconds; negative values and NaN give zero.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(if seconds > 0.0 {
        MAX_RETRY_AFTER
    } else {
        Duration::ZERO
    })
}

/// The backoff before retry `retry` (from 0): `min(0.5 * 2^n, 8) * (1 - 0.25 * random)`.
#[must_use]
pub fn backoff(retry: u32, random: f64) -> Duration {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(8)).jittered(retry, 0.25, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn backoff_grows_to_eight_seconds_with_jitter() {
        let waits: Vec<f64> = (0..7).map(|retry| backoff(retry, 0.0).as_secs_f64()).collect();
        assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]);
        assert_eq!(backoff(1, 1.0), Duration::from_millis(750));
        assert_eq!(backoff(u32::MAX, 0.0), Duration::from_secs(8));
    }

    #[test]
    fn retry_headers_are_read_in_order_and_invalid_ones_ignored() {
        let now = Timestamp::from_millis(784_111_770_000);
        for (pairs, expected) in [
            (&[("retry-after-ms", "1500"), ("retry-after", "9")][..], Some(1500)),
            (&[("retry-after-ms", "soon"), ("retry-after", "9")], Some(9000)),
            (&[("retry-after", "0.25")], Some(250)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(7000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], None),
            (&[("retry-after", "0")], None),
            (&[("retry-after", "-3")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "inf")], Some(4_294_967_000)),
            (&[("retry-after", "1e300")], Some(4_294_967_000)),
            (&[("retry-after", "tomorrow")], None),
            (&[], None),
        ] {
            let actual = retry_after(&headers(pairs), now);
            assert_eq!(actual, expected.map(Duration::from_millis), "{pairs:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_requested_wait_is_within_its_limits(after in "\\PC*", millis in "[-+.0-9eEinfaNx ]*") {
            let value = |text: &str| reqwest::header::HeaderValue::from_str(text).ok();
            let pairs = [("retry-after", value(&after)), ("retry-after-ms", value(&millis))];
            let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name.parse().ok()?, value?)));
            let headers: HeaderMap = pairs.collect();
            let wait = retry_after(&headers, Timestamp::from_millis(784_111_770_000));
            proptest::prop_assert!(wait.is_none_or(|wait| !wait.is_zero() && wait <= MAX_RETRY_AFTER));
        }
    }

    #[test]
    fn the_retry_advice_takes_precedence_over_the_status() {
        let retried = |pairs: &[(&'static str, &str)], status| {
            RetryAdvice::from_headers(&headers(pairs)).should_retry(status)
        };
        for status in [408, 409, 429, 500, 503, 529] {
            assert!(retried(&[], status), "{status}");
            assert!(!retried(&[("x-should-retry", "false")], status), "{status}");
        }
        for status in [400, 401, 403, 404, 413] {
            assert!(!retried(&[], status), "{status}");
            assert!(retried(&[("x-should-retry", "true")], status), "{status}");
        }
    }
}
