//! A folder's files by their digests.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use conjure_base::{Digest, DigestHasher};

use crate::store::Variant;

/// What is taken of a folder, and how much at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeOptions {
    /// The most files, folders and links together.
    pub entries: u64,
    /// The most bytes of all files together.
    pub bytes: u64,
    /// The most levels of folders, the folder itself being the first.
    pub depth: u32,
    /// Names that are left out wherever they occur, such as `.git`.
    pub exclude: Vec<OsString>,
}

impl Default for TreeOptions {
    /// 20,000 entries, 1 GiB, 32 levels, nothing left out.
    fn default() -> Self {
        Self { entries: 20_000, bytes: 1 << 30, depth: 32, exclude: Vec::new() }
    }
}

/// A folder's files, all of which are in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    digest: Digest,
    files: Vec<TreeFile>,
    left_out: Vec<LeftOut>,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    path: PathBuf,
    digest: Digest,
    size: u64,
    variant: Variant,
}

/// Something that a tree does not hold, though the folder does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path beneath the folder.
    pub path: PathBuf,
    /// Why it was left out.
    pub reason: LeftOutReason,
}

/// Why something was left out of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// A link that is absolute, or climbs out of the folder.
    LeadsOut,
    /// A link to what is not there.
    Dangling,
    /// A link that leads to itself, or to a folder that holds it.
    Circle,
    /// A device, a pipe or a socket, or a link to one.
    NotPlain,
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeadsOut => "it is a link that leads out of the folder; put the file itself there",
            Self::Dangling => "it is a link to what is not there",
            Self::Circle => "it is a link that leads round in a circle",
            Self::NotPlain => "it is a device, a pipe or a socket",
        })
    }
}

impl Tree {
    /// A tree of these files, which must be sorted by path.
    pub(crate) fn new(files: Vec<TreeFile>, left_out: Vec<LeftOut>) -> Self {
        let mut hasher = DigestHasher::new();
        hasher.update(b"conjure-tree 1\n");
        for file in &files {
            let mark = match file.variant {
                Variant::Plain => '-',
                Variant::Executable => 'x',
            };
            let path = file.path.as_os_str().as_bytes();
            // The length stands before the path, which may hold any character.
            let line = format!("{mark} {} {} {}:", file.digest.to_hex(), file.size, path.len());
            hasher.update(line.as_bytes());
            hasher.update(path);
            hasher.update(b"\n");
        }
        Self { digest: hasher.finish(), files, left_out }
    }

    /// The digest of all paths, contents, sizes and executable bits. Dates, owners and empty folders are not in it.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The files, sorted by path.
    #[must_use]
    pub fn files(&self) -> &[TreeFile] {
        &self.files
    }

    /// What the folder holds and the tree does not, sorted by path.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }
}

impl TreeFile {
    pub(crate) const fn new(path: PathBuf, digest: Digest, size: u64, variant: Variant) -> Self {
        Self { path, digest, size, variant }
    }

    /// Its path beneath the folder, without `.` and `..`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its content.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Its bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Whether its owner may execute it.
    #[must_use]
    pub const fn variant(&self) -> Variant {
        self.variant
    }
}
