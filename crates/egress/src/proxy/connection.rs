//! A client connection: its first byte decides the protocol.
//!
//! A connection first takes a permit, so that waiting connections need no memory and make no requests. The permit is
//! released when the connection ends or is dropped.

use std::io;
use std::sync::Arc;

use conjure_base::with_deadline;
use tokio::io::{AsyncRead, AsyncWrite};

use super::buffered::BufferedStream;
use super::idle_timeout::IdleTimeout;
use super::socks;
use crate::egress::Egress;
use crate::proxy::http_proxy::http;
use crate::refusal::RefusalReason;
use crate::target::Target;

/// Why a connection ended early.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// Refused. The client has not been answered yet.
    Refused(RefusalReason, Option<Target>),
    /// Refused after a part of a response was sent. The connection can only be closed.
    RefusedAfterResponse(RefusalReason, Option<Target>),
    /// The connection to the client or the server failed.
    Io(io::Error),
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<RefusalReason> for ConnectionEnd {
    fn from(reason: RefusalReason) -> Self {
        Self::Refused(reason, None)
    }
}

/// A client connection and its context.
#[derive(Debug)]
pub(crate) struct ProxyConnection<'a, S> {
    pub(crate) egress: &'a Egress,
    pub(crate) idle_timeout: &'a IdleTimeout,
    pub(crate) client: BufferedStream<S>,
}

/// Serves one client, until one end has closed or the connection is idle for too long.
pub(crate) async fn serve<S>(egress: &Egress, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let idle_timeout = IdleTimeout::new(Arc::clone(egress.clock()), egress.limits().idle_timeout);
    let client = BufferedStream::new(stream, &idle_timeout, egress.limits().buffer_bytes);
    let connection = ProxyConnection { egress, idle_timeout: &idle_timeout, client };
    tokio::select! {
        biased;
        () = connection.run() => {}
        () = idle_timeout.expired() => tracing::debug!("closed an idle connection"),
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ProxyConnection<'_, S> {
    async fn run(mut self) {
        let (clock, limits) = (&**self.egress.clock(), self.egress.limits());
        let permit = Arc::clone(self.egress.connection_permits()).acquire_owned();
        let permit = match with_deadline(clock, clock.deadline(limits.slot_timeout), permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(RefusalReason::TooManyConnections),
        };
        let deadline = clock.deadline(limits.request_timeout);
        let first = match with_deadline(clock, deadline, self.client.first_byte()).await {
            Ok(Ok(Some(first))) => first,
            // The client closed the connection before it sent a request.
            Ok(Ok(None) | Err(_)) => return,
            Err(_) => {
                self.egress
                    .report_refusal(RefusalReason::RequestTimedOut { timeout: limits.request_timeout }, None);
                return;
            }
        };
        match (first, &permit) {
            (5, permit) => socks::serve(self, permit.as_ref().err().cloned(), deadline).await,
            (b'A'..=b'Z' | b'a'..=b'z', permit) => {
                http::serve(self, permit.as_ref().err().cloned(), deadline).await;
            }
            (4, _) => {
                self.egress.report_refusal(RefusalReason::SocksVersion { version: 4 }, None);
                // The SOCKS4 reply "request rejected or failed".
                self.close_with(&[0, 91, 0, 0, 0, 0, 0, 0]).await;
            }
            (first, _) => {
                let refusal = self.egress.report_refusal(RefusalReason::UnknownProtocol { first }, None);
                let answer = http::refusal_response(&refusal);
                self.close_with(&answer).await;
            }
        }
    }

    /// Sends the last bytes and closes the connection.
    pub(crate) async fn close_with(&mut self, last: &[u8]) {
        let clock = &**self.egress.clock();
        let deadline = clock.deadline(self.egress.limits().close_timeout);
        let closing = async {
            self.client.send(last).await?;
            self.client.close_and_drain().await
        };
        // A client that has disconnected or does not read misses these bytes.
        let _ = with_deadline(clock, deadline, closing).await;
    }
}
