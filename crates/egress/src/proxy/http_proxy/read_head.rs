//! Reading the head of an HTTP/1 message from a stream.

use std::io;

use tokio::io::AsyncRead;

use super::http_head::{HeadEnd, find_head_end};
use crate::proxy::buffered::ReadBuffer;

/// Why a head could not be read.
#[derive(Debug)]
pub(crate) enum HeadReadError {
    /// A line does not end with CR LF.
    BadLine,
    /// It is longer than the limit.
    TooLong,
    /// The stream ended early.
    Ended,
    /// The stream failed.
    Io(io::Error),
}

/// Reads until the buffer starts with a complete head. Returns the length of the head.
pub(crate) async fn read_head<R>(buffer: &mut ReadBuffer<R>, limit: usize) -> Result<usize, HeadReadError>
where
    R: AsyncRead + Unpin,
{
    let mut seen = 0;
    loop {
        match find_head_end(buffer.data(), seen) {
            HeadEnd::At(length) if length <= limit => return Ok(length),
            HeadEnd::BadLine => return Err(HeadReadError::BadLine),
            HeadEnd::Incomplete if buffer.data().len() < limit => {}
            HeadEnd::At(_) | HeadEnd::Incomplete => return Err(HeadReadError::TooLong),
        }
        seen = buffer.data().len();
        if buffer.fill().await.map_err(HeadReadError::Io)? == 0 {
            return Err(HeadReadError::Ended);
        }
    }
}
