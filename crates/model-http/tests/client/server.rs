//! A service of a few lines: it records each request and gives the next answer.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What the server does after it has read a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends these bytes again and again.
    Forever(Vec<u8>, Vec<u8>),
}

pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// A server that gives these replies one after the other, and then the last one again.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (received, replies) = (Arc::clone(&received), replies.clone());
                connections.spawn(async move {
                    serve(stream, &received, &replies).await;
                });
            }
        });
        Self { url, requests, _tasks: tasks }
    }

    pub(crate) async fn always(reply: impl Into<Vec<u8>>) -> Self {
        Self::start(vec![Reply::Bytes(reply.into())]).await
    }

    /// The requests: head and body as text.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, received: &Mutex<Vec<String>>, replies: &[Reply]) -> Option<()> {
    let mut request = Vec::new();
    let (mut head, mut size) = (None, 0);
    while head.is_none_or(|head| request.len() < head + size) {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request);
        if head.is_none()
            && let Some(end) = text.find("\r\n\r\n")
        {
            head = Some(end + 4);
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            size = length.map_or(0, |length| length.parse().unwrap());
        }
    }
    let reply = {
        let mut received = received.lock().unwrap();
        received.push(String::from_utf8_lossy(&request).into_owned());
        replies[(received.len() - 1).min(replies.len() - 1)].clone()
    };
    match reply {
        Reply::Bytes(bytes) => stream.write_all(&bytes).await.ok()?,
        Reply::Forever(first, again) => {
            stream.write_all(&first).await.ok()?;
            loop {
                stream.write_all(&again).await.ok()?;
            }
        }
    }
    Some(())
}

/// A response with these headers, which ends with the connection.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n{body}").into_bytes()
}

/// A stream of these events' data.
pub(crate) fn stream(events: &[&str]) -> Vec<u8> {
    let body: String = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    answer(
        "200 OK",
        &[("content-type", "text/event-stream; charset=utf-8"), ("x-request-id", "req_1")],
        &body,
    )
}

/// A JSON error.
pub(crate) fn error(status: &str, headers: &[(&str, &str)], kind: &str, message: &str) -> Vec<u8> {
    let body = format!(r#"{{"error":{{"type":"{kind}","message":"{message}"}}}}"#);
    let headers = [&[("content-type", "application/json")], headers].concat();
    answer(status, &headers, &body)
}
