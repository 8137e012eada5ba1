use reqwest::header::HeaderValue;

use super::*;

const fn at_most(seconds: u64) -> Freshness {
    Freshness::MaxAge(Duration::from_secs(seconds))
}

fn freshness_of(values: &[&'static str]) -> Option<Freshness> {
    Freshness::from_headers(
        &values.iter().map(|value| (CACHE_CONTROL, HeaderValue::from_static(value))).collect(),
    )
}

fn aged(values: &[&'static str]) -> u64 {
    age(&values.iter().map(|value| (AGE, HeaderValue::from_static(value))).collect()).as_secs()
}

#[test]
fn the_strictest_cache_directive_applies() {
    let check =
        |value: &'static str, expected| assert_eq!(freshness_of(&[value]), Some(expected), "{value:?}");
    check("", Freshness::Default);
    check("public, immutable", Freshness::Default);
    check("max-age=5, public", at_most(5));
    check("Max-Age = 7", at_most(7));
    check("max-age=\"9\"", at_most(9));
    check("max-age=60, max-age=5, max-age=7", at_most(5));
    check("s-maxage=5, stale-while-revalidate=30", Freshness::Default);
    check("x-max-age=5", Freshness::Default);
    check("No-Store", Freshness::NoStore);
    check("no-cache, no-store", Freshness::NoStore);
    check("no-store,no-cache, max-age=60", Freshness::NoStore);
    check("private, no-cache=\"set-cookie\"", at_most(0));
    check("no-cache, max-age=60", at_most(0));
    assert_eq!(freshness_of(&["public", "no-store"]), Some(Freshness::NoStore));
    assert_eq!(freshness_of(&["max-age=60", "max-age=5"]), Some(at_most(5)));
    assert_eq!(freshness_of(&[]), None);
}

#[test]
fn invalid_max_ages_are_ignored_and_large_ones_saturate() {
    for value in ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age=five", "max-age=+5"] {
        assert_eq!(freshness_of(&[value]), Some(at_most(0)), "{value:?}");
    }
    assert_eq!(freshness_of(&["max-age=99999999999999999999999"]), Some(at_most(u32::MAX.into())));
}

#[test]
fn the_age_header_shortens_freshness() {
    assert_eq!(at_most(60).minus_age(Duration::from_secs(50)), at_most(10));
    assert_eq!(at_most(60).minus_age(Duration::from_secs(70)), at_most(0));
    assert_eq!(Freshness::Default.minus_age(Duration::from_secs(70)), Freshness::Default);
    assert_eq!(
        (aged(&[]), aged(&["50"]), aged(&["5", "50"]), aged(&["-5"]), aged(&["x"])),
        (0, 50, 50, 0, 0)
    );
}
