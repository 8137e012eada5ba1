//! A response body that is sent in separately flushed chunks, with delays between them, completely or up to a cut.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conjure_base::Clock;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use tokio_util::sync::CancellationToken;

/// The body of a fake's response.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The timing and end of a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BodyTiming {
    /// The size of a chunk in bytes. By default each event is a chunk.
    pub piece: Option<usize>,
    /// The delay between two chunks.
    pub every: Duration,
    /// How the body ends.
    pub end: BodyEnd,
}

/// How a body ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BodyEnd {
    /// With its last byte.
    #[default]
    Complete,
    /// The connection closes after `after` bytes.
    Cut {
        /// The number of bytes that are sent.
        after: usize,
    },
    /// The body stalls after `after` bytes; the connection stays open.
    Hang {
        /// The number of bytes that are sent.
        after: usize,
    },
}

/// The chunks of a body.
#[derive(Debug)]
pub(super) struct BodyChunks {
    pub(super) pieces: Vec<Bytes>,
    /// A chunk that is repeated for ever after the others.
    pub(super) repeated: Option<Bytes>,
}

impl BodyChunks {
    pub(super) const fn once(pieces: Vec<Bytes>) -> Self {
        Self { pieces, repeated: None }
    }
}

struct PacedBody {
    pieces: VecDeque<Bytes>,
    repeated: Option<Bytes>,
    every: Duration,
    end: BodyEnd,
    is_first: bool,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

/// Sends chunks with this timing. If the body is cut or the fake stops, the body ends with an error and the connection closes. A single
/// chunk with the default timing is sent as a body of known length.
pub(super) fn paced(
    pieces: BodyChunks,
    timing: &BodyTiming,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Body {
    if *timing == BodyTiming::default()
        && pieces.repeated.is_none()
        && let [only] = pieces.pieces.as_slice()
    {
        return Full::new(only.clone()).map_err(|never: Infallible| match never {}).boxed_unsync();
    }
    let mut all: VecDeque<Bytes> = pieces.pieces.into();
    if let Some(size) = timing.piece {
        let joined: Bytes = all.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>().into();
        let starts = (0..joined.len()).step_by(size.max(1));
        all = starts.map(|at| joined.slice(at..joined.len().min(at.saturating_add(size.max(1))))).collect();
    }
    if let BodyEnd::Cut { after } | BodyEnd::Hang { after } = timing.end {
        truncate(&mut all, after);
    }
    let repeated = pieces.repeated.filter(|_| timing.end == BodyEnd::Complete);
    let delivery = PacedBody {
        pieces: all,
        repeated,
        every: timing.every,
        end: timing.end,
        is_first: true,
        clock,
        stop,
    };
    let frames = stream::unfold(Some(delivery), |delivery| async {
        let mut delivery = delivery?;
        let next = delivery.next().await?;
        let left = next.is_ok().then_some(delivery);
        Some((next.map(Frame::data), left))
    });
    StreamBody::new(frames).boxed_unsync()
}

impl PacedBody {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let stop = self.stop.clone();
        let Some(next) = stop.run_until_cancelled(self.wait_and_take()).await else {
            return Some(Err(closed("the fake stops")));
        };
        next
    }

    async fn wait_and_take(&mut self) -> Option<io::Result<Bytes>> {
        if std::mem::take(&mut self.is_first) {
            return self.take().await;
        }
        // Yielding flushes the chunk, so that chunks stay separate and arrive before a cut.
        tokio::task::yield_now().await;
        let is_more = !self.pieces.is_empty() || self.repeated.is_some();
        if is_more && !self.every.is_zero() {
            self.clock.sleep_until(self.clock.deadline(self.every)).await;
        }
        self.take().await
    }

    async fn take(&mut self) -> Option<io::Result<Bytes>> {
        if let Some(piece) = self.pieces.pop_front().or_else(|| self.repeated.clone()) {
            return Some(Ok(piece));
        }
        match self.end {
            BodyEnd::Complete => None,
            BodyEnd::Cut { .. } => {
                tokio::task::yield_now().await;
                Some(Err(closed("the reply is cut here")))
            }
            BodyEnd::Hang { .. } => std::future::pending().await,
        }
    }
}

fn closed(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, reason)
}

/// Keeps the first `after` bytes.
fn truncate(pieces: &mut VecDeque<Bytes>, after: usize) {
    let mut left = after;
    for piece in pieces.iter_mut() {
        piece.truncate(left);
        left -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}
