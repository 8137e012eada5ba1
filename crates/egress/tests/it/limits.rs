//! The limits of a connection: each ends it at its time, not before, with its reason.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use conjure_egress::{
    DnsResolver, Egress, EgressObserver, EgressPolicy, HostName, ProxyLimits, RefusalReason,
};
use futures_util::future::BoxFuture;
use test_support::ManualClock;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use crate::support::{Proxy, Recorder, Server, egress, expect, limited, read_text};

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn timed(policy: EgressPolicy) -> (Egress, ManualClock) {
    let clock = ManualClock::default();
    (egress(policy).with_clock(Arc::new(clock.clone())), clock)
}

#[tokio::test]
async fn an_incomplete_request_times_out() {
    for (text, answer) in [
        (&b""[..], ""),
        (b"GET http://a/ HT", "HTTP/1.1 408 Request Timeout\r\n"),
        (&[5], "\u{5}\u{ff}"),
        (&[5, 1, 0, 5, 1], "\u{5}\0\u{5}\u{1}\0\u{1}\0\0\0\0\0\0"),
    ] {
        let (egress, clock) = timed(EgressPolicy::Full);
        let recorder = Recorder::new();
        let egress = egress.with_observer(Arc::clone(&recorder) as Arc<dyn EgressObserver>);
        // The stream is in memory, so a proxy that waits for more has read everything.
        let (mut client, server) = tokio::io::duplex(1 << 10);
        client.write_all(text).await.unwrap();
        let scene = async {
            clock.move_to(seconds(30)).await;
            assert_eq!(
                recorder.first().await.reason,
                RefusalReason::RequestTimedOut { timeout: seconds(30) }
            );
            client.shutdown().await.unwrap();
            read_text(&mut client).await
        };
        let ((), whole) = tokio::join!(egress.serve(server), scene);
        assert!(whole.starts_with(answer) && whole.is_empty() == answer.is_empty(), "{text:?}: {whole:?}");
    }
}

#[tokio::test]
async fn a_head_that_does_not_end_is_refused_at_its_limit() {
    let proxy = Proxy::start(EgressPolicy::Full).await;
    let endless = format!("GET http://a/ HTTP/1.1\r\nX: {}", "x".repeat(1 << 17));
    let answer = proxy.ask(endless).await;
    assert!(answer.starts_with("HTTP/1.1 431 ") && answer.contains("longer than 65536 bytes"), "{answer}");
    let long = format!("GET http://a/ HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1 << 16));
    assert!(proxy.ask(long).await.starts_with("HTTP/1.1 431 "));
}

#[derive(Debug)]
struct SilentResolver;

impl DnsResolver for SilentResolver {
    fn resolve(&self, _: &HostName) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_silent_resolver_times_out() {
    let (egress, clock) = timed(limited("good.example"));
    let proxy = Proxy::start_with(egress.with_resolver(Arc::new(SilentResolver))).await;
    let (answer, ()) =
        tokio::join!(proxy.ask("CONNECT good.example:443 HTTP/1.1\r\n\r\n"), clock.move_to(seconds(10)));
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("error=dns_timeout"), "{answer}");
}

#[tokio::test]
async fn a_hello_that_trickles_is_refused() {
    let (server, received) = Server::recording("", "never").await;
    let (egress, clock) = timed(limited(server.at("good.example")));
    let proxy = Proxy::start_with(egress).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    tunnel.write_all(&[22, 3, 1, 1]).await.unwrap();
    clock.move_to(seconds(10)).await;
    assert_eq!(
        proxy.recorder.first().await.reason,
        RefusalReason::HandshakeTimedOut { timeout: seconds(10) }
    );
    expect(&mut tunnel, &[21, 3, 3, 0, 2, 2, 40]).await;
    assert_eq!(received.all().concat(), "");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_an_active_one_is_not() {
    let (server, _) = Server::recording("pong", "ping").await;
    let (egress, clock) = timed(limited(server.at("good.example")));
    let proxy = Proxy::start_with(egress).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    clock.set(seconds(200));
    tunnel.write_all(b"ping").await.unwrap();
    expect(&mut tunnel, b"pong").await;
    clock.set(seconds(400));
    clock.is_awaited(seconds(500)).await;
    tunnel.write_all(b"ping").await.unwrap();
    expect(&mut tunnel, b"pong").await;
    clock.set(seconds(500));
    // Five minutes after the last data.
    clock.move_to(seconds(700)).await;
    assert_eq!(read_text(&mut tunnel).await, "");
    assert!(proxy.reasons().is_empty());
}

#[tokio::test]
async fn without_a_permit_a_connection_waits_and_is_then_refused() {
    let (server, _) = Server::recording("pong", "ping").await;
    let (egress, clock) = timed(limited(server.at("good.example")));
    let places = Arc::new(Semaphore::new(1));
    let proxy = Proxy::start_with(egress.with_connection_permits(Arc::clone(&places))).await;
    let first = proxy.tunnel(&server.at("good.example")).await;

    let request = format!("CONNECT {} HTTP/1.1\r\n\r\n", server.at("good.example"));
    let (answer, ()) = tokio::join!(proxy.ask(&request), clock.move_to(seconds(10)));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("too many connections"), "{answer}");

    // A waiting connection gets the permit as soon as it is free.
    clock.set(seconds(11));
    let free = async {
        clock.is_awaited(seconds(21)).await;
        drop(first);
    };
    let authority = server.at("good.example");
    let (mut second, ()) = tokio::join!(proxy.tunnel(&authority), free);
    second.write_all(b"ping").await.unwrap();
    expect(&mut second, b"pong").await;
    assert_eq!(proxy.reasons(), [RefusalReason::TooManyConnections]);
}

#[tokio::test]
async fn the_embedder_sets_the_limits() {
    let mut bounds = ProxyLimits::default();
    bounds.max_head_bytes = 40;
    let proxy = Proxy::start_with(egress(EgressPolicy::Full).with_limits(bounds)).await;
    let answer = proxy.ask(format!("CONNECT {} HTTP/1.1\r\n\r\n", "a".repeat(60))).await;
    assert!(answer.contains("longer than 40 bytes"), "{answer}");
}
