//! Tunnels relay everything in both directions, ends included, with backpressure.

use conjure_egress::EgressPolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Proxy, Server, egress, expect, limited, read_text};

/// Echoes what it reads, and sends a last line when the other side has closed.
async fn echo() -> Server {
    Server::start(|mut stream: TcpStream| async move {
        let (mut reader, mut writer) = stream.split();
        if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
            let _ = writer.write_all(b"bye").await;
        }
    })
    .await
}

#[tokio::test]
async fn the_end_of_one_direction_is_passed_on_and_does_not_end_the_other() {
    let server = echo().await;
    let proxy = Proxy::start(limited(server.at("good.example"))).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    tunnel.write_all(b"hello").await.unwrap();
    expect(&mut tunnel, b"hello").await;
    tunnel.shutdown().await.unwrap();
    assert_eq!(read_text(&mut tunnel).await, "bye");
}

#[tokio::test]
async fn the_servers_end_is_passed_on_while_the_client_continues() {
    let (done, mut received_text) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::start(move |mut stream: TcpStream| {
        let done = done.clone();
        async move {
            stream.write_all(b"over").await.unwrap();
            stream.shutdown().await.unwrap();
            done.send(read_text(&mut stream).await).unwrap();
        }
    })
    .await;
    let proxy = Proxy::start(limited(server.at("good.example"))).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    // The server may send first, while the client only reads.
    assert_eq!(read_text(&mut tunnel).await, "over");
    tunnel.write_all(b"and out").await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(received_text.recv().await.unwrap(), "and out");
}

#[tokio::test]
async fn socks_opens_the_same_tunnel() {
    let server = echo().await;
    let proxy = Proxy::start(limited(server.at("good.example"))).await;
    let port = server.port.to_be_bytes();
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(&[5, 2, 2, 0]).await.unwrap();
    expect(&mut stream, &[5, 0]).await;
    // One byte at a time, and early data of the client is not lost.
    for byte in [&[5, 1, 0, 3, 12][..], b"Good.Example", &port, b"early"].concat() {
        stream.write_all(&[byte]).await.unwrap();
    }
    expect(&mut stream, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    expect(&mut stream, b"early").await;
    stream.shutdown().await.unwrap();
    assert_eq!(read_text(&mut stream).await, "bye");
}

#[tokio::test]
async fn bytes_right_after_a_connect_are_not_lost() {
    let server = echo().await;
    let proxy = Proxy::start(limited(server.at("good.example"))).await;
    let answer = proxy.ask(format!("CONNECT {} HTTP/1.1\r\n\r\nearly", server.at("good.example"))).await;
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\nearlybye");
}

#[tokio::test]
async fn many_megabytes_arrive_intact_in_both_directions_at_once() {
    const SIZE: usize = 16 << 20;
    let server = echo().await;
    let proxy = Proxy::start(EgressPolicy::Full).await;
    let (mut reader, mut writer) = proxy.tunnel(&server.at("good.example")).await.into_split();
    let piece: Vec<u8> = (0..65_521_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
    let send = async {
        let mut remaining = SIZE;
        while remaining > 0 {
            let count = remaining.min(piece.len());
            writer.write_all(&piece[..count]).await.unwrap();
            remaining -= count;
        }
        writer.shutdown().await.unwrap();
    };
    let receive = async {
        let mut received = Vec::with_capacity(SIZE + 3);
        reader.read_to_end(&mut received).await.unwrap();
        received
    };
    let ((), received) = tokio::join!(send, receive);
    assert_eq!(received.len(), SIZE + 3);
    assert!(received[..SIZE].chunks(piece.len()).all(|chunk| chunk == &piece[..chunk.len()]));
}

#[tokio::test]
async fn a_response_arrives_although_the_server_stopped_reading_the_body() {
    let server = Server::start(|mut stream: TcpStream| async move {
        expect(&mut stream, b"x").await;
        stream.write_all(b"enough").await.unwrap();
        // It reads no more, so that the kernel resets the connection once it is closed.
        stream.shutdown().await.unwrap();
        let mut rest = [0; 1];
        let _ = stream.peek(&mut rest).await;
    })
    .await;
    let proxy = Proxy::start_with(egress(EgressPolicy::Full)).await;
    let mut tunnel = proxy.tunnel(&server.at("good.example")).await;
    tunnel.write_all(b"x").await.unwrap();
    assert_eq!(read_text(&mut tunnel).await, "enough");
}
