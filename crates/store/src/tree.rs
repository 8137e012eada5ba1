//! A directory's files by their digests.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use conjure_base::{Digest, DigestHasher};

use crate::file_mode::FileMode;

/// Options of [`crate::Store::insert_tree`]: limits, and names to skip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOptions {
    /// The maximum number of files, directories and links together.
    pub max_entries: u64,
    /// The maximum size of all files together, in bytes.
    pub max_bytes: u64,
    /// The maximum number of levels of directories, the root included.
    pub max_depth: u32,
    /// Names that are skipped wherever they occur, such as `.git`.
    pub exclude: Vec<OsString>,
}

impl Default for TreeOptions {
    /// 20,000 entries, 1 GiB, 32 levels, nothing excluded.
    fn default() -> Self {
        Self { max_entries: 20_000, max_bytes: 1 << 30, max_depth: 32, exclude: Vec::new() }
    }
}

/// The files of a directory, all of which are in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    digest: Digest,
    files: Vec<TreeFile>,
    skipped: Vec<SkippedEntry>,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    path: PathBuf,
    digest: Digest,
    size: u64,
    mode: FileMode,
}

/// An entry of the directory that is not in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedEntry {
    /// Its path relative to the root.
    pub path: PathBuf,
    /// Why it was skipped.
    pub reason: SkipReason,
}

/// Why an entry was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// A link that is absolute, or leads out of the root.
    EscapesRoot,
    /// A link to a path that does not exist.
    DanglingLink,
    /// A link to itself, or to a directory that contains it.
    LinkLoop,
    /// A device, a pipe or a socket, or a link to one.
    SpecialFile,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EscapesRoot => "it is a link that leads out of the directory; put the file itself there",
            Self::DanglingLink => "it is a link to a path that does not exist",
            Self::LinkLoop => "it is a link that leads back to itself or to a directory above it",
            Self::SpecialFile => "it is a device, a pipe or a socket",
        })
    }
}

impl Tree {
    /// The tree of these files, which must be sorted by path.
    pub(crate) fn new(files: Vec<TreeFile>, skipped: Vec<SkippedEntry>) -> Self {
        let mut hasher = DigestHasher::new();
        hasher.update(b"conjure-tree 1\n");
        for file in &files {
            let mark = match file.mode {
                FileMode::Plain => '-',
                FileMode::Executable => 'x',
            };
            let path = file.path.as_os_str().as_bytes();
            // The length comes before the path, which may contain any character.
            let line = format!("{mark} {} {} {}:", file.digest.to_hex(), file.size, path.len());
            hasher.update(line.as_bytes());
            hasher.update(path);
            hasher.update(b"\n");
        }
        Self { digest: hasher.finish(), files, skipped }
    }

    /// The digest of all paths, contents, sizes and executable bits. Times, owners and empty directories are not included.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The files, sorted by path.
    #[must_use]
    pub fn files(&self) -> &[TreeFile] {
        &self.files
    }

    /// The entries of the directory that are not in the tree, sorted by path.
    #[must_use]
    pub fn skipped(&self) -> &[SkippedEntry] {
        &self.skipped
    }

    /// The size of all files together, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }
}

impl TreeFile {
    pub(crate) const fn new(path: PathBuf, digest: Digest, size: u64, mode: FileMode) -> Self {
        Self { path, digest, size, mode }
    }

    /// Its path relative to the root, without `.` and `..`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of its content.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Whether its owner may execute it.
    #[must_use]
    pub const fn mode(&self) -> FileMode {
        self.mode
    }
}
