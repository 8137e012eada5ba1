//! [`AttachReader`]: the standard output of an attached container as the guest's stream, and [`StderrTail`]: the end of
//! its standard error.
//!
//! State: the rest of a chunk and the tail, in memory.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bollard::container::LogOutput;
use bollard::errors::Error;
use bytes::{Buf as _, Bytes};
use conjure_base::lock;
use futures_util::Stream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// The maximum size of the tail in bytes.
const STDERR_TAIL_MAX: usize = 1024;

/// The end of the guest's standard error, which explains why the guest ended. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrTail {
    tail: Arc<Mutex<Vec<u8>>>,
    /// Cancelled when the reader is dropped.
    closed: CancellationToken,
}

impl StderrTail {
    fn add(&self, bytes: &[u8]) {
        let mut tail = lock(&self.tail);
        tail.extend_from_slice(bytes.get(bytes.len().saturating_sub(STDERR_TAIL_MAX)..).unwrap_or_default());
        let surplus = tail.len().saturating_sub(STDERR_TAIL_MAX);
        tail.drain(..surplus);
    }

    /// Waits until standard error is closed.
    pub(crate) async fn wait_closed(&self) {
        self.closed.cancelled().await;
    }

    /// The tail as text.
    pub(crate) fn text(&self) -> String {
        let tail = lock(&self.tail);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

/// The attach stream of the engine.
type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// The guest's standard output; standard error goes to the tail.
pub(crate) struct AttachReader {
    output: Output,
    rest: Bytes,
    stderr_tail: StderrTail,
}

impl AttachReader {
    pub(crate) fn new(output: Output, stderr_tail: StderrTail) -> Self {
        Self { output, rest: Bytes::new(), stderr_tail }
    }
}

impl Drop for AttachReader {
    fn drop(&mut self) {
        self.stderr_tail.closed.cancel();
    }
}

impl fmt::Debug for AttachReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachReader").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}

impl AsyncRead for AttachReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.output.as_mut().poll_next(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(LogOutput::StdOut { message })) => self.rest = message,
                Some(Ok(LogOutput::StdErr { message })) => self.stderr_tail.add(&message),
                Some(Ok(_)) => {
                    let error = "the engine mixes a container's streams, as it does for terminals";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let length = self.rest.len().min(buffer.remaining());
        buffer.put_slice(self.rest.get(..length).unwrap_or_default());
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn reader(pieces: Vec<LogOutput>) -> (AttachReader, StderrTail) {
        let stderr_tail = StderrTail::default();
        let output = Box::pin(stream::iter(pieces.into_iter().map(Ok)));
        (AttachReader::new(output, stderr_tail.clone()), stderr_tail)
    }

    fn out(text: &'static str) -> LogOutput {
        LogOutput::StdOut { message: Bytes::from_static(text.as_bytes()) }
    }

    #[tokio::test]
    async fn what_it_says_is_read_in_pieces_and_what_it_complains_about_is_kept_aside() {
        let err = LogOutput::StdErr { message: Bytes::from(vec![b'x'; 3 * STDERR_TAIL_MAX]) };
        let last = LogOutput::StdErr { message: Bytes::from_static(b"the end\n") };
        let (mut reader, stderr_tail) = reader(vec![out("one"), err, out(""), out("two"), last]);
        let mut two = [0; 2];
        reader.read_exact(&mut two).await.unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&two, rest.as_str()), (b"on", "etwo"));
        assert!(stderr_tail.text().ends_with("the end"));
        assert_eq!(stderr_tail.text().len(), STDERR_TAIL_MAX - 1);
        drop(reader);
        stderr_tail.wait_closed().await;
    }

    #[tokio::test]
    async fn what_is_mixed_is_no_stream_of_frames() {
        let (mut reader, _) = reader(vec![LogOutput::Console { message: Bytes::from_static(b"x") }]);
        let error = reader.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
