//! What a thread that may block makes, as a stream: some pieces ahead, no more.

use std::fs::File;
use std::io::Read as _;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use tokio::sync::mpsc::{self, Sender};

use crate::error::{SandboxError, SandboxErrorKind};
use crate::executor::ContentStream;

/// How much of a file is read at once.
const PIECE: usize = 128 * 1024;

/// How many pieces wait.
const AHEAD: usize = 4;

/// Where a thread puts what it makes.
pub(super) struct Outlet(Sender<Result<Bytes, SandboxError>>);

/// Nobody takes any more.
pub(super) struct Unwanted;

impl Outlet {
    pub(super) fn push(&self, piece: impl Into<Bytes>) -> Result<(), Unwanted> {
        self.0.blocking_send(Ok(piece.into())).map_err(|_| Unwanted)
    }

    /// All of a file, of which there must be so many bytes. `what` it is, for people.
    pub(super) fn file(&self, mut file: File, size: u64, what: &str) -> Result<(), Unwanted> {
        let mut left = size;
        while left > 0 {
            let mut piece = vec![0; usize::try_from(left).unwrap_or(PIECE).min(PIECE)];
            match file.read(&mut piece) {
                Ok(0) => return self.fail(&format!("`{what}` became shorter while it was read")),
                Ok(length) => {
                    piece.truncate(length);
                    left -= length as u64;
                    self.push(piece)?;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return self.fail(&format!("`{what}` cannot be read: {error}")),
            }
        }
        Ok(())
    }

    pub(super) fn fail<T>(&self, message: &str) -> Result<T, Unwanted> {
        self.failure(SandboxError::new(SandboxErrorKind::Io, message))
    }

    /// Ends the stream with this.
    pub(super) fn failure<T>(&self, error: SandboxError) -> Result<T, Unwanted> {
        // Who does not take it does not want to know.
        let _ = self.0.blocking_send(Err(error));
        Err(Unwanted)
    }
}

/// What `make` makes, on a thread of its own, which ends soon when the stream is dropped.
pub(super) fn stream(make: impl FnOnce(&Outlet) -> Result<(), Unwanted> + Send + 'static) -> ContentStream {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        // How it ended is in the stream.
        let _ = make(&Outlet(sender));
    });
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|piece| (piece, receiver)) })
        .boxed()
}
