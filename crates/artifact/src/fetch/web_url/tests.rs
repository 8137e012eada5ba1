use proptest::prelude::*;

use super::*;
use crate::error::MAX_EXCERPT;

fn read(text: &str) -> Result<WebUrl, WebUrlError> {
    WebUrl::try_from(UncheckedUrl::parse(text)?)
}

fn check(text: &str, expected: &str) {
    match read(text) {
        Ok(url) => assert_eq!(url.as_str(), expected, "{text:?}"),
        Err(WebUrlError(reason)) => assert!(reason.contains(expected), "{text:?}: {reason}"),
    }
}

fn is_refused(text: &str, why: &str) {
    let WebUrlError(reason) = read(text).expect_err(text);
    assert!(reason.contains(why), "{text:?}: {reason}");
}

#[test]
fn equivalent_urls_are_normalized() {
    check("https://Example.COM", "https://example.com/");
    check("HTTPS://example.com.:443/a/../b?q=1#part", "https://example.com/b?q=1");
    check("https://bücher.example/", "https://xn--bcher-kva.example/");
    check("https://BÜCHER.example/", "https://xn--bcher-kva.example/");
    check("https://example。com/", "https://example.com/");
    check("https://%65xample.com/", "https://example.com/");
    check("https://example.com:0443/", "https://example.com/");
}

#[test]
fn every_notation_of_an_ip_address_is_parsed() {
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "0x7f.1",
        "0177.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "%31%32%37.0.0.1",
        "１２７.０.０.１",
        "127。0。0。1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
    ] {
        check(&format!("http://{host}:8080/x"), "http://127.0.0.1:8080/x");
        assert_eq!(read(&format!("http://{host}:8080/x")).unwrap().target().to_string(), "127.0.0.1:8080");
    }
    check("http://[::1]/", "http://[::1]/");
}

#[test]
fn invalid_urls_are_rejected_with_a_reason() {
    is_refused("https://user@example.com/", "user name");
    is_refused("https://user:secret@example.com/", "user name");
    is_refused("https://:secret@example.com/", "user name");
    is_refused("https://example.com%40evil.example/", "invalid");
    is_refused("https://", "host");
    is_refused("https:///example.com/", "https://HOST/PATH");
    is_refused("https:example.com/", "https://HOST/PATH");
    is_refused("https:/example.com/", "https://HOST/PATH");
    is_refused("example.com/", "https://HOST/PATH");
    is_refused("", "https://HOST/PATH");
    is_refused("https://?x", "host");
    is_refused("https://:80/", "host");
    is_refused("https://example.com:0/", "port");
    is_refused("https://example.com:65536/", "port");
    is_refused("https://example.com:https/", "port");
    is_refused("https://a..b/", "empty label");
    is_refused("https://-a.example/", "hyphen");
    is_refused("https://256.256.256.256/", "invalid IPv4");
    is_refused("https://1.2.3.4.5/", "IPv4");
    is_refused("https://[fe80::1%25eth0]/", "IPv6");
    is_refused("https://[::1/", "IPv6");
    is_refused("https://exa mple.com/", "' '");
    is_refused(" https://example.com/", "' '");
    is_refused("https://exam\nple.com/", "'\\n'");
    is_refused("https://example.com\\@evil.example/", "'\\\\'");
    is_refused("https://example.com/\u{2028}", "u{2028}");
    is_refused("gopher://example.com/", "only `http` and `https`");
    is_refused(&format!("https://example.com/{}", "a".repeat(9000)), "longer than 8192 bytes");
}

#[test]
fn redirects_are_resolved_against_their_url() {
    let from = read("https://example.com/a/b?c=d").unwrap();
    let join =
        |location: &str| from.join(location).and_then(WebUrl::try_from).map(|url| url.as_str().to_owned());
    assert_eq!(join("e").unwrap(), "https://example.com/a/e");
    assert_eq!(join("/e?f").unwrap(), "https://example.com/e?f");
    assert_eq!(join("?g").unwrap(), "https://example.com/a/b?g");
    assert_eq!(join("//Other.example./e").unwrap(), "https://other.example/e");
    assert_eq!(join("http://2130706433/").unwrap(), "http://127.0.0.1/");
    assert!(join("//user@other.example/").is_err());
    assert!(join("\\\\other.example/").is_err());
    assert_eq!(from.join("file:///etc/passwd").unwrap().scheme(), "file");
}

#[test]
fn displayed_urls_are_redacted_and_truncated() {
    let displayed = |text: &str| read(text).unwrap().redacted();
    assert_eq!(
        displayed("https://example.com/a?key=secret&b=&secret#x"),
        "https://example.com/a?key=…&b=…&…"
    );
    assert_eq!(displayed("http://example.com:8080/"), "http://example.com:8080/");
    let long = displayed(&format!("https://example.com/{}", "a".repeat(500)));
    assert_eq!(long.chars().count(), MAX_EXCERPT + 1);
}

/// A part of an IPv4 address in one of its notations.
fn part(value: u32, radix: u8) -> String {
    match radix {
        0 => format!("0x{value:x}"),
        1 => format!("0{value:o}"),
        _ => value.to_string(),
    }
}

proptest! {
    #[test]
    fn no_notation_hides_an_address(bits in any::<u32>(), parts in 1..=4_u32, radix in proptest::array::uniform4(0..3_u8)) {
        let mut written = Vec::new();
        for offset in 0..parts - 1 {
            written.push(part(bits >> (24 - 8 * offset) & 0xff, radix[offset as usize]));
        }
        let rest = 8 * (5 - parts);
        written.push(part(bits & u32::MAX.checked_shl(rest).map_or(u32::MAX, |high| !high), radix[3]));
        let address = std::net::Ipv4Addr::from(bits);
        for host in [written.join("."), format!("{}.", written.join(".")), format!("[::ffff:{address}]")] {
            let url = read(&format!("http://{host}/")).unwrap();
            prop_assert_eq!(url.target().host(), &Host::from(std::net::IpAddr::from(address)), "{}", host);
        }
    }

    #[test]
    fn parsed_urls_round_trip(text in "https?://[a-zA-Z0-9.%äß\\[\\]:@_-]{1,24}(/[ -~]{0,16})?") {
        if let Ok(url) = read(&text) {
            prop_assert_eq!(&read(url.as_str()).unwrap(), &url);
            // reqwest dials the checked host.
            prop_assert_eq!(url.as_url().host_str().unwrap(), url.target().host().to_string());
            prop_assert_eq!(url.as_url().port_or_known_default(), Some(url.target().port()));
            prop_assert!(url.as_url().username().is_empty() && url.as_url().fragment().is_none());
        }
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in "\\PC{0,64}", location in "\\PC{0,64}") {
        let _ = read(&text);
        let _ = read("https://example.com/").unwrap().join(&location).map(WebUrl::try_from);
    }
}
