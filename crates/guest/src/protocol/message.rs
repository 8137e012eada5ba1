//! Operations: what the host requests on a channel, and what the guest replies.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::content_archive::ArchiveKind;
use super::exec::{ExecReply, ExecRequest};
use super::files::{FileEntry, LineRange, UnlistedEntry, ViewReply};

/// The maximum time in which a healthy guest ends an operation after its timeout or cancellation. It also applies to
/// ending all commands after its stream was closed. A host must wait longer before it takes the guest for dead and
/// kills it. Both sides check their timeouts against this constant at compile time.
pub const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A new operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The operation.
    pub request: Request,
    /// How many bytes of content the host accepts at first.
    pub credit: u32,
    /// The timeout in milliseconds. The guest then ends the operation with everything it started. `None`: no
    /// timeout.
    pub timeout_ms: Option<u64>,
}

/// The operations. Paths are absolute or relative to the working directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Runs a program. Replies [`Reply::Exec`].
    Exec(ExecRequest),
    /// Shows a file or directory to a model: a text's lines or an image's bytes as data on [`super::StreamId::Content`].
    /// Replies [`Reply::View`].
    View {
        /// The file or directory.
        path: String,
        /// The lines of a text. `None`: all.
        range: Option<LineRange>,
        /// The maximum size of the content in bytes.
        max_bytes: u64,
    },
    /// Writes a complete file atomically. Its content is the data on [`super::StreamId::Content`] up to `Eof`.
    /// Creates missing directories. After a failure, the former file is unchanged. Replies [`Reply::Write`].
    Write {
        /// The file.
        path: String,
        /// The permission bits. `None`: those of the existing file, else 0o644.
        mode: Option<u32>,
    },
    /// Installs a file, or a directory of files, in a content directory by one rename: completely or not at all. The
    /// content is an archive ([`super::ArchiveHeader`]), as data on [`super::StreamId::Content`] up to `Eof`. An
    /// existing entry is not replaced. Replies [`Reply::Install`].
    Install {
        /// The content directory: the name of a directory in [`super::Hello::content_root`].
        content_dir: String,
        /// The name of the new entry.
        name: String,
        /// What the archive becomes.
        kind: ArchiveKind,
    },
    /// Removes an entry of a content directory at once and completely. Processes that have it open keep it. A
    /// missing entry is no error. Replies [`Reply::Remove`].
    Remove {
        /// The content directory: the name of a directory in [`super::Hello::content_root`].
        content_dir: String,
        /// The name of the entry.
        name: String,
    },
    /// Replaces the only occurrence of `old` in a UTF-8 text file, atomically. Replies [`Reply::Write`].
    Replace {
        /// The file.
        path: String,
        /// The text to replace. It must occur exactly once, and must not be empty.
        old: String,
        /// The new text.
        new: String,
    },
    /// Lists a directory, sorted by path. Replies [`Reply::List`].
    List {
        /// The directory.
        path: String,
        /// The number of levels. 1 lists only the directory's own entries.
        depth: u32,
        /// The maximum number of entries.
        max_entries: u32,
        /// Whether to list names that begin with a dot.
        hidden: bool,
    },
    /// Lists a directory and everything beneath it, in pages: depth first, ordered by the bytes of the names. Replies
    /// [`Reply::Walk`].
    Walk {
        /// The directory.
        path: String,
        /// [`Reply::Walk::next`] of the previous page. `None`: from the start.
        after: Option<Vec<u8>>,
        /// The maximum number of entries of the page.
        max_entries: u32,
    },
    /// Creates a directory and missing parents. An existing directory is not changed. Replies [`Reply::MakeDir`].
    MakeDir {
        /// The directory.
        path: String,
        /// The permission bits.
        mode: u32,
    },
    /// Sends a regular file's bytes on [`super::StreamId::Content`]. Replies [`Reply::Read`].
    Read {
        /// The file.
        path: String,
        /// The offset of the first byte.
        offset: u64,
        /// The maximum number of bytes. `None`: to the end.
        length: Option<u64>,
    },
    /// Stops all processes that programs left running, and programs that live between calls, until
    /// [`Request::Resume`], the next program or the next input of a program. They keep their memory and open files.
    /// File operations remain possible. Refused while a program with the lifetime of one call runs. After a failure,
    /// all processes run. A repeated request stops processes that were resumed since. Replies [`Reply::Pause`].
    Pause,
    /// Resumes the processes that [`Request::Pause`] stopped, but not those that were stopped before. Replies
    /// [`Reply::Resume`].
    Resume,
}

/// The result of a successful operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Of [`Request::Exec`].
    Exec(ExecReply),
    /// Of [`Request::View`].
    View(ViewReply),
    /// Of [`Request::Write`] and [`Request::Replace`].
    Write {
        /// The size of the file in bytes.
        size: u64,
        /// Whether the file existed before.
        existed: bool,
        /// How many directories were created for it.
        dirs: u64,
    },
    /// Of [`Request::Install`].
    Install {
        /// The number of installed files.
        files: u64,
        /// Their total size in bytes.
        bytes: u64,
    },
    /// Of [`Request::Remove`].
    Remove {
        /// Whether the entry existed.
        existed: bool,
    },
    /// Of [`Request::List`].
    List {
        /// The entries, sorted by path.
        entries: Vec<FileEntry>,
        /// Whether there were more entries than can be listed.
        truncated: bool,
    },
    /// Of [`Request::Walk`].
    Walk {
        /// The entries, each directory before its contents.
        entries: Vec<FileEntry>,
        /// Entries that exist but could not be listed.
        unlisted: Vec<UnlistedEntry>,
        /// The path after which the next page resumes. `None`: this was the last page.
        next: Option<Vec<u8>>,
    },
    /// Of [`Request::MakeDir`].
    MakeDir {
        /// How many directories were created.
        created: u64,
    },
    /// Of [`Request::Read`].
    Read {
        /// The size of the whole file in bytes, when it was opened.
        size: u64,
    },
    /// Of [`Request::Pause`].
    Pause {
        /// How many processes are stopped now.
        processes: u64,
    },
    /// Of [`Request::Resume`].
    Resume {
        /// How many processes were resumed.
        processes: u64,
    },
}
