//! An open file as a stream of its bytes: exactly as many as it had when it was opened, or an error.
//!
//! Memory: one piece at a time. Files are read on the blocking threads; a stream that is dropped ends behind the piece under way. It
//! owns the open file and no other state. The holes of a sparse file are told as pieces of zeros, and are not read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use futures_util::stream;
use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;

use crate::blocking::blocking;
use crate::output::{ContentStream, OutputError};

/// Bytes that are read at once.
const PIECE: usize = 256 * 1024;

/// A piece of a hole.
static ZEROS: [u8; PIECE] = [0; PIECE];

/// A file that is being read.
struct Reading {
    file: File,
    name: String,
    /// What it was when it was opened.
    then: Stat,
    /// How many bytes were told.
    place: u64,
    size: u64,
    /// What lies at the place, and where that ends.
    extent: Extent,
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Data { end: u64 },
    Hole { end: u64 },
}

/// The bytes of an open plain file from its start. A file that is cut, grows or is written meanwhile ends the stream with an error.
pub(crate) fn stream_of(file: File, then: Stat, name: String) -> ContentStream {
    let size = u64::try_from(then.st_size).unwrap_or(0);
    let reading = Reading { file, name, then, place: 0, size, extent: Extent::Hole { end: 0 } };
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
        if self.place == self.size {
            return self.finish().map(|()| None);
        }
        self.look_on();
        let piece = match self.extent {
            Extent::Hole { end } => Bytes::from_static(ZEROS.get(..self.length_to(end)).unwrap_or_default()),
            Extent::Data { end } => self.read(self.length_to(end))?,
        };
        self.place = self.place.saturating_add(piece.len() as u64);
        // The last piece is told only when the whole is what it was.
        if self.place == self.size {
            self.finish()?;
        }
        Ok(Some((piece, self)))
    }

    /// How long a piece is that ends there at the latest.
    fn length_to(&self, end: u64) -> usize {
        usize::try_from(end.min(self.size).saturating_sub(self.place)).unwrap_or(PIECE).min(PIECE)
    }

    /// Finds out what lies at the place, where that is not known. What is written meanwhile is noticed at the end.
    fn look_on(&mut self) {
        let (Extent::Data { end } | Extent::Hole { end }) = self.extent;
        if self.place < end {
            return;
        }
        self.extent = match rustix::fs::seek(&self.file, SeekFrom::Data(self.place)) {
            Ok(data) if data > self.place => Extent::Hole { end: data },
            // The rest is a hole.
            Err(Errno::NXIO) => Extent::Hole { end: self.size },
            Ok(_) => match rustix::fs::seek(&self.file, SeekFrom::Hole(self.place)) {
                Ok(end) if end > self.place => Extent::Data { end },
                _ => Extent::Data { end: self.size },
            },
            // A file system that knows no holes.
            Err(_) => Extent::Data { end: self.size },
        };
    }

    fn read(&self, length: usize) -> Result<Bytes, OutputError> {
        let mut piece = vec![0; length];
        let length = loop {
            match self.file.read_at(&mut piece, self.place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|error| self.failed(error.to_string()))?,
            }
        };
        if length == 0 {
            return Err(self.failed("it was cut while it was read"));
        }
        piece.truncate(length);
        Ok(piece.into())
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

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn a_hole_is_told_as_zeros_and_not_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"head").unwrap();
        file.seek(io::SeekFrom::Start(3 << 20)).unwrap();
        file.write_all(b"tail").unwrap();
        file.set_len(5 << 20).unwrap();
        let mut expected = vec![0; 5 << 20];
        expected[..4].copy_from_slice(b"head");
        expected[3 << 20..][..4].copy_from_slice(b"tail");
        let then = rustix::fs::fstat(&file).unwrap();
        let pieces: Vec<_> = stream_of(file, then, "file".to_owned()).map(Result::unwrap).collect().await;
        assert_eq!(pieces.concat(), expected);
        let of_holes = pieces.iter().filter(|piece| ZEROS.as_ptr_range().contains(&piece.as_ptr())).count();
        // Both holes, but for what the file system has around the data.
        assert!(of_holes >= 12, "{of_holes} of {}", pieces.len());
    }
}
