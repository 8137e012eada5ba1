//! HTTP transport to an engine: one connection for each request. Answers have a size limit: the peer is not always an
//! engine, and the client keeps a whole answer in memory.
//!
//! State: the open connections. Each has a task, which ends with the response or with its reader.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker as Client};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::task::TaskTracker;

use super::address::EngineAddress;

/// The size limit of an answer: a list of some ten thousand containers.
const MAX_BODY: u64 = 64 << 20;

/// The size limit of a progress stream, which is read line by line.
const MAX_STREAM: u64 = 256 << 20;

/// Creates a client of the engine at this address. Requests time out after `timeout`.
pub(crate) fn client(address: &EngineAddress, timeout: Duration) -> Result<Client, Error> {
    let transport = Transport { address: address.clone(), tasks: TaskTracker::new() };
    let ask = move |request| {
        let transport = transport.clone();
        async move { transport.ask(request).await }
    };
    Client::connect_with_custom_transport(ask, Some("http://engine"), timeout.as_secs(), API_DEFAULT_VERSION)
}

#[derive(Debug, Clone)]
struct Transport {
    address: EngineAddress,
    tasks: TaskTracker,
}

impl Transport {
    async fn ask(&self, request: BollardRequest) -> Result<Response<Incoming>, Error> {
        match &self.address {
            EngineAddress::Unix(path) => self.exchange(UnixStream::connect(path).await?, request).await,
            EngineAddress::Tcp(host) => self.exchange(TcpStream::connect(host).await?, request).await,
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mut request: BollardRequest,
    ) -> Result<Response<Incoming>, Error> {
        let kind = EngineReplyKind::for_path(request.uri().path());
        let left = Arc::new(AtomicU64::new(kind.max_bytes()));
        let stream = TokioIo::new(LimitedReader { stream, left: Arc::clone(&left) });
        let (mut sender, connection) = http1::handshake(stream).await?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                // The caller gets the error.
                tracing::trace!(%error, "a connection to the engine broke");
            }
        });
        // HTTP/1.1 requests name a path, not a URL.
        let path = request.uri().path_and_query().map(|path| path.as_str().parse());
        if let Some(path) = path {
            *request.uri_mut() = path?;
        }
        let host = match &self.address {
            EngineAddress::Unix(_) => HeaderValue::from_static("engine"),
            EngineAddress::Tcp(host) => {
                HeaderValue::from_str(host).unwrap_or_else(|_| HeaderValue::from_static("engine"))
            }
        };
        request.headers_mut().insert(HOST, host);
        let response = sender.send_request(request).await?;
        if kind == EngineReplyKind::Upgrade
            && matches!(response.status(), StatusCode::OK | StatusCode::SWITCHING_PROTOCOLS)
        {
            // From now on the connection carries a container's streams, which are not buffered, so the size limit
            // does not apply.
            left.store(u64::MAX, Ordering::Relaxed);
        }
        Ok(response)
    }
}

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineReplyKind {
    Body,
    /// A progress stream.
    Stream,
    /// The streams of a container.
    Upgrade,
}

impl EngineReplyKind {
    fn for_path(path: &str) -> Self {
        let ends = |end| path.ends_with(end);
        match path {
            _ if ends("/attach") => Self::Upgrade,
            _ if ends("/build") || ends("/images/create") => Self::Stream,
            _ => Self::Body,
        }
    }

    const fn max_bytes(self) -> u64 {
        match self {
            Self::Stream => MAX_STREAM,
            Self::Body | Self::Upgrade => MAX_BODY,
        }
    }
}

/// A stream that fails after a limited number of bytes.
struct LimitedReader<S> {
    stream: S,
    left: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedReader<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = (buffer.filled().len() - before) as u64;
        let left = self.left.load(Ordering::Relaxed);
        if left == u64::MAX {
            return Poll::Ready(Ok(()));
        }
        let Some(left) = left.checked_sub(read) else {
            buffer.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        };
        self.left.store(left, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedReader<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn no_more_is_read_than_is_left_and_what_is_a_containers_has_no_bound() {
        let left = |bytes| Arc::new(AtomicU64::new(bytes));
        let mut read = Vec::new();
        let mut bounded = LimitedReader { stream: &[7; 100][..], left: left(100) };
        bounded.read_to_end(&mut read).await.unwrap();
        assert_eq!(read.len(), 100);
        let mut bounded = LimitedReader { stream: &[7; 101][..], left: left(100) };
        let error = bounded.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let mut bounded = LimitedReader { stream: &[7; 101][..], left: left(u64::MAX) };
        assert_eq!(bounded.read_to_end(&mut read).await.unwrap(), 101);
    }

    #[test]
    fn what_comes_back_is_known_by_what_is_asked() {
        for (path, kind) in [
            ("/v1.41/containers/conjure-1/attach", EngineReplyKind::Upgrade),
            ("/v1.41/build", EngineReplyKind::Stream),
            ("/v1.41/images/create", EngineReplyKind::Stream),
            ("/v1.41/containers/json", EngineReplyKind::Body),
            ("/v1.41/containers/build/json", EngineReplyKind::Body),
        ] {
            assert_eq!(EngineReplyKind::for_path(path), kind, "{path}");
        }
    }
}
