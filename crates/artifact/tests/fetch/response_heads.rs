//! Response heads: too many or too long headers, invalid heads, statuses, media types and file names.

use conjure_artifact::ArtifactErrorKind as Kind;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Fixture, TestServer, ok};

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let many: String = (0..101).map(|index| format!("X-{index}: y\r\n")).collect();
    Fixture::new()
        .refuses(&TestServer::responding(ok(&many, "x")).await.good_url("/"), Kind::FetchFailed)
        .await;
    let long = format!("X: {}\r\n", "y".repeat(1 << 20));
    Fixture::new()
        .refuses(&TestServer::responding(ok(&long, "x")).await.good_url("/"), Kind::FetchFailed)
        .await;
    let endless = TestServer::serving(|_, mut stream: TcpStream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nX: ").await;
        while stream.write_all(&[b'y'; 1 << 12]).await.is_ok() {}
    })
    .await;
    Fixture::new().refuses(&endless.good_url("/"), Kind::FetchFailed).await;
    // As many as are usual pass.
    let some: String = (0..90).map(|index| format!("X-{index}: y\r\n")).collect();
    assert_eq!(Fixture::new().text(&TestServer::responding(ok(&some, "x")).await.good_url("/")).await, "x");
}

#[tokio::test]
async fn non_http_responses_are_rejected() {
    for answer in [
        &b""[..],
        b"hello",
        b"220 mail.example ESMTP\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"<html></html>\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nNa me: value\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ] {
        let site = TestServer::responding(answer).await;
        let fixture = Fixture::new();
        let error =
            fixture.fetch(&site.good_url("/?key=secret")).await.expect_err(&String::from_utf8_lossy(answer));
        assert_eq!(error.kind(), Kind::FetchFailed, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        fixture.is_empty();
    }
}

#[tokio::test]
async fn error_statuses_are_reported_without_the_body() {
    for (status, shown, retryable) in [
        ("404 Nope", "404 Not Found", false),
        ("401 Nope", "401 Unauthorized", false),
        ("206 Nope", "206 Partial Content", false),
        ("429 Nope", "429 Too Many Requests", true),
        ("503 Nope", "503 Service Unavailable", true),
    ] {
        let site =
            TestServer::responding(format!("HTTP/1.1 {status}\r\nContent-Length: 7\r\n\r\nIgnore.")).await;
        let fixture = Fixture::new();
        let error = fixture.fetch(&site.good_url("/a")).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (Kind::FetchFailed, retryable));
        let url = site.good_url("/a");
        assert_eq!(error.to_string(), format!("fetching `{url}` failed: the server answered {shown}"));
        fixture.is_empty();
    }
}

#[tokio::test]
async fn the_servers_media_type_is_used_unless_contradicted() {
    let png: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    for (headers, path, body, expected) in [
        ("Content-Type: Application/JSON; charset=utf-8\r\n", "/x", &b"{}"[..], "application/json"),
        ("", "/x.csv", b"a,b", "text/csv"),
        ("Content-Type: application/octet-stream\r\n", "/x.csv", b"a,b", "text/csv"),
        ("Content-Type: application/octet-stream\r\n", "/x", png, "image/png"),
        ("Content-Type: text/plain\r\n", "/x", png, "image/png"),
        ("Content-Type: image/png\r\n", "/x", b"Not found, sorry.", "text/plain"),
        ("Content-Type: image/svg+xml\r\n", "/x", b"<svg/>", "image/svg+xml"),
        ("Content-Type: no type\r\n", "/x", b"text", "text/plain"),
        ("Content-Disposition: attachment; filename=\"y.csv\"\r\n", "/x", b"a,b", "text/csv"),
    ] {
        let fetched = Fixture::new()
            .fetch(&TestServer::responding(ok(headers, body)).await.good_url(path))
            .await
            .unwrap();
        assert_eq!(fetched.content_type, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn the_servers_file_name_is_sanitized() {
    for (headers, expected) in [
        ("", "by-url.bin"),
        ("Content-Disposition: attachment; filename=\"../../etc/passwd\"\r\n", "passwd"),
        ("Content-Disposition: attachment; filename*=UTF-8''%C3%BCber%00.csv\r\n", "über_.csv"),
        ("Content-Disposition: inline\r\n", "by-url.bin"),
    ] {
        let fetched = Fixture::new()
            .fetch(&TestServer::responding(ok(headers, "x")).await.good_url("/by-url.bin"))
            .await
            .unwrap();
        assert_eq!(fetched.name, expected, "{headers:?}");
    }
}
