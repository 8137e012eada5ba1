//! Parses the dates of HTTP headers (RFC 9110, 5.6.7).

use conjure_base::Timestamp;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`, the only form that is still sent. A date before 1970 gives `None`.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (_, date) = text.split_once(", ")?;
    let mut fields = date.split_ascii_whitespace();
    let day: u64 = fields.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = fields.next().and_then(|field| MONTHS.iter().position(|month| *month == field))? as u64 + 1;
    let year: u64 = fields.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut time = fields.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    if hour > 23 || minute > 59 || second > 60 || time.next().is_some() || fields.next() != Some("GMT") {
        return None;
    }
    // Let years begin in March, so that the leap day is the last day of the year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days_before_1970 = 719_468;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = days.checked_sub(days_before_1970)? * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn http_dates_are_parsed_and_other_texts_are_not() {
        let parsed = |text| parse(text).map(|time| time.to_string());
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some("1994-11-06T08:49:37.000Z")),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some("1970-01-01T00:00:00.000Z")),
            ("Thu, 29 Feb 2024 23:59:59 GMT", Some("2024-02-29T23:59:59.000Z")),
            ("Sun, 01 Mar 2026 00:00:00 GMT", Some("2026-03-01T00:00:00.000Z")),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some("9999-12-31T23:59:59.000Z")),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("soon", None),
        ] {
            assert_eq!(parsed(text).as_deref(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}|[A-Z][a-z]{2}, [0-9]{1,4} [A-Z][a-z]{2} [0-9]{1,20} [0-9:]{0,12} GMT") {
            let _ = parse(&text);
        }
    }
}
