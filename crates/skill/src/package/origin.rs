//! The package that a skill was unpacked from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

/// Keeps an unpacked directory, and knows its package.
#[derive(Debug, Clone)]
pub(crate) struct PackageOrigin(Arc<UnpackedDir>);

#[derive(Debug)]
struct UnpackedDir {
    package: PathBuf,
    disk_bytes: u64,
    /// Dropping it removes the directory.
    dir: TempDir,
}

impl PackageOrigin {
    /// Takes over the private `dir` of a package.
    pub(super) fn new(package: PathBuf, disk_bytes: u64, dir: TempDir) -> Self {
        Self(Arc::new(UnpackedDir { package, disk_bytes, dir }))
    }

    /// The path of the package.
    pub(crate) fn package(&self) -> &Path {
        &self.0.package
    }

    /// Replaces the private directory in a path by that of the package.
    pub(crate) fn path_in_package(&self, file: &Path) -> PathBuf {
        self.package().join(file.file_name().unwrap_or_default())
    }

    /// The disk space of the directory in bytes.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes
    }
}

/// Two skills from one unpacked directory are equal in this.
impl PartialEq for PackageOrigin {
    fn eq(&self, other: &Self) -> bool {
        self.0.package == other.0.package && self.0.dir.path() == other.0.dir.path()
    }
}

impl Eq for PackageOrigin {}
