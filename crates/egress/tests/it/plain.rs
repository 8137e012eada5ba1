//! Plain HTTP requests: what the server gets, what the client gets, and what is refused.

use conjure_egress::EgressPolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Proxy, Server, expect, limited, read_text};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const OK_PASSED_ON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

async fn proxy_for(server: &Server) -> Proxy {
    Proxy::start(limited(format!("good.example:{}", server.port))).await
}

#[tokio::test]
async fn a_request_is_rewritten_and_forwarded_alone() {
    let (server, received) = Server::recording(OK, "\r\n\r\nabc").await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    // Bytes after the request are never a second one.
    let answer = proxy
        .ask(format!(
            "POST http://{authority}/a?b HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic x\r\nContent-Length: 3\r\n\
             Connection: keep-alive, x\r\nX: y\r\n\r\nabcGET http://{authority}/smuggled HTTP/1.1\r\nHost: {authority}\r\n\r\n"
        ))
        .await;
    assert_eq!(answer, OK_PASSED_ON);
    let expected = format!(
        "POST /a?b HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    );
    assert_eq!(received.all(), [expected]);
    assert!(proxy.reasons().is_empty());
}

#[tokio::test]
async fn a_chunked_body_is_reframed_in_both_directions() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nT: z\r\n\r\nmore";
    let (server, received) = Server::recording(chunked, "0\r\n\r\n").await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    let answer = proxy
        .ask(format!(
            "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\n\r\n3;e\r\nabc\r\n0\r\nT: x\r\n\r\n"
        ))
        .await;
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    );
    assert!(
        received.all()[0]
            .ends_with("Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    );
}

#[tokio::test]
async fn malformed_requests_reach_no_server() {
    let (server, received) = Server::recording(OK, "\r\n\r\n").await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    for (fields, body, status) in [
        ("Content-Length: 3\r\nContent-Length: 3", "abc", 400),
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", "0\r\n\r\n", 400),
        ("Transfer-Encoding: xchunked", "0\r\n\r\n", 400),
        ("Transfer-Encoding: chunked\nX: y", "0\r\n\r\n", 400),
        ("X: a\r\n folded", "", 400),
        ("Host: evil.example", "", 400),
        ("X : y", "", 400),
    ] {
        let request =
            format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n\r\n{body}");
        let answer = proxy.ask(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{fields:?}: {answer}");
    }
    let other = proxy.ask(format!("GET http://{authority}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")).await;
    assert!(
        other.starts_with("HTTP/1.1 403 ") && other.contains("the `Host` header names `evil.example`"),
        "{other}"
    );
    assert!(received.all().is_empty());
}

#[tokio::test]
async fn a_body_that_is_malformed_ends_the_request() {
    let (server, received) = Server::recording(OK, "never").await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    let request = format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n"
    );
    let answer = proxy.ask(request).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("its chunks are malformed"), "{answer}");
    assert!(!received.first().await.contains("0\r\n\r\n"));
}

