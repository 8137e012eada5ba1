use proptest::prelude::*;

use super::*;

/// The forwarded form of a request with an absolute URL, or why it is refused.
fn forwarded(text: &str) -> String {
    rewritten(text, RequestForm::AbsoluteUrl)
}

fn rewritten(text: &str, route: RequestForm<'_>) -> String {
    match RequestHead::parse(text.as_bytes()).and_then(|head| head.forward(route)) {
        Ok(forward) => format!("{} {}", forward.target, String::from_utf8(forward.head).unwrap()),
        Err(reason) => reason.to_string(),
    }
}

fn check(lines: &[&str], expected: &str) {
    let text = format!("{}\r\n\r\n", lines.join("\r\n"));
    let expected = expected.replace('\n', "\r\n");
    assert_eq!(forwarded(&text), expected, "{text:?}");
}

#[test]
fn a_request_is_rewritten_for_its_server() {
    check(
        &["GET http://Example.com./a?b=c HTTP/1.1", "host: EXAMPLE.com:80", "Accept: */*"],
        "example.com:80 GET /a?b=c HTTP/1.1\nHost: example.com\nAccept: */*\nConnection: close\n\n",
    );
    check(
        &["POST HTTP://a:8080?x HTTP/1.0", "Content-Length: 3"],
        "a:8080 POST /?x HTTP/1.1\nHost: a:8080\nContent-Length: 3\nConnection: close\n\n",
    );
    check(
        &["OPTIONS http://[::1]:80 HTTP/1.1", "Host: [0::1]"],
        "[::1]:80 OPTIONS * HTTP/1.1\nHost: [::1]\nConnection: close\n\n",
    );
}

#[test]
fn hop_by_hop_fields_are_dropped() {
    check(
        &[
            "POST http://a/ HTTP/1.1",
            "Host: a",
            "Connection: keep-alive, X-Secret , Host",
            "X-Secret: 1",
            "Keep-Alive: 5",
            "Proxy-Connection: keep-alive",
            "Proxy-Authorization: Basic eDp5",
            "TE: trailers",
            "Trailer: X",
            "Upgrade: h2c",
            "HTTP2-Settings: AA",
            "transfer-encoding: CHUNKED",
            "Authorization: Bearer x",
            "X: y",
        ],
        "a:80 POST / HTTP/1.1\nHost: a\nAuthorization: Bearer x\nX: y\nTransfer-Encoding: chunked\nConnection: close\n\n",
    );
}

