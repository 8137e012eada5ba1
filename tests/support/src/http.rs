//! A small service over HTTP: it records each request and responds as the test scripts it.
#![expect(clippy::unwrap_used, reason = "a request that cannot be read fails the test")]

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};

use crate::Loopback;

/// A received request.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The first line.
    pub line: String,
    /// The headers by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The bytes after the head.
    pub body: Vec<u8>,
    head: String,
}

impl Recorded {
    /// The head, unchanged, and the body.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}\r\n\r\n{}", self.head, String::from_utf8_lossy(&self.body))
    }
}

/// A step of the server after it has read a request.
pub enum Part {
    /// Sends these bytes.
    Bytes(Vec<u8>),
    /// Sends the same bytes until the client disconnects.
    Forever(Vec<u8>),
    /// Waits until the test releases it.
    Until(oneshot::Receiver<()>),
    /// Waits for ever.
    Hang,
}

type Script = dyn Fn(usize, &Recorded) -> Vec<Part> + Send + Sync;

/// A server on loopback, which ends when it is dropped.
pub struct Server {
    /// The address on which it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _loopback: Loopback,
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
    pub async fn start(script: impl Fn(usize, &Recorded) -> Vec<Part> + Send + Sync + 'static) -> Self {
        Self::serving(script, serve).await
    }

    /// The same over TLS.
    #[cfg(feature = "tls")]
    pub async fn start_over_tls(
        acceptor: tokio_rustls::TlsAcceptor,
        script: impl Fn(usize, &Recorded) -> Vec<Part> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(script, move |stream, shared| {
            let acceptor = acceptor.clone();
            async move {
                // A client that does not trust us hangs up.
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, shared).await;
                }
            }
        })
        .await
    }

    async fn serving<F>(
        script: impl Fn(usize, &Recorded) -> Vec<Part> + Send + Sync + 'static,
        serve: impl Fn(TcpStream, Arc<Shared>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            script: Box::new(script),
            requests: Mutex::default(),
            hung_up: Mutex::default(),
            changed: Notify::new(),
        });
        let of_listener = Arc::clone(&shared);
        let loopback = Loopback::start(move |stream| serve(stream, Arc::clone(&of_listener))).await;
        Self { address: loopback.address, shared, _loopback: loopback }
    }

    /// A server that always sends this response.
    pub async fn always(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, _| vec![Part::Bytes(answer.clone())]).await
    }

    /// A server that sends these responses in order, and then repeats the last one.
    pub async fn answers(answers: Vec<Vec<u8>>) -> Self {
        Self::start(move |n, _| vec![Part::Bytes(answers[n.min(answers.len() - 1)].clone())]).await
    }

    /// Its address as a URL, for servers without TLS.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, in order.
    ///
    /// # Panics
    ///
    /// If a script has panicked.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until this many requests have come.
    pub async fn received(&self, count: usize) {
        self.until(|shared| shared.requests.lock().unwrap().len() >= count).await;
    }

    /// Waits until the client has hung up this many times in mid-answer.
    pub async fn disconnected(&self, count: usize) {
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
    Some(Recorded { line, headers, body, head })
}

/// An answer without a length: it ends when the connection does.
#[must_use]
pub fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n{body}").into_bytes()
}