#[tokio::test]
async fn a_server_may_ask_for_the_body_first_and_answer_before_it_ends() {
    let server = Server::start(|mut stream: TcpStream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        expect(&mut stream, b"abc").await;
        stream.write_all(b"HTTP/1.1 413 Too Much\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    })
    .await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let head = format!(
        "PUT http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    expect(&mut client, b"HTTP/1.1 100 Continue\r\n\r\n").await;
    client.write_all(b"abc").await.unwrap();
    expect(&mut client, b"HTTP/1.1 413 Too Much\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
}

#[tokio::test]
async fn an_http_1_0_client_gets_no_chunks() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let (server, received) = Server::recording(chunked, "\r\n\r\n").await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    let answer = proxy.ask(format!("GET http://{authority}/ HTTP/1.0\r\n\r\n")).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok");
    assert!(received.all()[0].starts_with(&format!("GET / HTTP/1.1\r\nHost: {authority}\r\n")));
}

#[tokio::test]
async fn a_response_without_a_body_does_not_wait_for_one() {
    let (server, _) = Server::recording("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "\r\n\r\n").await;
    let proxy = proxy_for(&server).await;
    let authority = server.at("good.example");
    let answer = proxy.ask(format!("HEAD http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n");
}

#[tokio::test]
async fn a_server_that_answers_nonsense_is_a_bad_gateway() {
    for (answer, text) in [
        ("SSH-2.0-server\r\n\r\n", "the version is not HTTP/1.0 or HTTP/1.1"),
        ("HTTP/1.1 200 OK\n\n", "a line does not end with CR LF"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
            "switches to a protocol that the client did not request",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "it has two `Content-Length` fields",
        ),
    ] {
        let (server, _) = Server::recording(answer, "\r\n\r\n").await;
        let proxy = proxy_for(&server).await;
        let authority = server.at("good.example");
        let reply = proxy.ask(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        assert!(reply.starts_with("HTTP/1.1 502 ") && reply.contains(text), "{reply}");
        assert!(reply.contains(&authority), "{reply}");
    }
}

#[tokio::test]
async fn an_incomplete_response_stays_recognisable() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshortX",
    ] {
        let server = Server::start(move |mut stream: TcpStream| async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let proxy = proxy_for(&server).await;
        let authority = server.at("good.example");
        let reply = proxy.ask(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
        assert!(reply.contains("short") && !reply.ends_with("0\r\n\r\n"), "{reply}");
        assert!(!reply.contains("conjure"), "{reply}");
    }
}

#[tokio::test]
async fn on_the_port_of_http_a_tunnel_carries_http_for_its_own_host_only() {
    let (server, received) = Server::recording(OK, "\r\n\r\n").await;
    let ports = conjure_egress::WebPorts { http: vec![server.port], https: vec![] };
    let egress = crate::support::egress(limited(format!("good.example:{}", server.port)));
    let proxy = Proxy::start_with(egress.with_web_ports(ports.clone())).await;
    let authority = server.at("good.example");
    for (request, expected) in [
        (format!("GET /x HTTP/1.1\r\nHost: {authority}\r\n\r\n"), "HTTP/1.1 200 "),
        (
            format!(
                "GET http://{authority}/x HTTP/1.1\r\nHost: {authority}\r\n\r\nGET /y HTTP/1.1\r\nHost: evil.example\r\n\r\n"
            ),
            "HTTP/1.1 200 ",
        ),
        ("GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "HTTP/1.1 403 "),
        (format!("GET http://evil.example/x HTTP/1.1\r\nHost: {authority}\r\n\r\n"), "HTTP/1.1 403 "),
        ("\r\nGET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "HTTP/1.1 403 "),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "HTTP/1.1 400 "),
        (format!("CONNECT {authority} HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 "),
        ("\u{16}\u{3}\u{1}\r\n".to_owned(), "HTTP/1.1 400 "),
    ] {
        let mut tunnel = proxy.tunnel(&authority).await;
        tunnel.write_all(request.as_bytes()).await.unwrap();
        tunnel.shutdown().await.unwrap();
        let answer = read_text(&mut tunnel).await;
        assert!(answer.starts_with(expected), "{request:?}: {answer}");
    }
    let received: Vec<String> = received.all().into_iter().filter(|received| !received.is_empty()).collect();
    let expected = format!("GET /x HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    assert_eq!(received, [expected.clone(), expected]);
    // Under `Full` there is no list to circumvent: the tunnel relays everything.
    let full = Proxy::start_with(crate::support::egress(EgressPolicy::Full).with_web_ports(ports)).await;
    let mut tunnel = full.tunnel(&authority).await;
    tunnel.write_all(b"GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.unwrap();
    expect(&mut tunnel, OK.as_bytes()).await;
}

#[tokio::test]
async fn a_refusal_arrives_although_the_body_was_not_read() {
    const SIZE: usize = 8 << 20;
    let proxy = Proxy::start(limited("good.example")).await;
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let head =
        format!("POST http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {SIZE}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    // More than the sockets buffer: the proxy must continue to read, or a reset would discard the response.
    client.write_all(&vec![0; SIZE]).await.unwrap();
    client.shutdown().await.unwrap();
    let answer = read_text(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("hint: "), "{answer}");
}