#[test]
fn a_host_that_is_not_the_urls_is_refused() {
    let refused = |host: &str| {
        let text = forwarded(&format!("GET http://good.example/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(text, format!("the `Host` header names `{host}`"));
    };
    refused("evil.example");
    refused("good.example:8080");
    refused("good.example.evil.example");
    refused("good.example@evil.example");
    refused("good.example, evil.example");
    refused("");
    check(
        &["GET http://a/ HTTP/1.1", "Host: a", "hOsT: b"],
        "the HTTP request is malformed: it has two `Host` fields",
    );
    check(&["GET http://a/ HTTP/1.1"], "the HTTP request is malformed: it has no `Host` field");
}

#[test]
fn ambiguous_framing_is_malformed() {
    let refused = |fields: &str, reason: &str| {
        let text = forwarded(&format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"));
        assert_eq!(text, format!("the HTTP request is malformed: {reason}"), "{fields:?}");
    };
    refused("Content-Length: 3\r\nContent-Length: 3", "it has two `Content-Length` fields");
    for value in ["", "+3", "-1", "3, 3", "0x3", "3 3", "3\u{660}", "99999999999999999999"] {
        refused(&format!("Content-Length: {value}"), "its `Content-Length` is no number");
    }
    for value in
        ["gzip, chunked", "chunked, chunked", "identity", "", "chunked\u{b}", "x\tchunked", "chunke\u{17f}"]
    {
        let text =
            forwarded(&format!("POST http://a/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {value}\r\n\r\n"));
        assert!(text.starts_with("the HTTP request is malformed: "), "{value:?}: {text}");
    }
    refused(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "its `Transfer-Encoding` is not `chunked`",
    );
    refused(
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "it has a `Content-Length` beside its `Transfer-Encoding`",
    );
    refused("Transfer-Encoding : chunked", "the name of a header field is malformed");
    refused("X: a\r\n b", "the name of a header field is malformed");
    refused("X: a\rb", "the value of a header field is malformed");
    refused("X: a\0b", "the value of a header field is malformed");
    refused("\u{e9}: a", "the name of a header field is malformed");
    refused(&"X: a\r\n".repeat(128), "there are more than 128 header fields");
    check(
        &["POST http://a/ HTTP/1.0", "Transfer-Encoding: chunked"],
        "the HTTP request is malformed: HTTP/1.0 has no `Transfer-Encoding`",
    );
}

#[test]
fn an_origin_form_request_is_refused() {
    check(&["GET / HTTP/1.1", "Host: a"], "this is a proxy, and `/` is no absolute URL");
    check(&["OPTIONS * HTTP/1.1", "Host: a"], "this is a proxy, and `*` is no absolute URL");
    check(&["GET https://a/ HTTP/1.1", "Host: a"], "the scheme of `https://a/` is not served");
    check(&["GET https://u:secret@a/?secret HTTP/1.1", "Host: a"], "the scheme of `a/` is not served");
    check(&["GET ftp://a/ HTTP/1.1", "Host: a"], "the scheme of `ftp://a/` is not served");
    check(&["GET http://a/#b HTTP/1.1", "Host: a"], "the HTTP request is malformed: its URL has a fragment");
    check(
        &["GET http://u:secret@a/?secret HTTP/1.1", "Host: a"],
        "`a` is no target: there is a user name in front of the host: remove it",
    );
    check(&["GET http:///a HTTP/1.1", "Host: a"], "`` is no target: the host is empty");
    check(
        &["GET http://a\\b/ HTTP/1.1", "Host: a"],
        "`a\\\\b` is no target: the host has the character '\\\\': only letters, digits, `-`, `_` and `.` make a name",
    );
    check(&["PRI * HTTP/2.0"], "the HTTP request is malformed: the version is not HTTP/1.0 or HTTP/1.1");
    check(
        &["GET  http://a/ HTTP/1.1", "Host: a"],
        "the HTTP request is malformed: the first line is malformed",
    );
}

#[test]
fn a_connect_names_a_host_and_a_port_and_has_no_body() {
    let check = |text: &str, expected: &str| {
        let head = RequestHead::parse(format!("CONNECT {text}\r\n\r\n").as_bytes()).unwrap();
        let shown =
            head.connect_target().map_or_else(|reason| reason.to_string(), |target| target.to_string());
        assert_eq!(shown, expected, "{text:?}");
    };
    check("A.example:443 HTTP/1.1\r\nHost: other", "a.example:443");
    check("[::1]:443 HTTP/1.0\r\nContent-Length: 0", "[::1]:443");
    check("a.example HTTP/1.1", "`a.example` is no target: the port is missing: write `HOST:PORT`");
    check(
        "http://a.example:80 HTTP/1.1",
        "`http://a.example:80` is no target: the IPv6 address has no brackets: write `[ADDRESS]:PORT`",
    );
    check("a:1 HTTP/1.1\r\nContent-Length: 1", "the HTTP request is malformed: a `CONNECT` has no body");
    check(
        "a:1 HTTP/1.1\r\nTransfer-Encoding: chunked",
        "the HTTP request is malformed: a `CONNECT` has no body",
    );
}

#[test]
fn in_a_tunnel_only_requests_for_its_host_are_forwarded() {
    let target = Target::parse("a.example:80").unwrap();
    let check = |line: &str, host: &str, expected: &str| {
        let text = format!("GET {line} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(rewritten(&text, RequestForm::Tunnel(&target)).lines().next(), Some(expected), "{text:?}");
    };
    check("/x", "a.example", "a.example:80 GET /x HTTP/1.1");
    check("http://A.example/x", "a.example", "a.example:80 GET /x HTTP/1.1");
    check("/x", "b.example", "the `Host` header names `b.example`");
    check("http://b.example/x", "a.example", "the `Host` header names `b.example:80`");
    check("http://b.example/x", "b.example", "the `Host` header names `b.example:80`");
    check("x", "a.example", "this is a proxy, and `x` is no absolute URL");
}

fn answered(method: &str, version: &str, answer: &str) -> String {
    let head = format!("{method} http://a/ HTTP/{version}\r\nHost: a\r\n\r\n");
    let request = RequestHead::parse(head.as_bytes()).unwrap().forward(RequestForm::AbsoluteUrl).unwrap();
    match ResponseHead::parse(format!("{answer}\r\n\r\n").as_bytes(), &request) {
        Ok(answer) => {
            format!("{:?} {}", answer.length, String::from_utf8_lossy(&answer.head).replace("\r\n", "|"))
        }
        Err(reason) => reason.to_string(),
    }
}

#[test]
fn the_framing_of_a_response_follows_its_head() {
    let check =
        |answer: &str, expected: &str| assert_eq!(answered("GET", "1.1", answer), expected, "{answer:?}");
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nKeep-Alive: 1",
        "Exact(3) HTTP/1.1 200 OK|Content-Length: 3|Connection: close||",
    );
    check("HTTP/1.0 200 \r\nX: \u{e9}", "UntilClose HTTP/1.1 200 |X: \u{e9}|Connection: close||");
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
        "Chunked HTTP/1.1 200 OK|Transfer-Encoding: chunked|Connection: close||",
    );
    check(
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 9",
        "None HTTP/1.1 304 Not Modified|Content-Length: 9|Connection: close||",
    );
    check("HTTP/1.1 204 No Content\r\nContent-Length: 9", "None HTTP/1.1 204 No Content|Connection: close||");
    check("HTTP/1.1 103 Early Hints\r\nLink: x", "None HTTP/1.1 103 Early Hints|Link: x||");
    assert_eq!(
        answered("HEAD", "1.1", "HTTP/1.1 200 OK\r\nContent-Length: 9"),
        "None HTTP/1.1 200 OK|Content-Length: 9|Connection: close||"
    );
    assert_eq!(
        answered("GET", "1.0", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"),
        "Chunked HTTP/1.1 200 OK|Connection: close||"
    );
}

#[test]
fn an_ambiguous_response_is_malformed() {
    let check = |answer: &str, expected: &str| {
        assert_eq!(
            answered("GET", "1.1", answer),
            format!("the answer of the server is malformed: {expected}"),
            "{answer:?}"
        );
    };
    check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4", "it has two `Content-Length` fields");
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked",
        "it has a `Content-Length` beside its `Transfer-Encoding`",
    );
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", "its `Transfer-Encoding` is not `chunked`");
    check("HTTP/2 200 OK", "the version is not HTTP/1.0 or HTTP/1.1");
    check("SSH-2.0-x", "the version is not HTTP/1.0 or HTTP/1.1");
    check("HTTP/1.1 099 OK", "the first line is malformed");
    check("HTTP/1.1 2000 OK", "the status is malformed");
}

#[test]
fn the_end_of_a_head_is_found_wherever_reading_stopped() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest";
    for seen in 0..27 {
        assert_eq!(find_head_end(&text[..seen], 0), HeadEnd::Incomplete, "{seen}");
        assert_eq!(find_head_end(text, seen), HeadEnd::At(27), "{seen}");
    }
    assert_eq!(find_head_end(b"GET / HTTP/1.1\nHost: a\r\n\r\n", 0), HeadEnd::BadLine);
    assert_eq!(find_head_end(b"GET / HTTP/1.1\r\n\n", 0), HeadEnd::BadLine);
    assert_eq!(find_head_end(b"\n", 0), HeadEnd::BadLine);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_forwarded_request_has_one_head_and_one_host(
        fields in proptest::collection::vec(("[A-Za-z-]{1,12}", "[ -~\t\r\n]{0,20}"), 0..8),
        path in "[!-~]{0,20}",
    ) {
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("POST http://a.example/{path} HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n");
        let HeadEnd::At(length) = find_head_end(text.as_bytes(), 0) else { return Ok(()) };
        let head = RequestHead::parse(&text.as_bytes()[..length]);
        let Ok(forward) = head.and_then(|head| head.forward(RequestForm::AbsoluteUrl)) else { return Ok(()) };
        prop_assert_eq!(find_head_end(&forward.head, 0), HeadEnd::At(forward.head.len()));
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut fields);
        prop_assert!(request.parse(&forward.head).unwrap().is_complete());
        for name in ["host", "connection"] {
            prop_assert_eq!(request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count(), 1);
        }
        prop_assert_eq!(request.path.map(str::to_owned), Some(format!("/{path}")));
    }
}
