//! Parts of requests and replies about files.

use serde::{Deserialize, Serialize};

/// Whether files may be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reading only.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// A range of lines, counted from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRange {
    /// The first line.
    pub first: u64,
    /// The last line. `None`: to the end.
    pub last: Option<u64>,
}

/// The result of a view request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewReply {
    /// UTF-8 text; the lines were sent as data.
    Text {
        /// The first line sent, from 1; 0 for an empty file.
        first_line: u64,
        /// The last line sent.
        last_line: u64,
        /// The number of lines of the file.
        total_lines: u64,
        /// The size of the file in bytes.
        size: u64,
        /// Whether `max_bytes` cut the requested lines, possibly within the last line sent.
        truncated: bool,
    },
    /// An image. All of its bytes were sent as data.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`, by its first bytes.
        media_type: String,
        /// Its size in bytes.
        size: u64,
    },
    /// Neither text nor image. Nothing was sent.
    Binary {
        /// Its size in bytes.
        size: u64,
    },
    /// A directory, two levels deep, without hidden names.
    Directory {
        /// The entries, sorted by path.
        entries: Vec<FileEntry>,
        /// Whether there were more entries than can be listed.
        truncated: bool,
    },
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its path relative to the listed directory, with `/`. Invalid UTF-8 is replaced.
    pub path: String,
    /// Its kind. Links are not followed.
    pub kind: EntryKind,
    /// The size of a file in bytes; 0 for other kinds.
    pub size: u64,
    /// The modification time, in nanoseconds since the Unix epoch.
    pub modified_ns: i64,
    /// Its permission bits, without set-user-ID and set-group-ID.
    pub mode: u32,
}

/// An entry that [`super::Request::Walk`] did not list, or a directory whose entries it did not list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnlistedEntry {
    /// Its path relative to the directory. Invalid UTF-8 is replaced.
    pub path: String,
    /// The reason, as text.
    pub reason: String,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, pipe or socket.
    Other,
}
