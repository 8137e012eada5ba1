//! [`ChunkSender`]: makes a blocking thread the source of an async byte stream, with a bounded number of waiting
//! chunks.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc::{self, Sender};

use crate::calls::executor::ContentStream;
use crate::error::{SandboxError, SandboxErrorKind};

/// The number of bytes of a file that are read at once.
const CHUNK: usize = 128 * 1024;

/// The maximum number of waiting chunks.
const MAX_QUEUED: usize = 4;

/// The sending end, for use on the thread.
pub(super) struct ChunkSender(Sender<Result<Bytes, SandboxError>>);

/// The stream was dropped.
pub(super) struct ReceiverClosed;

impl ChunkSender {
    pub(super) fn push(&self, chunk: impl Into<Bytes>) -> Result<(), ReceiverClosed> {
        self.0.blocking_send(Ok(chunk.into())).map_err(|_| ReceiverClosed)
    }

    /// Sends a whole file of exactly `size` bytes. `what` names it in errors.
    pub(super) fn file(&self, mut file: File, size: u64, what: &str) -> Result<(), ReceiverClosed> {
        let mut left = size;
        while left > 0 {
            let mut chunk = vec![0; usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
            match file.read(&mut chunk) {
                Ok(0) => return self.fail(&format!("`{what}` became shorter while it was read")),
                Ok(length) => {
                    chunk.truncate(length);
                    left -= length as u64;
                    self.push(chunk)?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(&format!("`{what}` cannot be read: {error}")),
            }
        }
        Ok(())
    }

    /// Sends the whole file at this path.
    pub(super) fn path(&self, path: &Path) -> Result<(), ReceiverClosed> {
        match File::open(path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((size, file)) => self.file(file, size, &path.to_string_lossy()),
            Err(error) => self.fail(&format!("`{}` cannot be opened: {error}", path.display())),
        }
    }

    pub(super) fn fail<T>(&self, message: &str) -> Result<T, ReceiverClosed> {
        self.failure(SandboxError::new(SandboxErrorKind::Io, message))
    }

    /// Ends the stream with this error.
    pub(super) fn failure<T>(&self, error: SandboxError) -> Result<T, ReceiverClosed> {
        // If the stream was dropped, no error is needed.
        let _ = self.0.blocking_send(Err(error));
        Err(ReceiverClosed)
    }
}

/// The stream of the chunks that `make` sends from a thread of its own. The thread ends soon after the stream is
/// dropped.
pub(super) fn stream(
    make: impl FnOnce(&ChunkSender) -> Result<(), ReceiverClosed> + Send + 'static,
) -> ContentStream {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED);
    tokio::task::spawn_blocking(move || {
        // The stream already contains the error.
        let _ = make(&ChunkSender(sender));
    });
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|chunk| (chunk, receiver)) })
        .boxed()
}
