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
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let [year, month, day] = numbers(date, b'-', [4, 2, 2])?;
    let clock = rest.strip_prefix(['T', 't', ' '])?;
    let [hour, minute, second] = numbers(clock.get(..8)?, b':', [2, 2, 2])?;
    let (millis, offset) = fraction(clock.get(8..)?)?;
    let days_in_month = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second counts as the second after it.
    if !(1..=days_in_month).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = (days_since_epoch(year, month, day) * 24 + hour) * 3600 + minute * 60 + second;
    let utc = seconds - offset_seconds(offset)?;
    u64::try_from(utc * 1000 + millis).ok()
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    // Let years begin in March, so that the leap day is the last day of the year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Parses three numbers of these widths, with `separator` between them.
fn numbers(text: &str, separator: u8, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(char::from(separator));
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        *number = digits(parts.next()?, width)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Parses a number of exactly `width` digits.
fn digits(text: &str, width: usize) -> Option<i64> {
    let fits = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// Parses a fraction of a second. Returns its milliseconds and the rest of the text.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    if end == 0 {
        return None;
    }
    let millis = format!("{:0<3}", &rest[..end.min(3)]).parse().ok()?;
    Some((millis, &rest[end..]))
}

/// Parses an offset such as `+02:00`. Returns its seconds ahead of UTC.
fn offset_seconds(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first() {
        None | Some(b'Z' | b'z') if text.len() < 2 => return Some(0),
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
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
