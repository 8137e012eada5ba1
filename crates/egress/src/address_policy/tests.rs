use super::*;

fn policy(ranges: &[&str]) -> AddressPolicy {
    AddressPolicy::public_only().with_allowed(ranges.iter().map(|range| range.parse().unwrap()))
}

fn check(policy: &AddressPolicy, address: &str, expected: Result<&str, AddressKind>) {
    let expected = expected.map(|address| address.parse().unwrap());
    assert_eq!(policy.check(address.parse().unwrap()), expected, "{address}");
}

#[test]
fn by_default_only_public_addresses_are_allowed() {
    let policy = AddressPolicy::default();
    check(&policy, "1.1.1.1", Ok("1.1.1.1"));
    check(&policy, "::ffff:1.1.1.1", Ok("1.1.1.1"));
    check(&policy, "127.0.0.1", Err(AddressKind::Loopback));
    check(&policy, "::ffff:127.0.0.1", Err(AddressKind::Loopback));
}

#[test]
fn ranges_that_the_embedder_lists_are_allowed_and_nothing_else() {
    let policy = policy(&["10.1.0.0/16", "fd12::/16", "127.0.0.1"]);
    check(&policy, "10.1.255.255", Ok("10.1.255.255"));
    check(&policy, "::ffff:10.1.0.1", Ok("10.1.0.1"));
    check(&policy, "10.2.0.0", Err(AddressKind::Private));
    check(&policy, "fd12:3::1", Ok("fd12:3::1"));
    check(&policy, "fd13::1", Err(AddressKind::Private));
    check(&policy, "127.0.0.1", Ok("127.0.0.1"));
    check(&policy, "127.0.0.2", Err(AddressKind::Loopback));
    check(&policy, "64:ff9b::10.1.0.1", Err(AddressKind::Private));
}

#[test]
fn a_metadata_address_must_be_listed_as_a_single_address() {
    check(&policy(&["169.254.0.0/16"]), "169.254.169.254", Err(AddressKind::Metadata));
    check(&policy(&["169.254.0.0/16"]), "169.254.1.1", Ok("169.254.1.1"));
    check(&policy(&["169.254.169.254"]), "169.254.169.254", Ok("169.254.169.254"));
    check(&policy(&["0.0.0.0/0"]), "168.63.129.16", Err(AddressKind::Metadata));
    check(&policy(&["::/0"]), "fd00:ec2::254", Err(AddressKind::Metadata));
}

#[test]
fn the_machines_own_address_must_be_listed_as_a_single_address_or_be_loopback() {
    let allows_own =
        |range: &str, address: &str| policy(&[range]).allows_own_address(address.parse().unwrap());
    assert!(allows_own("10.1.2.3", "10.1.2.3"));
    assert!(allows_own("127.0.0.0/8", "127.0.0.5"));
    assert!(!allows_own("10.1.2.0/24", "10.1.2.3"));
    assert!(!allows_own("0.0.0.0/0", "1.1.1.1"));
}

#[test]
fn the_text_form_of_ranges_round_trips() {
    for text in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "fd12::/16", "1.2.3.4/32"] {
        assert_eq!(text.parse::<AddressRange>().unwrap().to_string(), text);
    }
    assert_eq!("::1".parse::<AddressRange>().unwrap().to_string(), "::1/128");
    for text in ["", "10.0.0.1/8", "10.0.0.0/33", "::1/64", "10.0.0.0/", "10.0.0.0/-1", "10/8", "localhost"] {
        let error = text.parse::<AddressRange>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{text}` is no range")), "{error}");
    }
}
