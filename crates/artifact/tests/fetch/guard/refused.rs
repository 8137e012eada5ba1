//! Fetches that are rejected by their URL, host or address, and a name whose addresses change.

use std::sync::Arc;

use conjure_artifact::{ArtifactErrorKind as Kind, ArtifactOptions, HttpFetch, HttpFetchError, UrlFetch};
use conjure_base::SystemClock;
use conjure_egress::{Egress, EgressPolicy};
use tokio::net::TcpListener;

use crate::support::{
    CountingResolver, Fixture, LOOPBACK, StaticResolver, TestServer, ok, options, unused_port,
};

#[tokio::test]
async fn a_url_is_fetched_into_the_store() {
    let site = TestServer::responding(ok("Content-Type: text/csv; charset=utf-8\r\n", "a,b\n")).await;
    let fixture = Fixture::new();
    let fetched = fixture.fetch(&site.good_url("/data/sales%202024.csv?key=secret#part")).await.unwrap();
    assert_eq!((fetched.content_type.as_str(), fetched.name.as_str()), ("text/csv", "sales 2024.csv"));
    assert_eq!((fixture.bytes(&fetched).as_slice(), fetched.content.size), (&b"a,b\n"[..], 4));
    let head = &site.requests()[0];
    assert_eq!(head.path(), "/data/sales%202024.csv?key=secret");
    assert_eq!(head.header("host").unwrap(), format!("good.example:{}", site.port));
    assert_eq!(head.header("accept-encoding"), Some("identity"));
    for secret in ["authorization", "cookie", "referer", "if-none-match", "if-modified-since"] {
        assert_eq!(head.header(secret), None);
    }
}

#[tokio::test]
async fn only_allowed_schemes_are_fetched() {
    let defaults = || Fixture::with(|settings| settings.options = ArtifactOptions::default());
    let message = defaults().refuses("http://good.example/", Kind::SchemeNotAllowed).await;
    assert_eq!(message, "the scheme `http` is not allowed: only `https` is");
    for url in [
        "ftp://good.example/",
        "gopher://good.example/",
        "file:///etc/passwd",
        "data://x",
        "HTTP://good.example",
    ] {
        let fixture = defaults();
        let kind = if url.starts_with("file") { Kind::InvalidUri } else { Kind::SchemeNotAllowed };
        fixture.refuses(url, kind).await;
    }
    let none = Fixture::with(|settings| settings.options.allowed_schemes.clear());
    let message = none.refuses("https://good.example/", Kind::SchemeNotAllowed).await;
    assert_eq!(message, "the scheme `https` is not allowed: none is");
}

#[tokio::test]
async fn invalid_urls_name_the_problem() {
    let fixture = Fixture::new();
    let message = fixture.refuses("http://user:secret@good.example/?key=secret", Kind::InvalidUri).await;
    assert_eq!(
        message,
        "invalid artifact URI `http://good.example/`: it has a user name or a password, which are never sent: remove them"
    );
    for url in [
        "http://good.example@evil.example:80@other.example/",
        "http://good.example:0/",
        "http://good.example:99999/",
        "http://good..example/",
        "http://[fe80::1%25eth0]/",
        "http://[::1",
        "http://999.1.1.1/",
        "http://0x7f.0x1.0x1.0x1.0x1/",
        "http://good.example\\@evil.example/",
        "http:good.example",
        "//good.example/",
        "",
    ] {
        fixture.refuses(url, Kind::InvalidUri).await;
    }
}

#[tokio::test]
async fn blocked_hosts_are_blocked_in_every_spelling() {
    let fixture = Fixture::new();
    for host in [
        "localhost",
        "LOCALHOST.",
        "%6cocalhost",
        "blocked.example",
        "Blocked.EXAMPLE.",
        "xn--bcher-kva.example",
        "BÜCHER.example",
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "[::ffff:169.254.169.254]",
        "1.2.3.4",
        "0x1.0x2.772",
    ] {
        fixture.refuses(&format!("http://{host}/"), Kind::HostBlocked).await;
    }
    // A name with an address that is blocked.
    let message = fixture.refuses("http://blocked-address.example/", Kind::HostBlocked).await;
    assert_eq!(message, "the host `blocked-address.example` is blocked");
    // Ports of other protocols, by which a request could be taken for something else.
    let message = fixture.refuses("http://good.example:25/", Kind::HostBlocked).await;
    assert_eq!(message, "the host `good.example:25` is blocked");
}

