//! Accepts a limited number of connections and serves HTTP/1.1 on each, over TLS if there is a certificate.
//!
//! State: the tasks of open connections. They end with the server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::stall_guard::StallGuard;
use crate::http::tls::{Tls, TlsCertificate};

/// The timeout for receiving the head of a request. It also limits the idle time of a kept-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a write may make no progress because the client does not read.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The connections of a server.
#[derive(Debug, Clone)]
pub(crate) struct Connections {
    pub(crate) tasks: TaskTracker,
    permits: Arc<Semaphore>,
    /// Cancelled when no further requests may begin.
    pub(crate) closing: CancellationToken,
    /// Cancelled when open connections must be dropped.
    pub(crate) dropping: CancellationToken,
    /// The TLS settings; `None`: connections are not encrypted.
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Connections {
    pub(crate) fn new(most: usize, closing: CancellationToken, tls: Option<TlsCertificate>) -> Self {
        let permits = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let tls = tls.map(|certificate| Arc::new(Tls::new(certificate)));
        Self { tasks: TaskTracker::new(), permits, closing, dropping: CancellationToken::new(), tls }
    }
}

/// Accepts connections until the server closes. A permit is acquired before each accept, so further connections wait in the kernel.
pub(crate) async fn accept(listener: TcpListener, router: Router, connections: Connections) {
    loop {
        let accepted = async {
            let permit = Arc::clone(&connections.permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, stream) = tokio::select! {
            biased;
            () = connections.closing.cancelled() => return,
            accepted = accepted => accepted,
        };
        let stream = match stream {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (router, open) = (router.clone(), connections.clone());
        connections.tasks.spawn(async move {
            encrypt_and_serve(stream, router, &open).await;
            drop(permit);
        });
    }
}

/// Serves one connection, over TLS if there is a certificate.
async fn encrypt_and_serve(stream: TcpStream, router: Router, open: &Connections) {
    // Each event is one small write, which must not wait for the next one.
    let _ = stream.set_nodelay(true);
    let stream = StallGuard::new(stream, STALL_TIMEOUT);
    let Some(tls) = &open.tls else { return serve(stream, router, open).await };
    let accepted = tokio::select! {
        biased;
        // No request has begun.
        () = open.closing.cancelled() => return,
        accepted = tls.accept(stream) => accepted,
    };
    match accepted {
        Ok(stream) => serve(stream, router, open).await,
        Err(error) => tracing::debug!(%error, "a client did not complete the handshake of TLS"),
    }
}

/// Serves HTTP on one connection until the client closes it, or the server closes.
async fn serve<S>(stream: S, router: Router, open: &Connections)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let mut is_closing = false;
    loop {
        tokio::select! {
            biased;
            () = open.dropping.cancelled() => return,
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended with an error");
                }
                return;
            }
            () = open.closing.cancelled(), if !is_closing => {
                is_closing = true;
                // The current request is answered, and no further request is read.
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
