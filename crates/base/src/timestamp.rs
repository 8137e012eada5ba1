//! Points in wall-clock time, as events record them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The latest time that RFC 3339 can write, the end of the year 9999, in milliseconds.
const MAX_RFC_3339: u64 = 253_402_300_799_999;

/// A time in milliseconds since the Unix epoch. JSON has the number; [`fmt::Display`] writes RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The time `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The same time, in whole milliseconds. A time before 1970 becomes 1970.
    #[must_use]
    pub fn from_system_time(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// The time that lies `duration` after this one, in whole milliseconds. An overflow saturates.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time from `earlier` to this. It is zero when this is the earlier one, since wall clocks jump.
    #[must_use]
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_millis(self.0.min(MAX_RFC_3339));
        fmt::Display::fmt(&humantime::format_rfc3339_millis(time), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_rfc_3339() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(1_795_248_000_123).to_string(), "2026-11-21T08:00:00.123Z");
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_clock_that_jumps_back_gives_no_negative_span() {
        let (early, late) = (Timestamp::from_millis(5), Timestamp::from_millis(9));
        assert_eq!(late.duration_since(early), Duration::from_millis(4));
        assert_eq!(early.duration_since(late), Duration::ZERO);
    }
}
