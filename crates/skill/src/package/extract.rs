//! Unpacks a package into a private directory.
//!
//! State: one directory on disk for each [`UnpackedPackage`], beneath the system's temporary directory or one that the
//! embedder chooses. The last clone of its handle removes it, as does a failure. A killed process leaves its
//! directories behind, named `conjure-skill-…`. Nothing reads them again.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;
use crate::error::SkillError;
use crate::frontmatter::Mode;
use crate::package::inflate::InflateError;
use crate::package::limits::{DiskBudget, PackageLimits};
use crate::package::origin::PackageOrigin;
use crate::package::reader::{Package, PackageFile};
use crate::scan::dir_handle::DirHandle;
use crate::skill::Skill;

const PREFIX: &str = "conjure-skill-";
const OWNER_ONLY: u32 = 0o700;
const ANY_EXECUTE: u32 = 0o111;

/// A package that was unpacked into a private directory. Cloning is cheap. The last clone removes the directory.
#[derive(Debug, Clone)]
pub struct UnpackedPackage {
    origin: PackageOrigin,
    dir: PathBuf,
}

impl UnpackedPackage {
    /// The skill's directory: absolute, resolved, and named like the skill.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Loads the skill in it. The skill keeps the directory, too.
    ///
    /// # Errors
    /// As [`Skill::load`]. Errors of the frontmatter or the manifest name the file in the package.
    pub fn load(&self, mode: Mode) -> Result<Skill, SkillError> {
        Skill::load(&self.dir, mode)
            .map(|skill| skill.unpacked_from(self.origin.clone()))
            .map_err(|error| error.moved(|path| self.origin.path_in_package(path)))
    }

    /// Returns all findings about the skill, like [`validate`](crate::validate). Their paths are those of the
    /// `SKILL.md` in the package.
    #[must_use]
    pub fn validate(&self, mode: Mode) -> Vec<Diagnostic> {
        match self.load(mode) {
            Ok(skill) => skill.all_diagnostics(),
            Err(error) => error.into_diagnostics(),
        }
    }
}

/// Unpacks a package into a private directory beneath the system's temporary directory, with the default limits.
///
/// # Errors
/// As [`Package::open`] and [`Package::extract`].
pub fn extract_skill_file(path: impl AsRef<Path>) -> Result<UnpackedPackage, SkillError> {
    Package::open(path, PackageLimits::default())?.extract(None)
}

/// Loads the skill in a package, with the default limits. It is unpacked into a private directory beneath the
/// system's temporary directory. The last clone of the skill removes it.
///
/// # Errors
/// As [`Package::open`], [`Package::extract`] and [`Skill::load`].
pub fn load_skill_file(path: impl AsRef<Path>, mode: Mode) -> Result<Skill, SkillError> {
    open_valid(path.as_ref(), mode)?.extract(None)?.load(mode)
}

/// The same, within a disk budget.
pub(crate) fn load_package_within(
    path: &Path,
    mode: Mode,
    budget: &mut DiskBudget,
) -> Result<Skill, SkillError> {
    let package = open_valid(path, mode)?;
    budget.take(path, package.disk_bytes())?;
    let loaded = package.extract(None).and_then(|extracted| extracted.load(mode));
    loaded.inspect_err(|_| budget.release(package.disk_bytes()))
}

/// Opens a package and validates its frontmatter, before anything is written to disk.
fn open_valid(path: &Path, mode: Mode) -> Result<Package, SkillError> {
    let package = Package::open(path, PackageLimits::default())?;
    package.frontmatter(mode)?;
    Ok(package)
}

impl Package {
    /// Unpacks the skill into a new private directory beneath `parent`, or else beneath the system's temporary
    /// directory. Only its owner may access the files. A file is executable when the package says so. If the package
    /// has no permissions, a file is executable when it begins with `#!`.
    ///
    /// # Errors
    /// When the content of a file is corrupt, the frontmatter is invalid even in lenient mode, the top directory is
    /// not named like the skill, or the system refuses. Nothing is left on disk then.
    pub fn extract(&self, parent: Option<&Path>) -> Result<UnpackedPackage, SkillError> {
        let frontmatter = self.frontmatter(Mode::Lenient)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(OWNER_ONLY));
        let created = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        };
        let failed = |source| SkillError::Write { path: self.path().to_owned(), source };
        let private = created.map_err(failed)?;
        let resolved = private.path().canonicalize().map_err(failed)?;
        let root = DirHandle::open(&resolved)?;
        let name = Path::new(frontmatter.name().as_str());
        root.create_dirs(name)?;
        let dir = resolved.join(name);
        let root = DirHandle::open(&dir)?;
        for path in self.dirs() {
            root.create_dirs(path)?;
        }
        for file in self.files() {
            if let Some(parent) = file.path().parent() {
                root.create_dirs(parent)?;
            }
            self.write(&root, &file)?;
        }
        let (package, disk_bytes) = (self.path().to_owned(), self.disk_bytes());
        let origin = PackageOrigin::new(package, disk_bytes, private);
        Ok(UnpackedPackage { origin, dir })
    }

    fn write(&self, root: &DirHandle, file: &PackageFile<'_>) -> Result<(), SkillError> {
        let failed = |source| SkillError::Write { path: file.path().to_owned(), source };
        let mut target = root.create_file(file.path())?;
        let mut start: Vec<u8> = Vec::with_capacity(2);
        self.unpack(file, &mut |piece: &[u8]| {
            start.extend(piece.iter().take(2 - start.len()));
            target.write_all(piece)
        })
        .map_err(|fault| match fault {
            InflateError::Package(problem) => self.refuse(problem.in_entry(file.member.path.clone())),
            InflateError::Sink(source) => failed(source),
        })?;
        let is_executable = match file.member.permissions {
            Some(permissions) => permissions & ANY_EXECUTE != 0,
            None => start == b"#!",
        };
        if is_executable {
            target.set_permissions(Permissions::from_mode(OWNER_ONLY)).map_err(failed)?;
        }
        Ok(())
    }
}