#[tokio::test]
async fn private_addresses_are_rejected_in_every_notation() {
    let fixture = Fixture::new();
    for host in [
        "127.0.0.2",
        "127.2",
        "0x7f.2",
        "0177.2",
        "2130706434",
        "[::ffff:127.0.0.2]",
        "[::1]",
        "[::]",
        "0.0.0.0",
        "0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.1.1",
        "224.0.0.1",
        "255.255.255.255",
        "[fe80::1]",
        "[fd12::1]",
        "[ff02::1]",
        "[64:ff9b::10.0.0.1]",
        "[2002:a00:1::]",
        "private.example",
        "link-local.example",
        "metadata.example",
        "mapped.example",
        "unique-local.example",
        "mixed.example",
    ] {
        let message = fixture.refuses(&format!("http://{host}/"), Kind::PrivateAddress).await;
        assert!(message.ends_with("is at a private address, which is blocked"), "{message}");
    }
}

#[tokio::test]
async fn targets_forbidden_by_the_egress_policy_are_not_contacted() {
    let limited = |list: &'static str| {
        Fixture::with(|settings| settings.policy = EgressPolicy::Limited(list.parse().unwrap()))
    };
    limited("other.example").refuses("http://good.example/", Kind::HostBlocked).await;
    limited("good.example").refuses("http://1.1.1.1/", Kind::HostBlocked).await;
    limited("good.example").refuses("http://good.example:8080/", Kind::HostBlocked).await;
    Fixture::with(|settings| settings.policy = EgressPolicy::None)
        .refuses("http://good.example/", Kind::FetchDisabled)
        .await;
    let off = Fixture::with(|settings| settings.options.url_fetch = UrlFetch::Off);
    off.refuses("http://good.example/", Kind::FetchDisabled).await;
}

#[tokio::test]
async fn an_unresolved_name_is_a_retryable_error() {
    let fixture = Fixture::new();
    for host in ["unknown.example", "empty.example"] {
        let error = fixture.fetch(&format!("http://{host}/?key=secret")).await.unwrap_err();
        assert_eq!(error.kind(), Kind::FetchFailed);
        assert!(error.is_retryable());
        let message = error.to_string();
        assert!(
            message.starts_with(&format!("fetching `http://{host}/?key=…` failed: the name cannot be")),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_retryable_error() {
    let (_held, port) = unused_port();
    let error = Fixture::new().fetch(&format!("http://good.example:{port}/")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::FetchFailed);
    assert!(error.is_retryable() && error.to_string().contains("the connection failed"), "{error}");
}

#[tokio::test]
async fn the_checked_address_is_dialled() {
    let site = TestServer::responding(ok("", "good")).await;
    // The forbidden address listens at the same port, to detect connections.
    let forbidden = TcpListener::bind(("127.0.0.2", site.port)).await.unwrap();
    let answers = [LOOPBACK, "127.0.0.2".parse().unwrap(), LOOPBACK].map(|address| vec![address]);
    let resolver = StaticResolver::new().with_sequence("good.example".parse().unwrap(), answers);
    let resolver = CountingResolver::new(resolver);
    let fixture = Fixture::with(|settings| settings.resolver = Arc::clone(&resolver) as Arc<_>);

    assert_eq!(fixture.text(&site.good_url("/1")).await, "good");
    assert_eq!(resolver.lookups(), 1);
    assert_eq!(fixture.fetch(&site.good_url("/2")).await.unwrap_err().kind(), Kind::PrivateAddress);
    assert_eq!(fixture.text(&site.good_url("/3")).await, "good");
    assert_eq!(resolver.lookups(), 3);
    assert_eq!(site.paths(), ["/1", "/3"]);
    let accepted = tokio::select! {
        biased;
        accepted = forbidden.accept() => Some(accepted),
        () = std::future::ready(()) => None,
    };
    assert!(accepted.is_none(), "an unchecked address was dialled");
}

#[tokio::test]
async fn allowed_addresses_are_normalized() {
    let site = TestServer::answering(|head| ok("", head.header("host").unwrap())).await;
    let fixture = Fixture::new();
    for host in ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "１２７.１"] {
        assert_eq!(fixture.text(&site.url(host, "/")).await, format!("127.0.0.1:{}", site.port), "{host}");
    }
    assert_eq!(site.requests().len(), 1, "they are one URL");
    assert_eq!(fixture.text(&site.url("GOOD.example.", "/")).await, format!("good.example:{}", site.port));
}

#[test]
fn empty_options_are_rejected() {
    let new = |options: ArtifactOptions| {
        HttpFetch::new(Arc::new(options), Egress::new(EgressPolicy::Full), Arc::new(SystemClock)).unwrap_err()
    };
    let error = new(ArtifactOptions { allowed_schemes: vec!["ftp".to_owned()], ..options() });
    assert_eq!(error, HttpFetchError::Scheme { scheme: "ftp".to_owned() });
    let error = new(ArtifactOptions { blocked_hosts: vec!["a b".to_owned()], ..options() });
    assert!(error.to_string().starts_with("`a b` among the blocked hosts is neither a name"), "{error}");
}
