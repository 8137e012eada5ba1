//! A response body that is sent in separately flushed chunks, completely or up to a cut.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

/// The body of a fake's response.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The chunks and the end of a body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyPacing {
    /// The size of a chunk in bytes. By default each event is a chunk.
    pub piece: Option<usize>,
    /// The number of bytes after which the connection closes. By default the body is complete.
    pub cut: Option<usize>,
}

/// Sends these chunks. If the body is cut, it ends with an error and the connection closes. A single chunk with the default pacing is sent
/// as a body of known length.
pub(super) fn paced(mut pieces: Vec<Bytes>, pacing: BodyPacing) -> Body {
    if pacing == BodyPacing::default()
        && let [only] = pieces.as_slice()
    {
        return Full::new(only.clone()).map_err(|never: Infallible| match never {}).boxed_unsync();
    }
    if let Some(size) = pacing.piece {
        let joined: Vec<u8> = pieces.concat();
        pieces = joined.chunks(size.max(1)).map(Bytes::copy_from_slice).collect();
    }
    if let Some(after) = pacing.cut {
        truncate(&mut pieces, after);
    }
    let cut =
        pacing.cut.map(|_| Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the reply is cut here")));
    let frames = stream::iter(pieces.into_iter().map(Ok).chain(cut)).then(|piece| async {
        // Yielding flushes the chunk before, so that chunks stay separate and arrive before a cut.
        tokio::task::yield_now().await;
        if piece.is_err() {
            tokio::task::yield_now().await;
        }
        piece.map(Frame::data)
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Keeps the first `after` bytes.
fn truncate(pieces: &mut Vec<Bytes>, after: usize) {
    let mut left = after;
    for piece in pieces.iter_mut() {
        piece.truncate(left);
        left -= piece.len();
    }
    pieces.retain(|piece| !piece.is_empty());
}
