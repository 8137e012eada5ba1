//! Dropping the future at any point leaves no connection open and no permit taken.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use conjure_egress::{Egress, EgressPolicy};
use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::support::{LOOPBACK, egress, read_text};

/// Serves `said` until the future was polled `polls` times, then drops it.
async fn served_for(egress: &Egress, text: &[u8], polls: usize) -> Poll<()> {
    let (mut client, server) = tokio::io::duplex(256);
    client.write_all(text).await.unwrap();
    let mut serving = Box::pin(egress.serve(server));
    for _ in 0..polls {
        if serving.as_mut().now_or_never().is_some() {
            return Poll::Ready(());
        }
        tokio::task::yield_now().await;
    }
    drop(serving);
    // Both directions of the client's end are closed at once.
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert!(client.write_all(&[0; 512]).await.is_err());
    Poll::Pending
}

#[tokio::test]
async fn a_dropped_connection_closes_both_ends_and_frees_its_permit() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let authority = format!("good.example:{}", listener.local_addr().unwrap().port());
    let places = Arc::new(Semaphore::new(1));
    let egress = egress(EgressPolicy::Full).with_connection_permits(Arc::clone(&places));
    let socks = [
        &[5, 1, 0, 5, 1, 0, 3, 12][..],
        b"good.example",
        &listener.local_addr().unwrap().port().to_be_bytes(),
    ];
    for text in [
        format!("CONNECT {authority} HTTP/1.1\r\n\r\nhello").into_bytes(),
        format!("CONNECT {authority} HTTP/1.1\r\n\r\n\u{16}\u{3}\u{1}").into_bytes(),
        format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n").into_bytes(),
        format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 9\r\n\r\nabc")
            .into_bytes(),
        socks.concat(),
    ] {
        let mut reached = 0;
        for polls in 0..12 {
            assert!(served_for(&egress, &text, polls).await.is_pending(), "{polls}");
            assert_eq!(places.available_permits(), 1, "{polls}");
            while let Some(Ok((mut stream, _))) = listener.accept().now_or_never() {
                reached += 1;
                // The server's end is closed as well.
                let _ = read_text(&mut stream).await;
            }
        }
        if reached == 0 {
            // Closing may take some time on a busy machine.
            let accepted = tokio::time::timeout(Duration::from_secs(60), listener.accept()).await;
            assert!(accepted.is_ok(), "no poll got as far as the server");
        }
    }
}

#[tokio::test]
async fn a_closed_client_closes_the_connection_to_the_server() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let authority = format!("good.example:{}", listener.local_addr().unwrap().port());
    let egress = egress(EgressPolicy::Full);
    let proxy = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    for request in [
        format!("CONNECT {authority} HTTP/1.1\r\n\r\nhello"),
        format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 9\r\n\r\nabc"),
        format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
    ] {
        let mut client = TcpStream::connect(proxy.local_addr().unwrap()).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let (stream, _) = proxy.accept().await.unwrap();
        let scene = async {
            let (mut server, _) = listener.accept().await.unwrap();
            server.read_u8().await.unwrap();
            // Closed without a shutdown: the peer sees a reset.
            client.set_zero_linger().unwrap();
            drop(client);
            let _ = read_text(&mut server).await;
        };
        tokio::join!(egress.serve(stream), scene);
    }
}
