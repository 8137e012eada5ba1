//! A simple archive format for content: [`crate::protocol::Request::Install`] takes it as data.
//!
//! Each file is a header, followed by the file's bytes. An end header follows the last file. So a truncated
//! archive is never taken for a complete one.
//!
//! ```text
//! kind: u8 ('-' file, 'x' executable file, '.' end)   size: u64   length of the path: u32   path   bytes
//! ```
//!
//! Numbers are little endian. A path is relative, consists of plain names, and need not be UTF-8.

use serde::{Deserialize, Serialize};

/// The length of a header without the path, in bytes.
pub const ARCHIVE_HEADER_LEN: usize = 13;

/// The maximum length of a path, in bytes: the system's limit.
pub const ARCHIVE_PATH_MAX: usize = 4095;

/// What an archive becomes when it is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveKind {
    /// A file. The archive holds only this file, under the name that is installed.
    File,
    /// A directory with all files of the archive.
    Dir,
}

/// The header before a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveHeader {
    /// A file follows.
    File {
        /// The path in the directory.
        path: Vec<u8>,
        /// The file's size in bytes.
        size: u64,
        /// Whether it may be executed.
        mode: FileMode,
    },
    /// The end of the archive.
    End,
}

/// Whether a file may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// Only readable.
    Plain,
    /// Readable and executable.
    Executable,
}

/// The fixed part of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveHeaderStart {
    /// A file. Its path of this length follows.
    File {
        /// The length of the path in bytes.
        path_len: usize,
        /// The file's size in bytes.
        size: u64,
        /// Whether it may be executed.
        mode: FileMode,
    },
    /// The end of the archive.
    End,
}

impl ArchiveHeader {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, size, path) = match self {
            Self::File { path, size, mode: FileMode::Plain } => (b'-', *size, path.as_slice()),
            Self::File { path, size, mode: FileMode::Executable } => (b'x', *size, path.as_slice()),
            Self::End => (b'.', 0, [].as_slice()),
        };
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        [&[kind], size.to_le_bytes().as_slice(), length.to_le_bytes().as_slice(), path].concat()
    }
}

impl ArchiveHeaderStart {
    /// Decodes the fixed part. `None` when it is malformed.
    #[must_use]
    pub fn decode(bytes: [u8; ARCHIVE_HEADER_LEN]) -> Option<Self> {
        let [kind, a, b, c, d, e, f, g, h, length @ ..] = bytes;
        let size = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let path_len = usize::try_from(u32::from_le_bytes(length)).ok()?;
        let mode = match kind {
            b'-' => FileMode::Plain,
            b'x' => FileMode::Executable,
            b'.' if size == 0 && path_len == 0 => return Some(Self::End),
            _ => return None,
        };
        ((1..=ARCHIVE_PATH_MAX).contains(&path_len)).then_some(Self::File { path_len, size, mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(head: &ArchiveHeader) -> Option<ArchiveHeaderStart> {
        ArchiveHeaderStart::decode(head.encode()[..ARCHIVE_HEADER_LEN].try_into().expect("long enough"))
    }

    #[test]
    fn headers_round_trip() {
        for mode in [FileMode::Plain, FileMode::Executable] {
            let head = ArchiveHeader::File { path: b"a/\xff".to_vec(), size: u64::MAX, mode };
            assert_eq!(start(&head), Some(ArchiveHeaderStart::File { path_len: 3, size: u64::MAX, mode }));
            assert!(head.encode().ends_with(b"a/\xff"));
        }
        assert_eq!(start(&ArchiveHeader::End), Some(ArchiveHeaderStart::End));
    }

    #[test]
    fn malformed_headers_are_refused() {
        let path = vec![b'a'; ARCHIVE_PATH_MAX + 1];
        let long = ArchiveHeader::File { path, size: 1, mode: FileMode::Plain };
        let none = ArchiveHeader::File { path: Vec::new(), size: 1, mode: FileMode::Plain };
        assert_eq!((start(&long), start(&none)), (None, None));
        assert_eq!(ArchiveHeaderStart::decode([0; ARCHIVE_HEADER_LEN]), None);
        assert_eq!(ArchiveHeaderStart::decode([b'.'; ARCHIVE_HEADER_LEN]), None);
    }
}
