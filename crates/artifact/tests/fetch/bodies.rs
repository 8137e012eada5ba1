//! Response bodies: sizes, framing and encodings.

use std::sync::Arc;

use conjure_artifact::{ArtifactErrorKind as Kind, ArtifactOptions};
use conjure_base::Digest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::support::{Fixture, RequestHead, TestServer, ok, options};

fn limited(limit: u64) -> Fixture {
    Fixture::with(|settings| settings.options = ArtifactOptions { url_max_size: limit, ..options() })
}

#[tokio::test]
async fn a_body_may_be_empty() {
    for answer in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
    ] {
        let fixture = Fixture::new();
        let fetched = fixture.fetch(&TestServer::responding(answer).await.good_url("/x.csv")).await.unwrap();
        assert_eq!((fetched.content.size, fetched.content.digest), (0, Digest::of_bytes(b"")));
        assert_eq!(fetched.content_type, "text/csv");
    }
}

#[tokio::test]
async fn bodies_are_read_in_every_framing() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\n\r\nhello",
        "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        assert_eq!(
            Fixture::new().text(&TestServer::responding(answer).await.good_url("/")).await,
            "hello",
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn bytes_after_the_content_length_are_ignored() {
    let site = TestServer::responding(
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, and HTTP/1.1 200 OK\r\n\r\n",
    )
    .await;
    assert_eq!(Fixture::new().text(&site.good_url("/")).await, "hello");
}

#[tokio::test]
async fn a_truncated_body_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello",
    ] {
        let site = TestServer::responding(answer).await;
        let fixture = Fixture::new();
        let error = fixture.fetch(&site.good_url("/")).await.expect_err(answer);
        assert_eq!(error.kind(), Kind::FetchFailed, "{answer:?}");
        assert!(error.is_retryable() && error.to_string().contains("the connection broke"), "{error}");
        fixture.is_empty();
    }
}

#[tokio::test]
async fn a_content_length_above_the_limit_is_rejected_before_the_body() {
    let site = TestServer::serving(|_, mut stream: TcpStream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n").await.unwrap();
        // The body never comes.
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    })
    .await;
    let message = limited(10).refuses(&site.good_url("/?key=secret"), Kind::TooLarge).await;
    let expected = site.good_url("/?key=…");
    assert_eq!(message, format!("the content of `{expected}` has more than 10 bytes, which is the maximum"));
}

#[tokio::test]
async fn the_size_limit_is_exact() {
    for framing in ["Content-Length: 10\r\n\r\n", "Connection: close\r\n\r\n"] {
        let site = TestServer::responding(format!("HTTP/1.1 200 OK\r\n{framing}0123456789")).await;
        assert_eq!(limited(10).text(&site.good_url("/")).await, "0123456789");
        limited(9).refuses(&site.good_url("/"), Kind::TooLarge).await;
    }
}

/// Sends `piece` until the client disconnects, and then reports the number of bytes.
async fn endless(head: &'static str, piece: Vec<u8>) -> (TestServer, watch::Receiver<usize>) {
    let (sent_bytes, progress) = watch::channel(0);
    let (sent_bytes, piece) = (Arc::new(sent_bytes), Arc::new(piece));
    let site = TestServer::serving(move |_: RequestHead, mut stream: TcpStream| {
        let (sent_bytes, piece) = (Arc::clone(&sent_bytes), Arc::clone(&piece));
        async move {
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut bytes = 0;
            while stream.write_all(&piece).await.is_ok() {
                bytes += piece.len();
            }
            sent_bytes.send_replace(bytes);
        }
    })
    .await;
    (site, progress)
}

#[tokio::test]
async fn an_endless_body_is_stopped_at_the_limit() {
    let plain = ("HTTP/1.1 200 OK\r\n\r\n", vec![b'x'; 1 << 16]);
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 1 << 16], b"\r\n".to_vec()].concat();
    for (head, piece) in [plain, ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk)] {
        let (site, mut progress) = endless(head, piece).await;
        limited(1 << 20).refuses(&site.good_url("/"), Kind::TooLarge).await;
        // The server is hung up on, with no more sent than what lies in buffers.
        let progress = *progress.wait_for(|bytes| *bytes > 0).await.unwrap();
        assert!(progress < 64 << 20, "{progress}");
    }
}

#[tokio::test]
async fn a_body_of_many_megabytes_is_read_completely() {
    let megabyte: Vec<u8> =
        (0..1 << 20).map(|offset: u32| offset.to_le_bytes()[offset as usize % 3]).collect();
    let expected = Digest::of_bytes(&megabyte.repeat(40));
    let site = TestServer::serving(move |_, mut stream: TcpStream| {
        let megabyte = megabyte.clone();
        async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 41943040\r\n\r\n").await.unwrap();
            for _ in 0..40 {
                stream.write_all(&megabyte).await.unwrap();
            }
        }
    })
    .await;
    let fetched = limited(40 << 20).fetch(&site.good_url("/")).await.unwrap();
    assert_eq!((fetched.content.size, fetched.content.digest), (40 << 20, expected));
}

#[tokio::test]
async fn a_body_of_single_bytes_is_read_completely() {
    let body = b"1\r\nx\r\n".repeat(100_000);
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let site = TestServer::responding([&head[..], &body, b"0\r\n\r\n"].concat()).await;
    let fetched = Fixture::new().fetch(&site.good_url("/")).await.unwrap();
    assert_eq!(fetched.content.digest, Digest::of_bytes(&[b'x'; 100_000]));
}

#[tokio::test]
async fn a_missing_store_is_reported_without_its_path() {
    let site = TestServer::responding(ok("", "x")).await;
    let fixture = Fixture::new();
    std::fs::remove_dir(fixture.store.root().join("temporary")).unwrap();
    let error = fixture.fetch(&site.good_url("/")).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Store);
    let (message, path) = (error.to_string(), fixture.store.root().display().to_string());
    assert!(message.ends_with(": it is not there any more") && !message.contains(&path), "{message}");
}

#[tokio::test]
async fn compressed_bodies_are_rejected() {
    // A gzip member that would unpack to much more than it is.
    let bomb: &[u8] = &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 237, 193, 49, 1, 0, 0, 0, 194, 160, 245, 79, 109];
    for coding in ["gzip", "br", "deflate", "zstd", "identity, gzip"] {
        let site = TestServer::responding(ok(&format!("Content-Encoding: {coding}\r\n"), bomb)).await;
        let message = Fixture::new().refuses(&site.good_url("/"), Kind::FetchFailed).await;
        assert!(message.contains("name a URL that is served without it"), "{message}");
    }
    let coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    Fixture::new().refuses(&TestServer::responding(coded).await.good_url("/"), Kind::FetchFailed).await;
    // A file that is compressed is a file.
    let site = TestServer::responding(ok("Content-Type: application/gzip\r\n", bomb)).await;
    let fixture = Fixture::new();
    let fetched = fixture.fetch(&site.good_url("/data.gz")).await.unwrap();
    assert_eq!(
        (fixture.bytes(&fetched).as_slice(), fetched.content_type.as_str()),
        (bomb, "application/gzip")
    );
}
