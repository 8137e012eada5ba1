//! How long a response may be reused without asking its server again, from `Cache-Control` (RFC 9111).
//!
//! The server can only shorten the configured time. Directives for shared caches (`s-maxage`) and `Expires`, which needs the
//! server's clock, are ignored.

use std::time::Duration;

use reqwest::header::{AGE, CACHE_CONTROL, HeaderMap};

/// How long a response may be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The server says nothing; the configured time applies.
    Default,
    /// At most this long since the response was generated (`max-age`). Zero means to revalidate each time (`no-cache`).
    MaxAge(Duration),
    /// It must not be cached (`no-store`).
    NoStore,
}

impl Freshness {
    /// Reads `Cache-Control`; `None` without that header.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(CACHE_CONTROL).iter();
        values
            .map(|value| Self::from_directives(&String::from_utf8_lossy(value.as_bytes())))
            .reduce(Self::stricter)
    }

    fn from_directives(value: &str) -> Self {
        let directives = value.split(',').map(|directive| {
            let (name, argument) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => Self::NoStore,
                // A directive for some headers only (`no-cache="set-cookie"`) is treated as one for the whole response.
                "no-cache" => Self::MaxAge(Duration::ZERO),
                "max-age" => Self::MaxAge(seconds(argument).unwrap_or_default()),
                _ => Self::Default,
            }
        });
        directives.fold(Self::Default, Self::stricter)
    }

    /// Returns the stricter of the two.
    pub(crate) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::NoStore, _) | (_, Self::NoStore) => Self::NoStore,
            (Self::MaxAge(one), Self::MaxAge(other)) => Self::MaxAge(one.min(other)),
            (Self::Default, other) => other,
            (one, Self::Default) => one,
        }
    }

    /// The freshness left for a response of this age.
    pub(crate) fn minus_age(self, age: Duration) -> Self {
        match self {
            Self::MaxAge(max_age) => Self::MaxAge(max_age.saturating_sub(age)),
            other => other,
        }
    }
}

/// The age of a response when it arrived, from the `Age` header of a cache on the way.
pub(crate) fn age(headers: &HeaderMap) -> Duration {
    let ages = headers.get_all(AGE).iter().filter_map(|value| seconds(value.to_str().ok()?));
    ages.max().unwrap_or_default()
}

/// Parses a number of seconds; `None` if it is not a number.
fn seconds(text: &str) -> Option<Duration> {
    let digits = text.trim().trim_matches('"');
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // A number that does not fit is capped.
    Some(Duration::from_secs(digits.parse::<u32>().unwrap_or(u32::MAX).into()))
}

#[cfg(test)]
mod tests;
