//! What a thread that may block makes, as a stream: some pieces ahead, no more.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

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

    /// All of the file at this path.
    pub(super) fn path(&self, path: &Path) -> Result<(), Unwanted> {
        match File::open(path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((size, file)) => self.file(file, size, &path.to_string_lossy()),
            Err(error) => self.fail(&format!("`{}` cannot be opened: {error}", path.display())),
        }
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

/// Does what may block on a thread of its own. `doing` it, for people, as in "cannot …".
pub(super) async fn blocking<T: Send + 'static>(
    doing: String,
    work: impl FnOnce() -> Result<T, SandboxError> + Send + 'static,
) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(SandboxError::new(
            SandboxErrorKind::Io,
            format!("cannot {doing}: its thread ended early: {error}"),
        ))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_thread_that_ends_early_is_told_with_what_it_did() {
        let failed =
            blocking("give `a` to the sandbox".to_owned(), || -> Result<(), SandboxError> { panic!("oh") });
        let told = failed.await.unwrap_err().to_string();
        assert!(told.starts_with("cannot give `a` to the sandbox: its thread ended early"), "{told}");
    }
}
