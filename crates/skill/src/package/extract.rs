//! Unpacking a package into a private folder.
//!
//! State: one folder on disk for each [`Extracted`], beneath the system's folder for temporary files or one that the
//! host names. It goes with the last clone of its handle, and before that when unpacking fails. A process that is
//! killed leaves its folders behind, named `conjure-skill-…`; nothing reads them again.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::diagnostic::Diagnostic;
use crate::error::SkillError;
use crate::files::Folder;
use crate::frontmatter::Mode;
use crate::package::budget::Budget;
use crate::package::inflate::Fault;
use crate::package::limits::PackageLimits;
use crate::package::reader::{Package, PackageFile};
use crate::skill::Skill;

const PREFIX: &str = "conjure-skill-";
const OWNER_ONLY: u32 = 0o700;
const ANY_EXECUTE: u32 = 0o111;

/// A package that was unpacked into a private folder. Cloning is cheap; the folder goes with the last clone.
#[derive(Debug, Clone)]
pub struct Extracted {
    origin: Origin,
    folder: PathBuf,
}

impl Extracted {
    /// The skill's folder, absolute and resolved, named as the skill.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Loads the skill in it. The skill keeps the folder too.
    ///
    /// # Errors
    /// As [`Skill::load`]. What is wrong with the frontmatter or the manifest is said of the file in the package.
    pub fn load(&self, mode: Mode) -> Result<Skill, SkillError> {
        Skill::load(&self.folder, mode)
            .map(|skill| skill.unpacked_from(self.origin.clone()))
            .map_err(|error| error.moved(|path| self.origin.path_in_package(path)))
    }

    /// All findings about the skill in it, as [`validate`](crate::validate) has them, but for the paths: they are of
    /// the `SKILL.md` in the package.
    #[must_use]
    pub fn validate(&self, mode: Mode) -> Vec<Diagnostic> {
        match self.load(mode) {
            Ok(skill) => skill.diagnostics().to_vec(),
            Err(error) => error.into_diagnostics(),
        }
    }
}

/// What keeps an unpacked folder, and where it is from.
#[derive(Debug, Clone)]
pub(crate) struct Origin(Arc<Unpacked>);

#[derive(Debug)]
struct Unpacked {
    package: PathBuf,
    disk_bytes: u64,
    /// Removed when this is dropped.
    folder: TempDir,
}

impl Origin {
    /// The package.
    pub(crate) fn package(&self) -> &Path {
        &self.0.package
    }

    /// The path that people know instead of that of the skill's main file, which is in the private folder.
    pub(crate) fn path_in_package(&self, file: &Path) -> PathBuf {
        self.package().join(file.file_name().unwrap_or_default())
    }

    /// How much room the folder takes.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.0.disk_bytes
    }
}

/// Two skills from one unpacked folder are from the same.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.0.package == other.0.package && self.0.folder.path() == other.0.folder.path()
    }
}

impl Eq for Origin {}

/// Unpacks a package into a private folder beneath the system's folder for temporary files, with the default limits.
///
/// # Errors
/// As [`Package::open`] and [`Package::extract`].
pub fn extract_skill_file(path: impl AsRef<Path>) -> Result<Extracted, SkillError> {
    Package::open(path, PackageLimits::default())?.extract(None)
}

/// Loads the skill in a package, with the default limits. Its folder is a private one beneath the system's folder for
/// temporary files, and goes with the last clone of the skill.
///
/// # Errors
/// As [`Package::open`], [`Package::extract`] and [`Skill::load`].
pub fn load_skill_file(path: impl AsRef<Path>, mode: Mode) -> Result<Skill, SkillError> {
    open_valid(path.as_ref(), mode)?.extract(None)?.load(mode)
}

/// The same, as long as there is room for it.
pub(crate) fn load_package_within(path: &Path, mode: Mode, budget: &mut Budget) -> Result<Skill, SkillError> {
    let package = open_valid(path, mode)?;
    budget.take(path, package.disk_bytes())?;
    let loaded = package.extract(None).and_then(|extracted| extracted.load(mode));
    loaded.inspect_err(|_| budget.give_back(package.disk_bytes()))
}

/// What is wrong with the frontmatter is said of the package, before anything of it is on disk.
fn open_valid(path: &Path, mode: Mode) -> Result<Package, SkillError> {
    let package = Package::open(path, PackageLimits::default())?;
    package.frontmatter(mode)?;
    Ok(package)
}

impl Package {
    /// Unpacks the skill into a new private folder beneath `parent`, or else beneath the system's folder for temporary
    /// files. Only its owner may use the files. A file is executable when the package says so; when the package says
    /// nothing of permissions, when it begins with `#!`.
    ///
    /// # Errors
    /// When a file's content is not what was packed, the frontmatter cannot be read even leniently, the top folder is
    /// not named as the skill, or the operating system refuses. Nothing is left on disk then.
    pub fn extract(&self, parent: Option<&Path>) -> Result<Extracted, SkillError> {
        let frontmatter = self.frontmatter(Mode::Lenient)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(PREFIX).permissions(Permissions::from_mode(OWNER_ONLY));
        let made = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder.tempdir(),
        };
        let failed = |source| SkillError::Write { path: self.path().to_owned(), source };
        let private = made.map_err(failed)?;
        let resolved = private.path().canonicalize().map_err(failed)?;
        let root = Folder::open(&resolved)?;
        let name = Path::new(frontmatter.name().as_str());
        root.create_folders(name)?;
        let folder = resolved.join(name);
        let root = Folder::open(&folder)?;
        for path in self.folders() {
            root.create_folders(path)?;
        }
        for file in self.files() {
            if let Some(parent) = file.path().parent() {
                root.create_folders(parent)?;
            }
            self.write(&root, &file)?;
        }
        let (package, disk_bytes) = (self.path().to_owned(), self.disk_bytes());
        let origin = Origin(Arc::new(Unpacked { package, disk_bytes, folder: private }));
        Ok(Extracted { origin, folder })
    }

    fn write(&self, root: &Folder, file: &PackageFile<'_>) -> Result<(), SkillError> {
        let failed = |source| SkillError::Write { path: file.path().to_owned(), source };
        let mut target = root.create_file(file.path())?;
        let mut start: Vec<u8> = Vec::with_capacity(2);
        self.unpack(file, &mut |piece: &[u8]| {
            start.extend(piece.iter().take(2 - start.len()));
            target.write_all(piece)
        })
        .map_err(|fault| match fault {
            Fault::Package(problem) => self.refuse(problem.of_entry(file.member.path.clone())),
            Fault::Sink(source) => failed(source),
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
