use proptest::prelude::*;

use super::*;

fn connect(address_type: u8, rest: &[u8]) -> Vec<u8> {
    [&[5, 1, 0, address_type], rest].concat()
}

fn check(bytes: &[u8], expected: &str) {
    let shown = match parse_request(bytes) {
        Ok(None) => "incomplete".to_owned(),
        Ok(Some((target, used))) => format!("{target} {used}"),
        Err(reason) => reason.to_string(),
    };
    assert_eq!(shown, expected, "{bytes:?}");
}

#[test]
fn the_three_address_types_are_read() {
    check(&connect(1, &[1, 2, 3, 4, 1, 187]), "1.2.3.4:443 10");
    check(&connect(3, b"\x0bExample.com\0\x50x"), "example.com:80 18");
    check(&connect(3, b"\x03::1\0\x50"), "[::1]:80 10");
    check(&connect(3, b"\x060x7f.1\0\x50"), "127.0.0.1:80 13");
    check(&connect(4, &[&[0; 15][..], &[1, 0, 80]].concat()), "[::1]:80 22");
    check(&connect(4, &[&[0; 10][..], &[255, 255, 10, 0, 0, 1, 0, 80]].concat()), "10.0.0.1:80 22");
}

#[test]
fn unsupported_requests_are_refused_as_early_as_possible() {
    check(&[5, 2, 0, 1], "the SOCKS command 2 is not served");
    check(&[5, 3, 0, 1], "the SOCKS command 3 is not served");
    check(&[5, 1, 0, 2], "the SOCKS address type 2 is not served");
    check(&[4, 1, 0, 1], "SOCKS version 4 is not served");
    check(&[5, 1, 1, 1], "the SOCKS request is malformed: a reserved byte is not zero");
    check(&connect(1, &[1, 2, 3, 4, 0, 0]), "`1.2.3.4` is no target: the port is no number from 1 to 65535");
    check(&connect(3, b"\0\0\x50"), "`` is no target: the host is empty");
    check(
        &connect(3, b"\x03a\0b\0\x50"),
        "`a\\0b` is no target: the host has the character '\\0': only letters, digits, `-`, `_` and `.` make a name",
    );
    check(
        &connect(3, b"\x02\xff\xfe\0\x50"),
        "`\u{fffd}\u{fffd}` is no target: the host is no valid international name (UTS #46)",
    );
}

#[test]
fn a_greeting_offers_to_go_without_authentication() {
    assert_eq!(parse_greeting(&[5, 1, 0]), Ok(Some(((), 3))));
    assert_eq!(parse_greeting(&[5, 3, 2, 1, 0, 9]), Ok(Some(((), 5))));
    assert_eq!(parse_greeting(&[5, 2, 0]), Ok(None));
    assert_eq!(parse_greeting(&[5, 2, 1, 2]), Err(RefusalReason::SocksAuthentication));
    assert_eq!(parse_greeting(&[5, 0]), Err(RefusalReason::SocksAuthentication));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_complete_or_incomplete_and_consumes_only_its_bytes(
        name in "[a-z]{1,20}\\.[a-z]{1,20}",
        port in 1_u16..,
        behind in any::<Vec<u8>>(),
    ) {
        let length = u8::try_from(name.len()).unwrap();
        let bytes = connect(3, &[&[length], name.as_bytes(), &port.to_be_bytes()].concat());
        for end in 0..bytes.len() {
            prop_assert_eq!(parse_request(&bytes[..end]), Ok(None));
        }
        let (target, used) = parse_request(&[&bytes[..], &behind].concat()).unwrap().unwrap();
        prop_assert_eq!((target.to_string(), used), (format!("{name}:{port}"), bytes.len()));
    }

    #[test]
    fn no_input_makes_the_parser_panic(bytes in any::<Vec<u8>>()) {
        let _ = parse_greeting(&bytes);
        let _ = parse_request(&[&[5, 1, 0][..], &bytes].concat());
    }
}
