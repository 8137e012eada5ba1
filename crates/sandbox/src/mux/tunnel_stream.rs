//! One tunnel as a byte stream, for the gateway.
//!
//! State: the piece that is being read. Dropping the stream ends the tunnel with a reset, unless the stream was shut
//! down before. Then the client still receives the written content.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use conjure_guest::protocol::TUNNEL_WINDOW;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::shared::SharedMux;
use super::tunnels::TunnelRead;

/// A connection of a command to the proxy of its sandbox, seen from the host.
///
/// It behaves like a TCP stream. Reading ends when the client has closed its direction. `shutdown` closes the other
/// direction, and the client can still write. If the connection broke or the sandbox is lost, reading fails with
/// `ConnectionReset` and writing with `BrokenPipe`. Dropping it without `shutdown` resets the client's connection. If
/// it is dropped after `shutdown`, the client still receives the written content, and further content of the client
/// is discarded.
#[derive(Debug)]
pub struct TunnelStream {
    link: Arc<SharedMux>,
    channel: u32,
    /// Received content that was not read yet.
    piece: Bytes,
    /// The number of bytes that were read and not granted again yet.
    taken: u32,
}

impl TunnelStream {
    /// The next connection of a command to the proxy. Cancel safe. Never resolves once the sandbox is lost.
    pub(super) async fn next(link: &Arc<SharedMux>) -> Self {
        let channel = poll_fn(|cx| link.on_tunnels(|multiplexer| multiplexer.poll_tunnel(cx))).await;
        Self { link: Arc::clone(link), channel, piece: Bytes::new(), taken: 0 }
    }

    /// Grants the client as many bytes as were read, once there are enough of them for a frame.
    fn grant(&mut self, length: usize) {
        // No more than a window was granted, so no more can be read.
        self.taken = self.taken.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
        if self.taken >= TUNNEL_WINDOW / 4 {
            let taken = std::mem::take(&mut self.taken);
            self.link.on_tunnels(|multiplexer| multiplexer.grant_tunnel(self.channel, taken));
        }
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.piece.is_empty() && buffer.remaining() > 0 {
            let channel = self.channel;
            match ready!(self.link.on_tunnels(|multiplexer| multiplexer.poll_read_tunnel(channel, cx))) {
                TunnelRead::Bytes(piece) => self.piece = piece,
                TunnelRead::End => return Poll::Ready(Ok(())),
                TunnelRead::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        }
        let length = self.piece.len().min(buffer.remaining());
        buffer.put_slice(&self.piece[..length]);
        self.piece.advance(length);
        self.grant(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let channel = self.channel;
        let taken =
            ready!(self.link.on_tunnels(|multiplexer| multiplexer.poll_write_tunnel(channel, bytes, cx)));
        Poll::Ready(taken.ok_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }

    /// Written content is sent at once, so there is nothing to flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.link.on_tunnels(|multiplexer| multiplexer.finish_tunnel(self.channel));
        Poll::Ready(Ok(()))
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        self.link.on_tunnels(|multiplexer| multiplexer.release_tunnel(self.channel));
    }
}
