//! Notices that nothing moves any more on a connection, in either direction and at either end.
//!
//! Every read and write that moved something puts the moment off at which the connection counts as idle. It owns that
//! moment, which ends with the connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use conjure_base::{Clock, Deadline};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// When a connection counts as idle. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    clock: Arc<dyn Clock>,
    idle: Duration,
    until: Arc<Mutex<Deadline>>,
}

impl Activity {
    pub(crate) fn new(clock: Arc<dyn Clock>, idle: Duration) -> Self {
        let until = Arc::new(Mutex::new(clock.deadline(idle)));
        Self { clock, idle, until }
    }

    /// Resolves once nothing has moved for the whole time.
    pub(crate) async fn quiet(&self) {
        loop {
            let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
            self.clock.sleep_until(until).await;
            if *self.until.lock().unwrap_or_else(PoisonError::into_inner) == until {
                return;
            }
        }
    }

    fn moved(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.deadline(self.idle);
    }
}

/// A stream whose reads and writes are activity.
pub(crate) struct Watched<S> {
    stream: S,
    activity: Activity,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, activity: &Activity) -> Self {
        Self { stream, activity: activity.clone() }
    }
}

impl<S> fmt::Debug for Watched<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watched").finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.moved();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.activity.moved();
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
