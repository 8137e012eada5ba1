//! The names of the journal's counters: what is counted, and the day or month in UTC.
//!
//! Each day has a counter of its own, so whatever a clock does, what was spent on a day stays spent: one that jumps ahead and
//! back finds each day as it left it.

use conjure_base::Timestamp;

use super::budget::{Good, Period};

const MILLIS_A_DAY: u64 = 24 * 60 * 60 * 1_000;

/// The last day that has a name of its own: the end of the year 9999. What comes after it counts as that.
const LAST_DAY: u64 = 2_932_896;

/// The counter of this good for the period in which this moment lies.
pub(crate) fn counter(good: Good, period: Period, at: Timestamp) -> String {
    let good = match good {
        Good::Tokens => "tokens",
        Good::Micros => "cost-micros",
    };
    let (year, month, day) = civil((at.millis() / MILLIS_A_DAY).min(LAST_DAY));
    match period {
        Period::Total => good.to_owned(),
        Period::Day => format!("{good} {year:04}-{month:02}-{day:02}"),
        Period::Month => format!("{good} {year:04}-{month:02}"),
    }
}

/// Year, month and day of so many days after 1970-01-01, in the Gregorian calendar.
const fn civil(days: u64) -> (u64, u64, u64) {
    // Counted from 0000-03-01, so that a leap day is the last one of its year.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_named_as_its_timestamp_is_written() {
        for day in (0..=LAST_DAY).step_by(97).chain([LAST_DAY, 789, 790, 11_016, 11_017]) {
            let at = Timestamp::from_millis(day * MILLIS_A_DAY + 86_399_999);
            let written = at.to_string();
            assert_eq!(counter(Good::Tokens, Period::Day, at), format!("tokens {}", &written[..10]));
            assert_eq!(counter(Good::Micros, Period::Month, at), format!("cost-micros {}", &written[..7]));
        }
        assert_eq!(counter(Good::Tokens, Period::Day, Timestamp::from_millis(u64::MAX)), "tokens 9999-12-31");
        assert_eq!(counter(Good::Tokens, Period::Total, Timestamp::from_millis(7)), "tokens");
    }
}
