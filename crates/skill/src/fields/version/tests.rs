use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[test]
fn versions_compare_in_release_order() {
    for (earlier, later) in [
        ("2.9", "2.10"),
        ("2.39.5", "2.40"),
        ("3.12.0a1", "3.12.0b1"),
        ("3.12.0b4", "3.12.0rc1"),
        ("3.12.0rc1", "3.12.0rc2"),
        ("3.12.0rc1", "3.12"),
        ("1.22rc1", "1.22"),
        ("1.0.0-alpha.1", "1.0.0-beta"),
        ("1.0.0-dev", "1.0.0-alpha"),
        ("1.1.1", "1.1.1a"),
        ("1.1.1v", "1.1.1w"),
        ("1.1.1w", "1.1.2"),
        ("9.2", "9.2p1"),
        ("9.2p1", "9.3"),
        ("1.8.0_291", "1.8.0_392"),
        ("1.8.0_392", "17.0.9"),
        ("9.9", "1:0.1"),
        ("1:0.1", "2:0.0.1"),
        ("590", "591"),
    ] {
        assert_eq!(version(earlier).cmp(&version(later)), Ordering::Less, "{earlier} and {later}");
    }
    for (one, other) in [
        ("2.40", "2.40.0"),
        ("2", "2.0.0"),
        ("v1.2", "1.2"),
        ("1.2-1ubuntu2", "1.2"),
        ("5.1.6-0+deb12u1", "5.1.6"),
        ("2.39.5 (Apple Git-154)", "2.39.5"),
        ("5.2.15(1)-release", "5.2.15"),
        ("1.0-rc.1", "1.0rc1"),
    ] {
        assert_eq!(version(one), version(other), "{one} and {other}");
    }
    for text in ["", "git", "v", ".1", "-1", "1.2banana3", "1..2", "1.", "1.2\n3", &"1.".repeat(50)] {
        assert!(text.parse::<Version>().is_err(), "{text:?}");
    }
}

/// What programs write of their version; `measured`: by running them on Debian 12 and its like, else from knowledge of
/// their releases.
#[test]
fn versions_are_found_in_the_output_of_programs() {
    let table = include_str!("outputs.txt");
    let mut count = 0;
    for entry in table.split("\n=== ").skip(1) {
        let (head, said) = entry.split_once('\n').unwrap();
        let mut words = head.split(' ');
        let (command, expected) = (words.next().unwrap(), words.next().unwrap());
        let found = Version::in_output(said).map(|version| version.to_string());
        assert_eq!(found.as_deref(), Some(expected).filter(|text| *text != "none"), "{command}: {said}");
        count += 1;
    }
    assert!(count >= 30, "{count}");
}

proptest! {
    #[test]
    fn versions_are_searched_in_any_text(said in r"([0-9a-z.:_(~+-]|[ \n]){0,40}") {
        if let Some(version) = Version::in_output(&said) {
            prop_assert!(said.contains(&version.to_string()));
        }
    }

    #[test]
    fn order_is_total(texts in proptest::collection::vec(r"([0-9]:)?[0-9]{1,2}(\.[0-9]){0,2}(rc[0-9]|[a-c]|p[0-9]|-dev)?", 3)) {
        let versions: Vec<Version> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let [a, b, c] = &versions[..] else { unreachable!() };
        prop_assert_eq!(a.cmp(b), b.cmp(a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        prop_assert_eq!(a == b, a.cmp(b) == Ordering::Equal);
    }

    #[test]
    fn numbers_compare_as_numbers(a in proptest::collection::vec(0_u64..30, 1..4), b in proptest::collection::vec(0_u64..30, 1..4)) {
        let text = |numbers: &[u64]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
        let padded = |numbers: &[u64]| { let mut numbers = numbers.to_vec(); numbers.resize(4, 0); numbers };
        prop_assert_eq!(version(&text(&a)).cmp(&version(&text(&b))), padded(&a).cmp(&padded(&b)));
    }
}
