//! Files on their way to a shelf: what [`crate::protocol::Request::Provide`] takes as content.
//!
//! Each file is a head and then its bytes, as many as the head says; after the last one comes an end. So a parcel that was
//! cut anywhere is never taken for a whole one.
//!
//! ```text
//! kind: u8 ('-' file, 'x' executable file, '.' end)   size: u64   length of the path: u32   path   bytes
//! ```
//!
//! Numbers are little endian. A path is relative, of plain names, and need not be UTF-8.

use serde::{Deserialize, Serialize};

/// The bytes of a head without its path.
pub const PARCEL_HEAD_LEN: usize = 13;

/// The longest path of a file in a parcel, in bytes: as long as the system takes one.
pub const PARCEL_PATH_MAX: usize = 4095;

/// What a parcel becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParcelKind {
    /// A file. The parcel holds that one, under the name that it gets.
    File,
    /// A folder with all files of the parcel.
    Folder,
}

/// What stands before a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParcelHead {
    /// A file follows.
    File {
        /// Its path in the folder.
        path: Vec<u8>,
        /// Its bytes.
        size: u64,
        /// Whether it may be executed.
        mode: ParcelMode,
    },
    /// Nothing follows.
    End,
}

/// Whether a file may be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParcelMode {
    /// It is for reading.
    Plain,
    /// It may be executed, too.
    Executable,
}

/// The fixed part of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParcelStart {
    /// A file whose path of so many bytes follows.
    File {
        /// Bytes of the path.
        path_len: usize,
        /// Bytes of the file.
        size: u64,
        /// Whether it may be executed.
        mode: ParcelMode,
    },
    /// Nothing follows.
    End,
}

impl ParcelHead {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, size, path) = match self {
            Self::File { path, size, mode: ParcelMode::Plain } => (b'-', *size, path.as_slice()),
            Self::File { path, size, mode: ParcelMode::Executable } => (b'x', *size, path.as_slice()),
            Self::End => (b'.', 0, [].as_slice()),
        };
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        [&[kind], size.to_le_bytes().as_slice(), length.to_le_bytes().as_slice(), path].concat()
    }
}

impl ParcelStart {
    /// Reads the fixed part; `None` when it is none.
    #[must_use]
    pub fn decode(bytes: [u8; PARCEL_HEAD_LEN]) -> Option<Self> {
        let [kind, a, b, c, d, e, f, g, h, length @ ..] = bytes;
        let size = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let path_len = usize::try_from(u32::from_le_bytes(length)).ok()?;
        let mode = match kind {
            b'-' => ParcelMode::Plain,
            b'x' => ParcelMode::Executable,
            b'.' if size == 0 && path_len == 0 => return Some(Self::End),
            _ => return None,
        };
        ((1..=PARCEL_PATH_MAX).contains(&path_len)).then_some(Self::File { path_len, size, mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(head: &ParcelHead) -> Option<ParcelStart> {
        ParcelStart::decode(head.encode()[..PARCEL_HEAD_LEN].try_into().expect("long enough"))
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for mode in [ParcelMode::Plain, ParcelMode::Executable] {
            let head = ParcelHead::File { path: b"a/\xff".to_vec(), size: u64::MAX, mode };
            assert_eq!(start(&head), Some(ParcelStart::File { path_len: 3, size: u64::MAX, mode }));
            assert!(head.encode().ends_with(b"a/\xff"));
        }
        assert_eq!(start(&ParcelHead::End), Some(ParcelStart::End));
    }

    #[test]
    fn what_is_no_head_is_not_taken_for_one() {
        let path = vec![b'a'; PARCEL_PATH_MAX + 1];
        let long = ParcelHead::File { path, size: 1, mode: ParcelMode::Plain };
        let none = ParcelHead::File { path: Vec::new(), size: 1, mode: ParcelMode::Plain };
        assert_eq!((start(&long), start(&none)), (None, None));
        assert_eq!(ParcelStart::decode([0; PARCEL_HEAD_LEN]), None);
        assert_eq!(ParcelStart::decode([b'.'; PARCEL_HEAD_LEN]), None);
    }
}
