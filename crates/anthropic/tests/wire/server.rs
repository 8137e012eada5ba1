//! A small service: it records each request and responds as the test scripts it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// A part of what the server does after it has read a request.
pub(crate) enum Part {
    Bytes(Vec<u8>),
    /// The same bytes until the client disconnects.
    Forever(Vec<u8>),
    /// Continues when the test releases it.
    Until(oneshot::Receiver<()>),
    /// Does not continue.
    Hang,
}

type Script = dyn Fn(usize, &Recorded) -> Vec<Part> + Send + Sync;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    script: Box<Script>,
    requests: Mutex<Vec<Recorded>>,
    /// How many connections the client has closed while an answer was under way.
    hung_up: Mutex<usize>,
    changed: Notify,
}

impl Server {
    /// A server that answers request `n` (from 0) with `script(n, request)`, and closes the connection after it.
    pub(crate) async fn start(
        script: impl Fn(usize, &Recorded) -> Vec<Part> + Send + Sync + 'static,
    ) -> Self {
        Self::start_over(None, script).await
    }

    /// The same over TLS, where there is an acceptor.
    pub(crate) async fn start_over(
        tls: Option<TlsAcceptor>,
        script: impl Fn(usize, &Recorded) -> Vec<Part> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            requests: Mutex::default(),
            hung_up: Mutex::default(),
            changed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        let of_listener = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (shared, tls) = (Arc::clone(&of_listener), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, shared).await,
                        // A client that does not trust us hangs up.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, shared).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, shared, _tasks: tasks }
    }

    /// A server that always sends this response.
    pub(crate) async fn always(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, _| vec![Part::Bytes(answer.clone())]).await
    }

    /// A server that sends these responses in order, and then repeats the last one.
    pub(crate) async fn answers(answers: Vec<Vec<u8>>) -> Self {
        Self::start(move |n, _| vec![Part::Bytes(answers[n.min(answers.len() - 1)].clone())]).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until this many requests have come.
    pub(crate) async fn received(&self, count: usize) {
        self.until(|shared| shared.requests.lock().unwrap().len() >= count).await;
    }

    /// Waits until the client has hung up this many times in mid-answer.
    pub(crate) async fn disconnected(&self, count: usize) {
        self.until(|shared| *shared.hung_up.lock().unwrap() >= count).await;
    }

    async fn until(&self, condition: impl Fn(&Shared) -> bool) {
        loop {
            let changed = self.shared.changed.notified();
            if condition(&self.shared) {
                return;
            }
            changed.await;
        }
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let Some(request) = read_request(&mut stream).await else { return };
    let parts = {
        let mut requests = shared.requests.lock().unwrap();
        requests.push(request.clone());
        (shared.script)(requests.len() - 1, &request)
    };
    shared.changed.notify_waiters();
    let mut probe = [0u8; 1];
    for part in parts {
        let went_on = match part {
            Part::Bytes(bytes) => stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok(),
            Part::Forever(bytes) => {
                while stream.write_all(&bytes).await.is_ok() {}
                false
            }
            Part::Until(signal) => tokio::select! {
                _ = signal => true,
                _ = stream.read(&mut probe) => false,
            },
            Part::Hang => {
                let _ = stream.read(&mut probe).await;
                false
            }
        };
        if !went_on {
            *shared.hung_up.lock().unwrap() += 1;
            shared.changed.notify_waiters();
            return;
        }
    }
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Recorded> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: BTreeMap<String, String> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut body = bytes[head_end + 4..].to_vec();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Recorded { line, headers, body })
}

/// An answer without a length: it ends when the connection does.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n{body}").into_bytes()
}

/// A stream of events under a good status.
pub(crate) fn stream(body: &str) -> Vec<u8> {
    answer("200 OK", &[("content-type", "text/event-stream; charset=utf-8"), ("request-id", "req_1")], body)
}

/// An error as the service writes it.
pub(crate) fn error(status: &str, headers: &[(&str, &str)], kind: &str, message: &str) -> Vec<u8> {
    let body = serde_json::json!({"type": "error", "error": {"type": kind, "message": message}});
    let mut all = vec![("content-type", "application/json"), ("request-id", "req_e")];
    all.extend_from_slice(headers);
    answer(status, &all, &body.to_string())
}
