//! Redirects: each hop is checked again, and no state is carried along.

use std::sync::Arc;

use conjure_artifact::{ArtifactErrorKind as Kind, ArtifactOptions};

use crate::support::{
    CountingResolver, Fixture, LOOPBACK, StaticResolver, TestServer, ok, options, redirect,
};

/// A site whose `/` redirects to `location`; anything else is `there`.
async fn redirecting_server(location: &'static str) -> TestServer {
    TestServer::answering(move |head| if head.path() == "/" { redirect(location) } else { ok("", "there") })
        .await
}

#[tokio::test]
async fn relative_redirects_are_followed() {
    for (location, path) in [("b", "/a/b"), ("/b?c=d#e", "/b?c=d"), ("?q", "/a/?q"), ("../x", "/x")] {
        let site = TestServer::answering(move |head| match head.path() {
            "/a/" => redirect(location),
            _ => ok("", "there"),
        })
        .await;
        assert_eq!(Fixture::new().text(&site.good_url("/a/")).await, "there");
        assert_eq!(site.paths(), ["/a/", path]);
    }
}

#[tokio::test]
async fn every_redirect_status_is_followed_without_state() {
    for status in [301, 302, 303, 307, 308] {
        let other =
            TestServer::responding(ok("Content-Disposition: attachment; filename=x.csv\r\n", "a,b")).await;
        let location = other.url("other.example", "/elsewhere");
        let site = TestServer::answering(move |_| {
            format!(
                "HTTP/1.1 {status} There\r\nLocation: {location}\r\nSet-Cookie: a=b\r\nContent-Length: 5\r\n\r\nhere!"
            )
        })
        .await;
        let fixture = Fixture::new();
        let fetched = fixture.fetch(&site.good_url("/secret?key=secret")).await.unwrap();
        assert_eq!((fetched.name.as_str(), fixture.bytes(&fetched).as_slice()), ("x.csv", &b"a,b"[..]));
        assert_eq!(fixture.store.usage().unwrap().contents, 1);
        let head = &other.requests()[0];
        assert_eq!(head.header("host").unwrap(), format!("other.example:{}", other.port));
        for carried in ["referer", "cookie", "authorization"] {
            assert_eq!(head.header(carried), None);
        }
    }
}

#[tokio::test]
async fn redirects_to_forbidden_targets_are_rejected() {
    for (location, kind) in [
        ("http://127.0.0.2/", Kind::PrivateAddress),
        ("//127.0.0.2/", Kind::PrivateAddress),
        ("http://0x7f.2/", Kind::PrivateAddress),
        ("http://[::ffff:10.0.0.1]/", Kind::PrivateAddress),
        ("http://[::1]/", Kind::PrivateAddress),
        ("http://private.example/", Kind::PrivateAddress),
        ("http://mixed.example/", Kind::PrivateAddress),
        ("http://169.254.169.254/latest/meta-data/", Kind::HostBlocked),
        ("http://localhost/", Kind::HostBlocked),
        ("http://blocked.example./", Kind::HostBlocked),
        ("http://good.example:22/", Kind::HostBlocked),
        ("file:///etc/passwd", Kind::SchemeNotAllowed),
        ("ftp://good.example/", Kind::SchemeNotAllowed),
        ("gopher://good.example:70/_x", Kind::SchemeNotAllowed),
        ("javascript:alert(1)", Kind::SchemeNotAllowed),
        ("data:text/plain,x", Kind::SchemeNotAllowed),
        ("http://user:pass@good.example/", Kind::FetchFailed),
        ("http://good..example/", Kind::FetchFailed),
        ("http://[/", Kind::FetchFailed),
        ("\\\\good.example/", Kind::FetchFailed),
        ("/with space", Kind::FetchFailed),
    ] {
        let site = redirecting_server(location).await;
        let message = Fixture::new().refuses(&site.good_url("/"), kind).await;
        assert!(!message.contains("pass@"), "{message}");
        assert_eq!(site.requests().len(), 1, "{location}");
    }
}

#[tokio::test]
async fn a_redirect_does_not_lead_from_tls_to_plain_http_unless_that_is_allowed() {
    // The other way round is `tls::a_redirect_to_tls_is_followed`.
    let site = redirecting_server("/there").await;
    let options = || ArtifactOptions { allowed_schemes: vec!["http".to_owned()], ..options() };
    let fixture = Fixture::with(|settings| settings.options = options());
    assert_eq!(fixture.text(&site.good_url("/")).await, "there");
    let site = redirecting_server("https://good.example/").await;
    let fixture = Fixture::with(|settings| settings.options = options());
    let message = fixture.refuses(&site.good_url("/"), Kind::SchemeNotAllowed).await;
    assert_eq!(message, "the scheme `https` is not allowed: only `http` is, and the URL redirects there");
}

#[tokio::test]
async fn redirect_loops_end() {
    let site = redirecting_server("/").await;
    let message = Fixture::new().refuses(&site.good_url("/"), Kind::FetchFailed).await;
    assert!(message.ends_with("it redirects more than 5 times"), "{message}");
    assert_eq!(site.requests().len(), 6);

    let count = |head: &str| head.trim_start_matches('/').parse::<u32>().unwrap();
    let site = TestServer::answering(move |head| match count(head.path()) {
        5 => ok("", "there"),
        at => redirect(&format!("/{}", at + 1)),
    })
    .await;
    assert_eq!(Fixture::new().text(&site.good_url("/0")).await, "there");
    assert_eq!(site.requests().len(), 6);
}

#[tokio::test]
async fn a_redirect_without_a_target_fails() {
    for answer in [
        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: \u{ff}\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 300 Choose\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\n\r\n",
    ] {
        // As ISO 8859-1.
        let answer: Vec<u8> = answer.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let site = TestServer::responding(answer).await;
        Fixture::new().refuses(&site.good_url("/"), Kind::FetchFailed).await;
    }
}

#[tokio::test]
async fn each_hop_is_resolved_again() {
    let site = redirecting_server("/there").await;
    let resolver = StaticResolver::new()
        .with_sequence("good.example".parse().unwrap(), [vec![LOOPBACK], vec!["127.0.0.2".parse().unwrap()]]);
    let resolver = CountingResolver::new(resolver);
    let fixture = Fixture::with(|settings| settings.resolver = Arc::clone(&resolver) as Arc<_>);
    fixture.refuses(&site.good_url("/"), Kind::PrivateAddress).await;
    assert_eq!((resolver.lookups(), site.requests().len()), (2, 1));
}
