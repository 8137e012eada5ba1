use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: &str) {
    let read = match Host::parse(text) {
        Ok(host) => host.to_string(),
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(read, expected, "{text:?}");
}

#[test]
fn names_are_normalised() {
    check("example.com", "example.com");
    check("EXAMPLE.com.", "example.com");
    check("_dns.Example", "_dns.example");
    check("bücher.example", "xn--bcher-kva.example");
    check("BÜCHER.example", "xn--bcher-kva.example");
    check("xn--bcher-kva.example", "xn--bcher-kva.example");
    check("a。b．c｡d", "a.b.c.d");
    check("ｅｘａｍｐｌｅ.com", "example.com");
    check("exam\u{AD}ple.com", "example.com");
    check("r3---sn-4g5e.example", "r3---sn-4g5e.example");
}

#[test]
fn a_host_ending_in_a_number_is_an_address_or_invalid() {
    for text in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0X7F.0.0.1",
        "017700000001",
        "0177.0.0.01",
        "0x7f.0x1",
        "127.0.0.0x1",
        "１２７.0.0.1",
        "127。0。0。1",
        "⑯.example.①27.0.0.1",
    ] {
        if text.starts_with('⑯') {
            check(text, "NotIpv4");
        } else {
            check(text, "127.0.0.1");
        }
    }
    check("0", "0.0.0.0");
    check("0x", "0.0.0.0");
    check("4294967295", "255.255.255.255");
    check("010.1", "8.0.0.1");
    for text in [
        "4294967296",
        "256.1",
        "1.2.3.256",
        "1.2.3.4.5",
        "1..2",
        "08.1",
        "09",
        "1.2.3.08",
        "example.1",
        "example.0x1",
        "1.16777216",
        "0x1ffffffff",
        "99999999999999999999999999999999",
        "a.0xfffffffffffffffffffffffffff",
        ".1",
    ] {
        check(text, "NotIpv4");
    }
    check("1.2.3.4a", "1.2.3.4a");
    check("0xg", "0xg");
    check("1.com", "1.com");
}

#[test]
fn ipv6_addresses_have_one_form() {
    check("[::1]", "[::1]");
    check("::1", "[::1]");
    check("[0:0::0001]", "[::1]");
    check("[2001:DB8::A]", "[2001:db8::a]");
    check("[::ffff:169.254.169.254]", "169.254.169.254");
    check("[::ffff:a9fe:a9fe]", "169.254.169.254");
    check("[::169.254.169.254]", "[::a9fe:a9fe]");
    check("[fe80::1%eth0]", "Zone");
    check("fe80::1%25eth0", "Zone");
    check("[::1", "NotIpv6");
    check("[]", "NotIpv6");
    check("[127.0.0.1]", "NotIpv6");
    check("[::0x1]", "NotIpv6");
    check("[1:2:3:4:5:6:7:8:9]", "NotIpv6");
}

#[test]
fn an_invalid_host_gives_the_reason() {
    check("", "Empty");
    check(".", "Empty");
    check("..", "EmptyLabel");
    check("a..b", "EmptyLabel");
    check(".a", "EmptyLabel");
    check("a.b..", "EmptyLabel");
    check("-a.b", "Hyphen");
    check("a-.b", "Hyphen");
    check("a b", "Character(' ')");
    check("a%2eb", "Character('%')");
    check("a/b", "Character('/')");
    check("a@b", "Character('@')");
    check("a\0b", "Character('\\0')");
    check("a\r\nb", "Character('\\r')");
    check("good.example\\evil.example", "Character('\\\\')");
    check("℀.example", "International");
    check("a\u{FFFD}b", "International");
    check("xn--a", "International");
    check("xn--bcher-kva\u{301}.example", "International");
    check(&"a".repeat(64), "LabelTooLong");
    check(&format!("{}a", "a.".repeat(126)), &format!("{}a", "a.".repeat(126)));
    check(&format!("{}aa", "a.".repeat(126)), "TooLong");
    check(&"a.".repeat(512), "TooLong");
    check(&"a.".repeat(513), "TooLong");
}

#[test]
fn a_subdomain_has_any_depth_and_is_not_the_name_itself() {
    let name = |text: &str| text.parse::<HostName>().unwrap();
    assert!(name("a.example.com").is_subdomain_of(&name("example.com")));
    assert!(name("b.a.example.com").is_subdomain_of(&name("example.com")));
    assert!(!name("example.com").is_subdomain_of(&name("example.com")));
    assert!(!name("notexample.com").is_subdomain_of(&name("example.com")));
    assert!(!name("example.com.evil.org").is_subdomain_of(&name("example.com")));
}

/// Every host that we accept is the same host by the URL Standard.
fn agrees_with_the_standard(text: &str) {
    let actual = Host::parse(text);
    let reference = url::Host::parse(text);
    match (&actual, &reference) {
        (Ok(Host::Name(name)), Ok(url::Host::Domain(domain))) => {
            assert_eq!(name.as_str(), domain.strip_suffix('.').unwrap_or(domain), "{text:?}");
        }
        (Ok(Host::Address(address)), Ok(url::Host::Ipv4(reference))) => {
            assert_eq!(*address, IpAddr::V4(*reference))
        }
        (Ok(Host::Address(address)), Ok(url::Host::Ipv6(reference))) => {
            assert_eq!(*address, IpAddr::V6(*reference).to_canonical());
        }
        // The form without brackets is for SOCKS, not for URLs.
        (Ok(Host::Address(IpAddr::V6(_) | IpAddr::V4(_))), Err(_)) if text.contains(':') => {}
        (Err(_), _) => {}
        _ => panic!("{text:?}: {actual:?} here, {reference:?} by the standard"),
    }
    if let Ok(host) = actual {
        assert_eq!(Host::parse(&host.to_string()).as_ref(), Ok(&host), "{text:?} has one form");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_agrees_with_the_standard(text in any::<String>()) {
        agrees_with_the_standard(&text);
    }

    #[test]
    fn host_like_text_agrees_with_the_standard(
        text in "[0-9a-fA-FxX.:\\[\\]%ßéÄ．１①ⅷ-]{0,24}|(xn--)?[a-z0-9-]{1,10}(\\.[a-z0-9xX]{0,5}){0,4}",
    ) {
        agrees_with_the_standard(&text);
    }

    #[test]
    fn every_spelling_of_an_address_is_that_address(
        value in any::<u32>(),
        parts in 1_usize..=4,
        radixes in proptest::array::uniform4(0_u8..3),
        dot in any::<bool>(),
    ) {
        let mut numbers: Vec<u32> = (0..parts - 1).map(|offset| value >> (24 - 8 * offset) & 0xff).collect();
        numbers.push(value & u32::MAX.checked_shr(8 * (parts as u32 - 1)).unwrap_or(0));
        let spelled: Vec<String> = numbers.iter().zip(radixes).map(|(number, radix)| match radix {
            0 => format!("{number}"),
            1 => format!("0{number:o}"),
            _ => format!("0x{number:X}"),
        }).collect();
        let text = spelled.join(".") + if dot { "." } else { "" };
        prop_assert_eq!(Host::parse(&text), Ok(Host::Address(Ipv4Addr::from(value).into())), "{}", text);
    }
}
