//! TLS: the certificate must match the requested name and have a trusted authority.

use conjure_artifact::{ArtifactErrorKind as Kind, ArtifactOptions};
use rustls::HandshakeKind;
use test_support::http::{Part, Server};
use test_support::{authority, authority_until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Fixture, LOOPBACK, TestServer, ok, redirect};

/// A TLS server with a fixed response, and a certificate for `names` by its own authority.
struct TlsSite {
    root: Vec<u8>,
    server: Server,
}

impl TlsSite {
    async fn responding(answer: Vec<u8>, names: &[&str], last_year: i32) -> Self {
        Self::with_protocols(&[], answer, names, last_year).await
    }

    /// A server that accepts these protocols only, if there are any.
    async fn with_protocols(protocols: &[&str], answer: Vec<u8>, names: &[&str], last_year: i32) -> Self {
        let (root, acceptor) = authority_until(names, last_year, protocols);
        let server = Server::start_over_tls(acceptor, move |_, _| vec![Part::Bytes(answer.clone())]).await;
        Self { root, server }
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.server.address.port())
    }

    /// A fetch that trusts its authority, under the usual options but the loopback's block.
    fn fixture(&self, schemes: &[&str]) -> Fixture {
        let root = self.root.clone();
        Fixture::with(|settings| {
            settings.roots = vec![root];
            settings.options.allowed_schemes = schemes.iter().map(|scheme| (*scheme).to_owned()).collect();
        })
    }
}

#[tokio::test]
async fn a_url_is_fetched_over_tls_under_its_own_name() {
    let site = TlsSite::responding(ok("", "hello over TLS"), &["good.example", "127.0.0.1"], 4000).await;
    for host in ["good.example", "GOOD.example.", "127.0.0.1", "0x7f.1"] {
        assert_eq!(site.fixture(&["https"]).text(&site.url(host)).await, "hello over TLS");
    }
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused_for_good() {
    let site = TlsSite::responding(ok("", "x"), &["other.example"], 4000).await;
    let error = site.fixture(&["https"]).fetch(&site.url("good.example")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (Kind::FetchFailed, false));
    assert!(error.to_string().contains("the server's certificate is not trusted"), "{error}");
    let error = site.fixture(&["https"]).fetch(&site.url("127.0.0.1")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (Kind::FetchFailed, false));
}

#[tokio::test]
async fn an_unknown_authority_and_an_old_certificate_are_refused() {
    let site = TlsSite::responding(ok("", "x"), &["good.example"], 4000).await;
    let untrusted_site = TlsSite::responding(ok("", "x"), &["good.example"], 4000).await;
    untrusted_site.fixture(&["https"]).refuses(&site.url("good.example"), Kind::FetchFailed).await;
    // By what the machine trusts alone, if that is anything.
    let error = Fixture::new().fetch(&site.url("good.example")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (Kind::FetchFailed, false), "{error}");
    let old = TlsSite::responding(ok("", "x"), &["good.example"], 2020).await;
    let message = old.fixture(&["https"]).refuses(&old.url("good.example"), Kind::FetchFailed).await;
    assert!(message.contains("the server's certificate is not trusted"), "{message}");
}

#[tokio::test]
async fn a_server_without_tls_is_rejected() {
    let trusted = TlsSite::responding(Vec::new(), &["good.example"], 4000).await;
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let url = format!("https://good.example:{}/", listener.local_addr().unwrap().port());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    };
    let fixture = trusted.fixture(&["https"]);
    let (message, ()) = tokio::join!(fixture.refuses(&url, Kind::FetchFailed), server);
    assert!(message.contains("the connection failed"), "{message}");
}

#[tokio::test]
async fn a_server_with_another_protocol_is_rejected() {
    let mail = TlsSite::with_protocols(&["smtp"], ok("", "x"), &["good.example"], 4000).await;
    mail.fixture(&["https"]).refuses(&mail.url("good.example"), Kind::FetchFailed).await;
    let web = TlsSite::with_protocols(&["h2", "http/1.1"], ok("", "web"), &["good.example"], 4000).await;
    assert_eq!(web.fixture(&["https"]).text(&web.url("good.example")).await, "web");
}

#[tokio::test]
async fn tls_sessions_are_not_resumed() {
    let (root, acceptor) = authority(&["good.example"]);
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let url = format!("https://good.example:{}/", listener.local_addr().unwrap().port());
    let answer = ok("Cache-Control: no-store\r\n", "x");
    let fixture = Fixture::with(|settings| settings.roots = vec![root]);
    for _ in 0..2 {
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            // The session tickets of TLS 1.3 come with the first data.
            stream.write_all(&answer).await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
            stream.get_ref().1.handshake_kind()
        };
        let (text, handshake) = tokio::join!(fixture.text(&url), server);
        assert_eq!((text.as_str(), handshake), ("x", Some(HandshakeKind::Full)));
    }
}

/// Time continues by itself where nothing else does.
#[tokio::test(start_paused = true)]
async fn a_silent_tls_handshake_times_out() {
    let trusted = TlsSite::responding(Vec::new(), &["good.example"], 4000).await;
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("https://good.example:{port}/");
    let message = trusted.fixture(&["https"]).refuses(&url, Kind::TimedOut).await;
    assert_eq!(message, format!("connecting to `good.example:{port}` took longer than 10 s"));
}

#[tokio::test]
async fn a_redirect_from_tls_to_plain_http_is_refused_unless_that_is_allowed() {
    let plain = TestServer::responding(ok("", "plain")).await;
    let site = TlsSite::responding(redirect(&plain.good_url("/")), &["good.example"], 4000).await;
    let message = site.fixture(&["https"]).refuses(&site.url("good.example"), Kind::SchemeNotAllowed).await;
    assert_eq!(message, "the scheme `http` is not allowed: only `https` is, and the URL redirects there");
    assert!(plain.requests().is_empty());
    assert_eq!(site.fixture(&["https", "http"]).text(&site.url("good.example")).await, "plain");
}

#[tokio::test]
async fn a_redirect_to_tls_is_followed() {
    let site = TlsSite::responding(ok("", "hello over TLS"), &["good.example"], 4000).await;
    let plain = TestServer::responding(redirect(&site.url("good.example"))).await;
    assert_eq!(site.fixture(&["https", "http"]).text(&plain.good_url("/")).await, "hello over TLS");
}

#[tokio::test]
async fn a_body_without_tls_close_is_rejected() {
    // Without a length the end of the connection ends the body; only TLS can detect a truncation.
    let (root, acceptor) = authority(&["good.example"]);
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello").await.unwrap();
        stream.flush().await.unwrap();
        // No farewell of TLS.
        let (mut stream, _) = stream.into_inner();
        stream.shutdown().await.unwrap();
    };
    let fixture = Fixture::with(|settings| {
        settings.roots = vec![root];
        settings.options =
            ArtifactOptions { allowed_schemes: vec!["https".to_owned()], ..crate::support::options() };
    });
    let url = format!("https://good.example:{port}/");
    let (_, ()) = tokio::join!(fixture.refuses(&url, Kind::FetchFailed), server);
}
