//! Results of the file calls of an [`crate::Executor`].

pub use conjure_guest::protocol::{EntryKind, FileEntry as DirectoryEntry, LineRange};

/// The result of [`crate::Executor::view`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// Lines of a UTF-8 text.
    Text {
        /// The lines, with their line ends.
        text: String,
        /// The first line in `text`, from 1; 0 for an empty file.
        first_line: u64,
        /// The last line in `text`.
        last_line: u64,
        /// The number of lines of the file.
        total_lines: u64,
        /// The size of the file in bytes.
        size: u64,
        /// Whether the requested lines did not fit.
        truncated: bool,
    },
    /// A complete image.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Neither text nor a known image; it was not read.
    Binary {
        /// The size of the file in bytes.
        size: u64,
    },
    /// A directory, two levels deep, without names that begin with a dot.
    Directory(Listing),
}

/// The entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Entries, sorted by path, relative to the directory.
    pub entries: Vec<DirectoryEntry>,
    /// Whether there were more entries than can be listed.
    pub truncated: bool,
}

/// The result of writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Its size in bytes.
    pub size: u64,
    /// Whether the file existed before.
    pub existed: bool,
}

/// The result of [`crate::Executor::copy_out`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyOutReport {
    /// The number of copied files.
    pub files: u64,
    /// The total size of these files in bytes.
    pub bytes: u64,
    /// The entries that were not copied.
    pub skipped: Vec<SkippedFile>,
}

/// A workspace entry that was not copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Why it was not copied.
    pub reason: String,
}
