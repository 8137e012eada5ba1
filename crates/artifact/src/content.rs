//! An open file as a stream of its bytes: exactly as many as it had when it was opened, or an error.
//!
//! Memory: one piece at a time. Files are read on the blocking threads; a stream that is dropped ends behind the piece under way. It
//! owns the open file and no other state.

use std::fs::File;
use std::io::{self, Read as _};

use bytes::Bytes;
use futures_util::stream;
use rustix::fs::Stat;

use crate::blocking::blocking;
use crate::output::{ContentStream, OutputError};

/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;

/// A file that is being read.
struct Reading {
    file: File,
    name: String,
    /// What it was when it was opened.
    then: Stat,
    left: u64,
}

/// The bytes of an open plain file from its start. A file that is cut, grows or is written meanwhile ends the stream with an error.
pub(crate) fn stream_of(file: File, then: Stat, name: String) -> ContentStream {
    let left = u64::try_from(then.st_size).unwrap_or(0);
    let reading = Reading { file, name, then, left };
    Box::pin(stream::unfold(Some(reading), |reading| async move {
        let reading = reading?;
        let name = reading.name.clone();
        let read = blocking(move || reading.next()).await;
        let read = read.unwrap_or_else(|error| Err(OutputError::Failed { name, reason: error.to_string() }));
        match read {
            Ok(None) => None,
            Ok(Some((piece, reading))) => Some((Ok(piece), Some(reading))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

impl Reading {
    /// The next piece; none at its end.
    fn next(mut self) -> Result<Option<(Bytes, Self)>, OutputError> {
        if self.left == 0 {
            return self.finish().map(|()| None);
        }
        let mut piece = vec![0; usize::try_from(self.left).unwrap_or(PIECE).min(PIECE)];
        let length = loop {
            match self.file.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|error| self.failed(error.to_string()))?,
            }
        };
        if length == 0 {
            return Err(self.failed("it was cut while it was read"));
        }
        piece.truncate(length);
        self.left = self.left.saturating_sub(length as u64);
        // The last piece is told only when the whole is what it was.
        if self.left == 0 {
            self.finish()?;
        }
        Ok(Some((piece.into(), self)))
    }

    fn finish(&self) -> Result<(), OutputError> {
        let now =
            rustix::fs::fstat(&self.file).map_err(|errno| self.failed(io::Error::from(errno).to_string()))?;
        let facts = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if facts(&now) == facts(&self.then) {
            Ok(())
        } else {
            Err(self.failed("it was changed while it was read"))
        }
    }

    fn failed(&self, reason: impl Into<String>) -> OutputError {
        OutputError::Failed { name: self.name.clone(), reason: reason.into() }
    }
}
