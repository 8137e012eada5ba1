//! Streams an open file: exactly as many bytes as it had when it was opened, or an error.
//!
//! Memory: one chunk at a time. Reads run on blocking threads; a dropped stream ends after the current chunk. Holes of a sparse
//! file are yielded as zeros without being read.

use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use conjure_fs::{RegularFile, run_blocking};
use futures_util::stream;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::output::{ContentStream, OutputError};

/// Bytes per read.
const CHUNK: usize = 256 * 1024;

/// A chunk of a hole.
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// The state of the stream.
struct FileStream {
    file: RegularFile,
    name: String,
    /// How many bytes were yielded.
    offset: u64,
    size: u64,
    /// The extent at the offset.
    extent: Extent,
}

/// Data or a hole, up to an offset.
#[derive(Debug, Clone, Copy)]
enum Extent {
    Data { end: u64 },
    Hole { end: u64 },
}

/// Streams an open regular file from its start. If the file changes meanwhile, the stream ends with an error.
pub(crate) fn stream_file(file: RegularFile, name: String) -> ContentStream {
    let size = file.size();
    let reading = FileStream { file, name, offset: 0, size, extent: Extent::Hole { end: 0 } };
    Box::pin(stream::unfold(Some(reading), |reading| async move {
        let reading = reading?;
        let name = reading.name.clone();
        let read = run_blocking(move || reading.next()).await;
        let read = read.unwrap_or_else(|error| Err(OutputError::Failed { name, reason: error.to_string() }));
        match read {
            Ok(None) => None,
            Ok(Some((piece, reading))) => Some((Ok(piece), Some(reading))),
            Err(error) => Some((Err(error), None)),
        }
    }))
}

impl FileStream {
    /// The next chunk; `None` at the end.
    fn next(mut self) -> Result<Option<(Bytes, Self)>, OutputError> {
        if self.offset == self.size {
            return self.finish().map(|()| None);
        }
        self.find_extent();
        let piece = match self.extent {
            Extent::Hole { end } => Bytes::from_static(ZEROS.get(..self.length_to(end)).unwrap_or_default()),
            Extent::Data { end } => self.read(self.length_to(end))?,
        };
        self.offset = self.offset.saturating_add(piece.len() as u64);
        // The last chunk is yielded only if the file is unchanged.
        if self.offset == self.size {
            self.finish()?;
        }
        Ok(Some((piece, self)))
    }

    /// The length of the next chunk, which ends at `end` at the latest.
    fn length_to(&self, end: u64) -> usize {
        usize::try_from(end.min(self.size).saturating_sub(self.offset)).unwrap_or(CHUNK).min(CHUNK)
    }

    /// Determines the extent at the offset. Concurrent writes are detected at the end.
    fn find_extent(&mut self) {
        let (Extent::Data { end } | Extent::Hole { end }) = self.extent;
        if self.offset < end {
            return;
        }
        self.extent = match rustix::fs::seek(self.file.file(), SeekFrom::Data(self.offset)) {
            Ok(data) if data > self.offset => Extent::Hole { end: data },
            // The rest is a hole.
            Err(Errno::NXIO) => Extent::Hole { end: self.size },
            Ok(_) => match rustix::fs::seek(self.file.file(), SeekFrom::Hole(self.offset)) {
                Ok(end) if end > self.offset => Extent::Data { end },
                _ => Extent::Data { end: self.size },
            },
            // The file system has no hole detection.
            Err(_) => Extent::Data { end: self.size },
        };
    }

    fn read(&self, length: usize) -> Result<Bytes, OutputError> {
        let mut piece = vec![0; length];
        let length = loop {
            match self.file.file().read_at(&mut piece, self.offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(|error| self.failed(error.to_string()))?,
            }
        };
        if length == 0 {
            return Err(self.failed("it was truncated while it was read"));
        }
        piece.truncate(length);
        Ok(piece.into())
    }

    fn finish(&self) -> Result<(), OutputError> {
        match self.file.is_unchanged() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failed("it was changed while it was read")),
            Err(errno) => Err(self.failed(io::Error::from(errno).to_string())),
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
    async fn holes_of_sparse_files_yield_zeros_without_reads() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"head").unwrap();
        file.seek(io::SeekFrom::Start(3 << 20)).unwrap();
        file.write_all(b"tail").unwrap();
        file.set_len(5 << 20).unwrap();
        let mut expected = vec![0; 5 << 20];
        expected[..4].copy_from_slice(b"head");
        expected[3 << 20..][..4].copy_from_slice(b"tail");
        let file = RegularFile::from_open(file.into()).unwrap();
        let pieces: Vec<_> = stream_file(file, "file".to_owned()).map(Result::unwrap).collect().await;
        assert_eq!(pieces.concat(), expected);
        let zero_pieces =
            pieces.iter().filter(|piece| ZEROS.as_ptr_range().contains(&piece.as_ptr())).count();
        // Both holes, but for what the file system has around the data.
        assert!(zero_pieces >= 12, "{zero_pieces} of {}", pieces.len());
    }
}
