//! What the file calls of an [`crate::Executor`] return.

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
        /// All lines of the file.
        total_lines: u64,
        /// All bytes of the file.
        size: u64,
        /// Whether the lines that were asked for did not fit.
        truncated: bool,
    },
    /// An image, whole.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        media_type: String,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Neither text nor a known image; it was not read.
    Binary {
        /// Its bytes.
        size: u64,
    },
    /// A folder, two levels deep, without names that begin with a dot.
    Directory(Listing),
}

/// The entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Entries, sorted by path, relative to the folder.
    pub entries: Vec<DirectoryEntry>,
    /// Whether there was more than could be listed.
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
    /// The bytes of these files.
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
