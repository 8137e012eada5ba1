//! TLS through the proxy: the server name must match the requested name, however the handshake is split.

use std::sync::Arc;

use conjure_egress::{EgressPolicy, ProxyLimits, RefusalReason, WebPorts};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Proxy, ReceivedData, Server, egress, expect, limited, read_text, tls_server};

/// The alert `unrecognized_name`.
const UNRECOGNIZED_NAME: &[u8] = &[21, 3, 3, 0, 2, 2, 112];
const DECODE_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 50];
const HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

fn config(root: &[u8]) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.to_vec().into()).unwrap();
    rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The first bytes that a real client sends to `name`.
fn client_hello(name: &str) -> Vec<u8> {
    let (root, _) = test_support::authority(&[]);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(config(&root).into(), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// The message of one record, in records of `size` bytes.
fn cut(hello: &[u8], size: usize) -> Vec<u8> {
    let record = |content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &length, content].concat()
    };
    hello[5..].chunks(size).flat_map(record).collect()
}

/// A server of bytes behind a proxy under `policy`, where only TLS is allowed to it.
async fn bytes_server(policy: impl FnOnce(&Server) -> EgressPolicy) -> (Server, ReceivedData, Proxy) {
    let (server, received) = Server::recording("", "never").await;
    let ports = WebPorts { http: vec![], https: vec![server.port] };
    let mut bounds = ProxyLimits::default();
    bounds.max_handshake_bytes = 4 << 10;
    let egress = egress(policy(&server)).with_web_ports(ports).with_limits(bounds);
    let proxy = Proxy::start_with(egress).await;
    (server, received, proxy)
}

/// Sends `bytes` in a tunnel to `host`. Returns the answer of the proxy, and what the server has read.
async fn say(
    host: &str,
    bytes: &[u8],
    policy: impl FnOnce(&Server) -> EgressPolicy,
) -> (String, String, Vec<RefusalReason>) {
    let (server, received, proxy) = bytes_server(policy).await;
    let mut tunnel = proxy.tunnel(&server.at(host)).await;
    tunnel.write_all(bytes).await.unwrap();
    tunnel.shutdown().await.unwrap();
    let reply = read_text(&mut tunnel).await;
    (reply, received.all().concat(), proxy.reasons())
}

fn only_listed(server: &Server) -> EgressPolicy {
    limited(format!("good.example:{0},127.0.0.1:{0}", server.port))
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

async fn passes(host: &str, bytes: &[u8], policy: impl FnOnce(&Server) -> EgressPolicy) {
    let (reply, received, reasons) = say(host, bytes, policy).await;
    assert_eq!((reply.as_str(), received, reasons), ("", text(bytes), vec![]));
}

async fn is_refused(
    host: &str,
    bytes: &[u8],
    alert: &[u8],
    expected: RefusalReason,
    policy: impl FnOnce(&Server) -> EgressPolicy,
) {
    let (reply, received, reasons) = say(host, bytes, policy).await;
    assert_eq!(
        (reply, received.as_str(), reasons),
        (text(alert), "", vec![expected]),
        "nothing reaches the server"
    );
}

fn other_name(name: &str) -> Box<dyn Fn(&RefusalReason) -> bool> {
    let expected = format!("the TLS handshake names the server `{name}`");
    Box::new(move |reason| reason.to_string() == expected)
}

async fn is_refused_for_its_name(
    host: &str,
    bytes: &[u8],
    name: &str,
    policy: impl FnOnce(&Server) -> EgressPolicy,
) {
    let (reply, received, reasons) = say(host, bytes, policy).await;
    assert_eq!((reply, received.as_str()), (text(UNRECOGNIZED_NAME), ""), "nothing reaches the server");
    assert!(reasons.len() == 1 && other_name(name)(&reasons[0]), "{reasons:?}");
}

#[tokio::test]
async fn a_real_client_reaches_a_real_server_through_connect() {
    let (root, server) = tls_server(&["good.example"]).await;
    for policy in [only_listed(&server), EgressPolicy::Full] {
        let ports = WebPorts { http: vec![], https: vec![server.port] };
        let proxy = Proxy::start_with(egress(policy).with_web_ports(ports)).await;
        for fragment in [None, Some(48)] {
            let mut config = config(&root);
            config.max_fragment_size = fragment;
            let tunnel = proxy.tunnel(&server.at("good.example")).await;
            let name = ServerName::try_from("good.example").unwrap();
            let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tunnel).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n").await.unwrap();
            let answer = read_text(&mut stream).await;
            assert!(answer.ends_with("hello over TLS"), "{answer}");
        }
        assert!(proxy.reasons().is_empty());
    }
}

#[tokio::test]
async fn a_real_client_that_names_another_server_gets_an_alert() {
    let (root, server) = tls_server(&["good.example", "other.example"]).await;
    let proxy = Proxy::start(only_listed(&server)).await;
    let tunnel = proxy.tunnel(&server.at("good.example")).await;
    let name = ServerName::try_from("other.example").unwrap();
    let error = TlsConnector::from(Arc::new(config(&root))).connect(name, tunnel).await.unwrap_err();
    assert_eq!(error.to_string(), "received fatal alert: UnrecognisedName");
    let refusal = proxy.recorder.first().await;
    assert!(other_name("other.example")(&refusal.reason), "{refusal:?}");
    assert_eq!((refusal.host().as_deref(), refusal.port()), (Some("good.example"), Some(server.port)));
}

