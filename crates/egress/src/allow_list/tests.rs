use super::*;

fn check(list: &str, target: &str, expected: AllowListMatch) {
    let list: AllowList = list.parse().unwrap();
    assert_eq!(list.lookup(&Target::parse(target).unwrap()), expected, "{target} on {list}");
}

#[test]
fn a_name_allows_itself_on_the_web_ports() {
    check("example.com", "example.com:443", AllowListMatch::Listed);
    check("Example.COM.", "EXAMPLE.com.:80", AllowListMatch::Listed);
    check("bücher.example", "xn--bcher-kva.example:443", AllowListMatch::Listed);
    check("example.com", "example.com:22", AllowListMatch::OtherPorts(vec![80, 443]));
    check("example.com", "www.example.com:443", AllowListMatch::NotListed);
    check("example.com", "example.com.evil.org:443", AllowListMatch::NotListed);
    check("example.com", "evilexample.com:443", AllowListMatch::NotListed);
    check("", "example.com:443", AllowListMatch::NotListed);
}

#[test]
fn a_wildcard_allows_subdomains() {
    check("*.example.com", "a.example.com:443", AllowListMatch::Listed);
    check("*.example.com", "b.a.example.com:80", AllowListMatch::Listed);
    check("*.example.com", "example.com:443", AllowListMatch::NotListed);
    check("*.example.com", "evilexample.com:443", AllowListMatch::NotListed);
    check("*.example.com:8443", "a.example.com:443", AllowListMatch::OtherPorts(vec![8443]));
}

#[test]
fn a_port_allows_only_itself_and_entries_add_up() {
    check("example.com:8443", "example.com:8443", AllowListMatch::Listed);
    check("example.com:8443", "example.com:443", AllowListMatch::OtherPorts(vec![8443]));
    check("example.com:8443,example.com", "example.com:443", AllowListMatch::Listed);
    check("a.com:22,*.b.com , a.com:21", "a.com:80", AllowListMatch::OtherPorts(vec![21, 22]));
}

#[test]
fn an_address_is_allowed_only_as_itself_in_any_spelling() {
    check("1.1.1.1", "1.1.1.1:443", AllowListMatch::Listed);
    check("1.1.1.1", "0x01010101:443", AllowListMatch::Listed);
    check("1.1.1.1", "[::ffff:1.1.1.1]:443", AllowListMatch::Listed);
    check("0x01010101", "1.1.1.1:443", AllowListMatch::Listed);
    check("[2606:4700::1111]:8443", "[2606:4700:0::1111]:8443", AllowListMatch::Listed);
    check("1.1.1.1", "1.1.1.2:443", AllowListMatch::NotListed);
    check("one.one.one.one", "1.1.1.1:443", AllowListMatch::NotListed);
}

#[test]
fn an_invalid_entry_gives_a_hint() {
    for (text, output) in [
        ("https://example.com", "without the scheme"),
        ("example.com/path", "without the scheme and the path"),
        ("*", "the policy `full`"),
        ("*.*.com", "only in front"),
        ("a*.example.com", "only in front"),
        ("*.1.2.3.4", "only in front"),
        ("example.com:0", "1 to 65535"),
        ("example.com:*", "only in front"),
        ("user@example.com", "user name"),
        ("2606:4700::1111", "brackets"),
        ("ex ample.com", "the character ' '"),
        ("*.", "empty"),
    ] {
        let error = text.parse::<AllowEntry>().unwrap_err().to_string();
        assert!(error.contains(output) && error.starts_with(&format!("`{text}` is no entry")), "{error}");
        assert!(format!("good.example,{text}").parse::<AllowList>().is_err(), "{text}");
    }
}

#[test]
fn the_text_form_of_a_list_round_trips() {
    let text = "example.com,*.example.org:8443,1.1.1.1,[::2]:80";
    assert_eq!(text.parse::<AllowList>().unwrap().to_string(), text);
    assert_eq!(text.parse::<AllowList>().unwrap().entries().count(), 4);
}

/// The intersection allows exactly what both lists allow.
#[test]
fn an_intersection_allows_exactly_what_both_lists_allow() {
    let entries = [
        "example.com",
        "*.example.com",
        "api.example.com",
        "*.api.example.com",
        "example.com:8443",
        "*.example.com:443",
        "api.example.com:80",
        "192.0.2.7",
        "192.0.2.7:8443",
        "other.org",
    ];
    let targets =
        ["example.com", "api.example.com", "a.b.example.com", "x.api.example.com", "192.0.2.7", "other.org"];
    for one in
        entries.iter().enumerate().flat_map(|(at, one)| entries[at..].iter().map(move |two| [*one, *two]))
    {
        for other in entries {
            let (one, other): (AllowList, AllowList) =
                (one.join(",").parse().unwrap(), other.parse().unwrap());
            let both = one.intersection(&other);
            for target in targets.iter().flat_map(|host| [80, 443, 8443].map(|port| format!("{host}:{port}")))
            {
                let target = Target::parse(&target).unwrap();
                let is_listed = |list: &AllowList| list.lookup(&target) == AllowListMatch::Listed;
                let expected = is_listed(&one) && is_listed(&other);
                assert_eq!(is_listed(&both), expected, "{one} and {other}: {target:?} on {both}");
                assert_eq!(is_listed(&other.intersection(&one)), expected, "{other} and {one}: {target:?}");
            }
        }
    }
}
