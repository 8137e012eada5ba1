//! A container's streams as the guest's: what it says, and what it complains about.
//!
//! State: the rest of a piece, and the last of the complaints, both forgotten with the sandbox.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bollard::container::LogOutput;
use bollard::errors::Error;
use bytes::{Buf as _, Bytes};
use futures_util::Stream;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::CancellationToken;

/// How much of what the guest complained about is kept: the end of it.
const COMPLAINT: usize = 1024;

/// What the guest complained about last, for the reason of its end. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Complaints {
    said: Arc<Mutex<Vec<u8>>>,
    /// Cancelled when nobody hears any more of them.
    heard: CancellationToken,
}

impl Complaints {
    fn add(&self, bytes: &[u8]) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(bytes.get(bytes.len().saturating_sub(COMPLAINT)..).unwrap_or_default());
        let surplus = said.len().saturating_sub(COMPLAINT);
        said.drain(..surplus);
    }

    /// Waits until no more of them will come.
    pub(super) async fn heard(&self) {
        self.heard.cancelled().await;
    }

    /// All of them, as text.
    pub(super) fn text(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).trim().to_owned()
    }
}

/// What the engine passes on of a container, piece by piece.
type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Error>> + Send>>;

/// What the guest says.
pub(super) struct AttachReader {
    output: Output,
    rest: Bytes,
    complaints: Complaints,
}

impl AttachReader {
    pub(super) fn new(output: Output, complaints: Complaints) -> Self {
        Self { output, rest: Bytes::new(), complaints }
    }
}

impl Drop for AttachReader {
    fn drop(&mut self) {
        self.complaints.heard.cancel();
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
                Some(Ok(LogOutput::StdErr { message })) => self.complaints.add(&message),
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

    fn reader(pieces: Vec<LogOutput>) -> (AttachReader, Complaints) {
        let complaints = Complaints::default();
        let output = Box::pin(stream::iter(pieces.into_iter().map(Ok)));
        (AttachReader::new(output, complaints.clone()), complaints)
    }

    fn out(text: &'static str) -> LogOutput {
        LogOutput::StdOut { message: Bytes::from_static(text.as_bytes()) }
    }

    #[tokio::test]
    async fn what_it_says_is_read_in_pieces_and_what_it_complains_about_is_kept_aside() {
        let err = LogOutput::StdErr { message: Bytes::from(vec![b'x'; 3 * COMPLAINT]) };
        let last = LogOutput::StdErr { message: Bytes::from_static(b"the end\n") };
        let (mut reader, complaints) = reader(vec![out("one"), err, out(""), out("two"), last]);
        let mut two = [0; 2];
        reader.read_exact(&mut two).await.unwrap();
        let mut rest = String::new();
        reader.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&two, rest.as_str()), (b"on", "etwo"));
        assert!(complaints.text().ends_with("the end"));
        assert_eq!(complaints.text().len(), COMPLAINT - 1);
        drop(reader);
        complaints.heard().await;
    }

    #[tokio::test]
    async fn what_is_mixed_is_no_stream_of_frames() {
        let (mut reader, _) = reader(vec![LogOutput::Console { message: Bytes::from_static(b"x") }]);
        let error = reader.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
