//! The names of the journal's counters: the resource, and the day or month in UTC.
//!
//! Each day has its own counter. So the spending of a day stays recorded, even if the clock is wrong: a clock that jumps ahead and
//! back finds each day's counter unchanged.

use conjure_base::Timestamp;

use super::budget::{BudgetResource, Period};

const MILLIS_A_DAY: u64 = 24 * 60 * 60 * 1_000;

/// The last day with its own name: the end of the year 9999. Later days count as this one.
const LAST_DAY: u64 = 2_932_896;

/// At least this many days and months with spending are kept for each resource.
const KEPT_DAYS: usize = 62;
const KEPT_MONTHS: usize = 14;

/// The counters that can be deleted: those of days and months that ended long ago and are followed by many others with spending. A
/// clock that only jumps ahead makes no counter old. Unknown names stay.
#[must_use]
pub fn past_counters(names: &[String], now: Timestamp) -> Vec<String> {
    let mut past = Vec::new();
    for resource in [BudgetResource::Tokens, BudgetResource::Cost] {
        for (period, kept, days) in [(Period::Day, KEPT_DAYS, 61), (Period::Month, KEPT_MONTHS, 364)] {
            let before = Timestamp::from_millis(now.millis().saturating_sub(days * MILLIS_A_DAY));
            let oldest = counter_name(resource, period, before);
            let (total, length) = (counter_name(resource, Period::Total, now), oldest.len());
            let is_of = |name: &&String| {
                let date = name.strip_prefix(total.as_str()).and_then(|date| date.strip_prefix(' '));
                name.len() == length && date.is_some_and(is_date)
            };
            // Sorted by name, the counters are in the order of time.
            let mut all: Vec<&String> = names.iter().filter(is_of).collect();
            all.sort_unstable();
            all.truncate(all.len().saturating_sub(kept));
            past.extend(all.into_iter().filter(|name| **name < oldest).cloned());
        }
    }
    past
}

/// Whether the text is a date as in these names: digits, separated by dashes.
fn is_date(text: &str) -> bool {
    let is_dash = |place: usize| matches!(place, 4 | 7);
    text.bytes()
        .enumerate()
        .all(|(place, byte)| if is_dash(place) { byte == b'-' } else { byte.is_ascii_digit() })
}

/// The counter of this resource for the period that contains this time.
pub(crate) fn counter_name(resource: BudgetResource, period: Period, at: Timestamp) -> String {
    let resource = match resource {
        BudgetResource::Tokens => "tokens",
        BudgetResource::Cost => "cost-micros",
    };
    let (year, month, day) = civil_date((at.millis() / MILLIS_A_DAY).min(LAST_DAY));
    match period {
        Period::Total => resource.to_owned(),
        Period::Day => format!("{resource} {year:04}-{month:02}-{day:02}"),
        Period::Month => format!("{resource} {year:04}-{month:02}"),
    }
}

/// The year, month and day of this many days after 1970-01-01, in the Gregorian calendar.
const fn civil_date(days: u64) -> (u64, u64, u64) {
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

    fn at(day: u64) -> Timestamp {
        Timestamp::from_millis(day * MILLIS_A_DAY + 1)
    }

    /// The counters after spending on all of these days.
    fn spent(days: impl Iterator<Item = u64>) -> Vec<String> {
        let mut names =
            vec!["tokens".to_owned(), "cost-micros".to_owned(), "tokens of another kind".to_owned()];
        for day in days {
            for resource in [BudgetResource::Tokens, BudgetResource::Cost] {
                names.extend(
                    [Period::Day, Period::Month].map(|period| counter_name(resource, period, at(day))),
                );
            }
        }
        names.sort();
        names.dedup();
        names
    }

    #[test]
    fn counters_of_days_and_months_that_are_long_over_are_past_and_no_others() {
        let now = 20_000;
        let names = spent(now - 1_000..=now);
        let past = past_counters(&names, at(now));
        let left: Vec<&String> = names.iter().filter(|name| !past.contains(name)).collect();
        assert!(past.iter().all(|name| names.contains(name)));
        assert_eq!(left.len(), 2 * (62 + 14) + 3, "{left:?}");
        for resource in [BudgetResource::Tokens, BudgetResource::Cost] {
            for day in now - 61..=now {
                assert!(left.contains(&&counter_name(resource, Period::Day, at(day))));
            }
            assert!(left.contains(&&counter_name(resource, Period::Month, at(now - 365))));
            assert!(past.contains(&counter_name(resource, Period::Day, at(now - 63))));
        }
        // Tomorrow only one more day is past.
        let left: Vec<String> = left.into_iter().cloned().collect();
        assert!(past_counters(&left, at(now)).is_empty());
        // A tenant that spends something now and then keeps what it spent, however long ago.
        assert!(past_counters(&spent((now - 10_000..=now).step_by(1_000)), at(now)).is_empty());
    }

    #[test]
    fn a_clock_that_jumps_ahead_and_back_finds_what_was_spent() {
        let (now, years) = (20_000, 4_000);
        // All of a usual life, then a month in the future.
        let ahead = now + years..now + years + 30;
        let names = spent((now - 200..=now).chain(ahead));
        let past = past_counters(&names, at(now + years + 30));
        for resource in [BudgetResource::Tokens, BudgetResource::Cost] {
            for day in now - 30..=now {
                assert!(!past.contains(&counter_name(resource, Period::Day, at(day))));
            }
            assert!(!past.contains(&counter_name(resource, Period::Month, at(now))));
        }
        // Back again, what lies ahead stays: it may be the truth.
        let past = past_counters(&names, at(now));
        assert!(!past.contains(&counter_name(BudgetResource::Tokens, Period::Day, at(now + years))));
        // A clock that shows the beginning of time makes nothing old.
        assert!(past_counters(&names, at(0)).is_empty());
    }

    #[test]
    fn a_day_is_named_as_its_timestamp_is_written() {
        for day in (0..=LAST_DAY).step_by(97).chain([LAST_DAY, 789, 790, 11_016, 11_017]) {
            let at = Timestamp::from_millis(day * MILLIS_A_DAY + 86_399_999);
            let written = at.to_string();
            assert_eq!(
                counter_name(BudgetResource::Tokens, Period::Day, at),
                format!("tokens {}", &written[..10])
            );
            assert_eq!(
                counter_name(BudgetResource::Cost, Period::Month, at),
                format!("cost-micros {}", &written[..7])
            );
        }
        assert_eq!(
            counter_name(BudgetResource::Tokens, Period::Day, Timestamp::from_millis(u64::MAX)),
            "tokens 9999-12-31"
        );
        assert_eq!(counter_name(BudgetResource::Tokens, Period::Total, Timestamp::from_millis(7)), "tokens");
    }
}