#[tokio::test]
async fn the_name_decides_however_the_hello_is_cut() {
    for size in [1, 7, 100, 10_000] {
        passes("good.example", &cut(&client_hello("good.example"), size), only_listed).await;
        is_refused_for_its_name(
            "good.example",
            &cut(&client_hello("evil.example"), size),
            "evil.example",
            only_listed,
        )
        .await;
    }
    // One byte per packet, as far as a test can enforce it.
    let (server, received, proxy) = bytes_server(only_listed).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    tunnel.set_nodelay(true).unwrap();
    for byte in client_hello("evil.example") {
        if tunnel.write_all(&[byte]).await.is_err() {
            break;
        }
    }
    expect(&mut tunnel, UNRECOGNIZED_NAME).await;
    assert_eq!(received.all().concat(), "");
}

#[tokio::test]
async fn names_are_compared_in_their_normal_form() {
    let named = |name: &[u8]| {
        let mut hello = client_hello("good.example");
        let offset = hello.windows(12).position(|bytes| bytes == b"good.example").unwrap();
        hello[offset..offset + 12].copy_from_slice(name);
        hello
    };
    passes("Good.EXAMPLE.", &named(b"GOOD.Example"), only_listed).await;
    // Servers would parse this differently.
    for name in [b"g\0od.example", b"good%example", b"good.exampl\xe9"] {
        let (reply, received, reasons) = say("good.example", &named(name), only_listed).await;
        assert_eq!((reply, received.as_str()), (text(UNRECOGNIZED_NAME), ""));
        assert!(matches!(&reasons[..], [RefusalReason::ServerNameMismatch { .. }]), "{reasons:?}");
    }
}

#[tokio::test]
async fn under_full_the_server_name_must_match_as_well() {
    passes("good.example", &client_hello("good.example"), |_| EgressPolicy::Full).await;
    is_refused_for_its_name("good.example", &client_hello("evil.example"), "evil.example", |_| {
        EgressPolicy::Full
    })
    .await;
}

#[tokio::test]
async fn without_a_server_name_only_an_address_or_any_host_is_reached() {
    // A real client names no server where it was given an address.
    let nameless = client_hello("127.0.0.1");
    is_refused("good.example", &nameless, UNRECOGNIZED_NAME, RefusalReason::NoServerName, only_listed).await;
    passes("good.example", &nameless, |_| EgressPolicy::Full).await;
    passes("127.0.0.1", &nameless, only_listed).await;
    passes("127.0.0.1", &nameless, |_| EgressPolicy::Full).await;
}

#[tokio::test]
async fn a_listed_address_allows_no_name() {
    is_refused_for_its_name("127.0.0.1", &client_hello("good.example"), "good.example", only_listed).await;
    passes("127.0.0.1", &client_hello("good.example"), |_| EgressPolicy::Full).await;
}

#[tokio::test]
async fn other_protocols_are_allowed_where_tls_is_not_required() {
    let plain = b"SSH-2.0-client\r\n";
    is_refused("good.example", plain, b"", RefusalReason::NotTls, only_listed).await;
    // An SSLv2 hello has no name.
    is_refused("good.example", &[128, 46, 1, 3, 1, 0], b"", RefusalReason::NotTls, only_listed).await;
    passes("good.example", plain, |_| EgressPolicy::Full).await;

    let (server, received) = Server::recording("SSH-2.0-server\r\n", "client\r\n").await;
    let proxy = Proxy::start(only_listed(&server)).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    tunnel.write_all(plain).await.unwrap();
    expect(&mut tunnel, b"SSH-2.0-server\r\n").await;
    assert_eq!(received.all().concat(), text(plain));
    // On such a port the server name of TLS is checked all the same.
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    tunnel.write_all(&client_hello("evil.example")).await.unwrap();
    expect(&mut tunnel, UNRECOGNIZED_NAME).await;
}

#[tokio::test]
async fn a_hello_that_is_malformed_or_too_long_is_refused() {
    let malformed = |what| RefusalReason::MalformedHandshake(what);
    let empty_record = [&[22, 3, 1, 0, 0][..], &client_hello("good.example")].concat();
    is_refused("good.example", &empty_record, DECODE_ERROR, malformed("it has an empty record"), only_listed)
        .await;
    let broken_off = &client_hello("good.example")[..50];
    is_refused("good.example", broken_off, DECODE_ERROR, malformed("it ends early"), only_listed).await;
    is_refused("good.example", &[22], DECODE_ERROR, malformed("it ends early"), |_| EgressPolicy::Full).await;
    let limit = 4 << 10;
    let long = [22, 3, 1, 0, 4, 1, 0, 0xff, 0xff];
    is_refused(
        "good.example",
        &long,
        HANDSHAKE_FAILURE,
        RefusalReason::HandshakeTooLong { limit },
        only_listed,
    )
    .await;
    // Many records make a short message long.
    let many = [&[22, 3, 1, 0, 4, 1, 0, 15, 0][..], &[22, 3, 1, 0, 1, 0].repeat(1000)].concat();
    is_refused(
        "good.example",
        &many,
        HANDSHAKE_FAILURE,
        RefusalReason::HandshakeTooLong { limit },
        only_listed,
    )
    .await;
}

#[tokio::test]
async fn socks_checks_the_same_server_name() {
    let (server, received, proxy) = bytes_server(only_listed).await;
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let request = [&[5, 1, 0, 5, 1, 0, 3, 12][..], b"good.example", &server.port.to_be_bytes()].concat();
    stream.write_all(&[&request[..], &client_hello("evil.example")].concat()).await.unwrap();
    expect(&mut stream, &[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    expect(&mut stream, UNRECOGNIZED_NAME).await;
    assert_eq!(received.all().concat(), "");
}
