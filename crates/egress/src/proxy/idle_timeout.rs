//! The idle timeout of a connection, shared by both directions and both ends.
//!
//! Each read or write that moves data extends the deadline. State: that deadline, which ends with the connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use conjure_base::{Clock, Deadline, lock};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The deadline at which a connection counts as idle. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct IdleTimeout {
    clock: Arc<dyn Clock>,
    timeout: Duration,
    deadline: Arc<Mutex<Deadline>>,
}

impl IdleTimeout {
    pub(crate) fn new(clock: Arc<dyn Clock>, idle: Duration) -> Self {
        let until = Arc::new(Mutex::new(clock.deadline(idle)));
        Self { clock, timeout: idle, deadline: until }
    }

    /// Resolves once no data has moved for the whole timeout.
    pub(crate) async fn expired(&self) {
        loop {
            let until = *lock(&self.deadline);
            self.clock.sleep_until(until).await;
            if *lock(&self.deadline) == until {
                return;
            }
        }
    }

    fn reset(&self) {
        *lock(&self.deadline) = self.clock.deadline(self.timeout);
    }
}

/// A stream whose reads and writes reset an idle timeout.
pub(crate) struct IdleTrackedStream<S> {
    stream: S,
    idle_timeout: IdleTimeout,
}

impl<S> IdleTrackedStream<S> {
    pub(crate) fn new(stream: S, idle_timeout: &IdleTimeout) -> Self {
        Self { stream, idle_timeout: idle_timeout.clone() }
    }
}

impl<S> fmt::Debug for IdleTrackedStream<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IdleTrackedStream").finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.idle_timeout.reset();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.idle_timeout.reset();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
