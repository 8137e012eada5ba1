//! The connection to the service: TLS with a configured root certificate, and proxies.

use std::sync::{Arc, Mutex};

use conjure_anthropic::{Client, Config, ConfigError, HttpConfigError};
use conjure_conversation::ModelErrorKind;
use test_support::{Loopback, authority};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::TcpStream;

use crate::clock::ManualClock;
use crate::events::text_stream;
use crate::server::{Part, Server, stream};
use crate::support::{KEY, call, config, messages, text};

async fn greeting() -> (Server, Vec<u8>) {
    let (root, acceptor) = authority(&["localhost"]);
    let server =
        Server::start_over_tls(acceptor, |_, _| vec![Part::Bytes(stream(&text_stream("Hello")))]).await;
    (server, root)
}

fn over_tls(server: &Server, host: &str) -> Config {
    config(server)
        .with_base_url(format!("https://{host}:{}", server.address.port()))
        .with_http(|http| http.with_retries(0))
}

/// True if the machine has trusted root certificates.
fn has_certificates(config: &Config) -> bool {
    let has = !matches!(Client::new(config), Err(ConfigError::Http(HttpConfigError::Tls { .. })));
    if !has {
        test_support::skip("the machine has no certificates", "apt-get install ca-certificates");
    }
    has
}

#[tokio::test]
async fn a_configured_root_certificate_is_trusted() {
    let (server, root) = greeting().await;
    let config = over_tls(&server, "localhost").with_http(|http| http.with_root(root));
    let answer = call(&messages(&config, &ManualClock::new())).await.unwrap();
    assert_eq!(text(&answer), "Hello");
    assert_eq!(server.requests()[0].headers["x-api-key"], KEY);
}

#[tokio::test]
async fn untrusted_or_misnamed_servers_get_no_request() {
    let (server, root) = greeting().await;
    let (other, _) = authority(&["localhost"]);
    for (host, root) in [("localhost", None), ("localhost", Some(other)), ("127.0.0.1", Some(root))] {
        let config = over_tls(&server, host);
        let config = match root {
            Some(root) => config.with_http(|http| http.with_root(root)),
            None if has_certificates(&config) => config,
            None => continue,
        };
        let failed = call(&messages(&config, &ManualClock::new())).await.unwrap_err();
        assert_eq!(failed.kind, ModelErrorKind::Connection, "{failed}");
        assert!(failed.message.contains("certificate"), "{failed}");
    }
    assert_eq!(server.requests().len(), 0);
}

/// A proxy of a few lines: takes `CONNECT`, notes it, and connects to loopback whatever the name.
struct Proxy {
    url: String,
    connects: Arc<Mutex<Vec<String>>>,
    _loopback: Loopback,
}

impl Proxy {
    async fn start(answer: &'static str) -> Self {
        let connects = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&connects);
        let loopback = Loopback::start(move |client| tunnel(client, Arc::clone(&noted), answer)).await;
        Self { url: format!("http://{}", loopback.address), connects, _loopback: loopback }
    }
}

async fn tunnel(client: TcpStream, requests: Arc<Mutex<Vec<String>>>, answer: &'static str) {
    let mut client = BufReader::new(client);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if client.read_line(&mut head).await.unwrap() == 0 {
            return;
        }
    }
    let target = head.split(' ').nth(1).unwrap().to_owned();
    requests.lock().unwrap().push(head);
    client.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
    if answer.starts_with("200") {
        let port = target.rsplit(':').next().unwrap();
        let mut server = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
        // It ends in whatever way the client leaves.
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}

#[tokio::test]
async fn a_proxy_tunnels_and_sees_no_secrets() {
    let (server, root) = greeting().await;
    let proxy = Proxy::start("200 Connection established").await;
    let config = over_tls(&server, "localhost").with_http(|http| http.with_root(root).with_proxy(&proxy.url));
    assert_eq!(text(&call(&messages(&config, &ManualClock::new())).await.unwrap()), "Hello");
    let requests = proxy.connects.lock().unwrap().clone();
    let line = format!("CONNECT localhost:{} HTTP/1.1\r\n", server.address.port());
    assert!(
        requests.len() == 1 && requests[0].starts_with(&line) && !requests[0].contains(KEY),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_refusing_proxy_is_a_connection_error_without_fallback() {
    let (server, root) = greeting().await;
    let proxy = Proxy::start("403 Forbidden").await;
    let config = over_tls(&server, "localhost").with_http(|http| http.with_root(root).with_proxy(&proxy.url));
    let failed = call(&messages(&config, &ManualClock::new())).await.unwrap_err();
    assert_eq!(failed.kind, ModelErrorKind::Connection, "{failed}");
    assert_eq!((server.requests().len(), proxy.connects.lock().unwrap().len()), (0, 1));
}

#[tokio::test]
async fn plain_http_is_sent_through_the_proxy() {
    let server = Server::always(stream(&text_stream("Hello"))).await;
    let config =
        config(&server).with_base_url("http://localhost:1").with_http(|http| http.with_proxy(server.url()));
    call(&messages(&config, &ManualClock::new())).await.unwrap();
    assert_eq!(server.requests()[0].line, "POST http://localhost:1/v1/messages HTTP/1.1");
}
