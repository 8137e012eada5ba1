//! Points in time as the API writes them: RFC 3339.

use std::fmt;
use std::str::FromStr;

use conjure_base::Timestamp;
use serde::{Deserialize, Serialize};

/// A point in time. It is written in RFC 3339, in UTC, with milliseconds. It is read with any UTC offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Time(pub Timestamp);

/// The error for a text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as in RFC 3339, such as 2026-11-26T08:00:00Z")]
pub struct TimeError(String);

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl TryFrom<String> for Time {
    type Error = TimeError;

    fn try_from(text: String) -> Result<Self, TimeError> {
        text.parse()
    }
}

impl FromStr for Time {
    type Err = TimeError;

    /// Parses a time of 1970 or later. A time without an offset is in UTC. Fractions of a millisecond are cut off.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        parse(text)
            .map(|millis| Self(Timestamp::from_millis(millis)))
            .ok_or_else(|| TimeError(text.to_owned()))
    }
}

/// Parses an RFC 3339 time to milliseconds since the Unix epoch.
fn parse(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase();
    let (time, offset) = match text.split_at_checked(text.len().saturating_sub("+00:00".len())) {
        Some((time, offset)) if offset.starts_with(['+', '-']) => (time, offset_millis(offset)?),
        _ => (text.strip_suffix('Z').unwrap_or(&text), 0),
    };
    // `humantime` would also take a zone here, and a fraction without digits.
    if time.contains(['Z', '+']) || time.ends_with('.') {
        return None;
    }
    let utc = Timestamp::from_system_time(humantime::parse_rfc3339_weak(time).ok()?);
    utc.millis().checked_add_signed(-offset)
}

/// Parses an offset of the form `+02:00`. Returns its milliseconds ahead of UTC.
fn offset_millis(text: &str) -> Option<i64> {
    let digits =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (hours, minutes): (i64, i64) = (digits(text.get(1..3)?)?, digits(text.get(4..)?)?);
    let millis = (hours * 60 + minutes) * 60_000;
    let is_valid = hours < 24 && minutes < 60 && text.get(3..4) == Some(":");
    is_valid.then_some(if text.starts_with('-') { -millis } else { millis })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_forms_of_rfc_3339_are_read() {
        let check = |text: &str, millis: u64| {
            assert_eq!(text.parse::<Time>().unwrap().0.millis(), millis, "{text}");
        };
        check("1970-01-01T00:00:00Z", 0);
        check("2026-11-21T08:00:00.123Z", 1_795_248_000_123);
        check("2026-11-21t08:00:00.1239999z", 1_795_248_000_123);
        check("2026-11-21 10:00:00.1+02:00", 1_795_248_000_100);
        check("2026-11-21T03:30:00-04:30", 1_795_248_000_000);
        check("2026-11-21T08:00:00", 1_795_248_000_000);
        check("2024-02-29T00:00:00Z", 1_709_164_800_000);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T08:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T08:00:00.Z",
            "2026-11-21T08:00:00+2",
            "2026-11-21T08:00:00Zz",
            "2026-11-21T08:00:00Z+02:00",
            "2026-11-21T08:00:00+2:000",
            "1969-12-31T23:59:59Z",
            "+026-11-21T08:00:00Z",
            "äääääääääääääääääääääää",
        ] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_times_are_parsed_back(millis in 0..253_402_300_800_000_u64) {
            let time = Time(Timestamp::from_millis(millis));
            prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+:.TZ 0-9ä]{0,40}") {
            let _ = text.parse::<Time>();
        }
    }
}
