//! The body of a reply, sent in chunks of its own.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

/// A body of the fake.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyEnd {
    Complete,
    /// The connection closes.
    Cut,
}

/// A body of known length, sent at once.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body in chunks: these, or pieces of so many bytes.
pub(super) fn chunked(chunks: Vec<Bytes>, piece: Option<usize>, end: BodyEnd) -> Body {
    let mut chunks: VecDeque<Bytes> = chunks.into();
    if let Some(size) = piece.map(|size| size.max(1)) {
        let joined = Bytes::from(chunks.iter().flat_map(|chunk| chunk.iter().copied()).collect::<Vec<u8>>());
        let starts = (0..joined.len()).step_by(size);
        chunks = starts.map(|start| joined.slice(start..joined.len().min(start + size))).collect();
    }
    let frames = stream::unfold(Some((chunks, true)), move |state| async move {
        let (mut chunks, is_first) = state?;
        if !is_first {
            // Yielding flushes the chunk, so that chunks stay separate and arrive before a cut.
            tokio::task::yield_now().await;
        }
        match chunks.pop_front() {
            Some(chunk) => Some((Ok(Frame::data(chunk)), Some((chunks, false)))),
            None if end == BodyEnd::Complete => None,
            None => {
                tokio::task::yield_now().await;
                Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None))
            }
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
