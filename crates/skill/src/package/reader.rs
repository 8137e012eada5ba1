//! A validated package, in memory.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use conjure_base::Digest;

use crate::error::SkillError;
use crate::frontmatter::{ExpectedName, Frontmatter, Mode};
use crate::package::archive::{self, ZipEntry, ZipEntryKind};
use crate::package::inflate::{self, InflateError};
use crate::package::layout::{Layout, PathTree};
use crate::package::limits::PackageLimits;
use crate::package::limits::disk_bytes;
use crate::package::problem::{PackageEntryError, PackageProblem};
use crate::scan::dir_handle::open_named;
use crate::skill::{SKILL_FILES, text};

/// The file name extension of packages.
pub(crate) const EXTENSION: &str = "skill";

/// Whether a file of this name counts as a package.
pub(crate) fn is_package_name(name: &OsStr) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == EXTENSION)
}

/// A package with a valid container: every path is safe and unique, and all declared sizes are within the limits.
/// The content of a file is inflated and checked when it is read.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    archive: Vec<u8>,
    limits: PackageLimits,
    layout: Layout,
    /// The disk space that it needs when unpacked, according to the declared sizes.
    disk_bytes: u64,
    /// The skill's files and directories, in archive order.
    members: Vec<ZipEntry>,
}

/// A file of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageFile<'a> {
    pub(crate) member: &'a ZipEntry,
    path: &'a Path,
}

impl<'a> PackageFile<'a> {
    /// Its path, relative to the skill's directory.
    #[must_use]
    pub const fn path(&self) -> &'a Path {
        self.path
    }

    /// Its declared uncompressed size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.member.size
    }
}

impl Package {
    /// Opens a package.
    ///
    /// # Errors
    /// When it is not a regular file, cannot be read, or is refused: [`SkillError::InvalidPackage`] with the entry
    /// and the reason.
    pub fn open(path: impl AsRef<Path>, limits: PackageLimits) -> Result<Self, SkillError> {
        let path = path.as_ref();
        let archive = open_named(path)?.read_all(limits.archive_bytes)?;
        Self::from_bytes(archive, path, limits)
    }

    /// Creates a package from bytes. `path` is only used in messages.
    ///
    /// # Errors
    /// As [`Package::open`].
    pub fn from_bytes(
        archive: Vec<u8>,
        path: impl Into<PathBuf>,
        limits: PackageLimits,
    ) -> Result<Self, SkillError> {
        let path = path.into();
        if archive.len() as u64 > limits.archive_bytes {
            return Err(SkillError::TooLarge { path, limit: limits.archive_bytes });
        }
        match check(&archive, &limits) {
            Ok((layout, members, disk_bytes)) => {
                Ok(Self { path, archive, limits, layout, disk_bytes, members })
            }
            Err(refusal) => Err(refused(&path, refusal)),
        }
    }

    /// The path it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the package's bytes. The digest of its skill is different: see
    /// [`SkillDigests::skill`](crate::SkillDigests::skill).
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_bytes(&self.archive)
    }

    /// Returns the skill's files, in archive order.
    pub fn files(&self) -> impl Iterator<Item = PackageFile<'_>> {
        self.of_kind(ZipEntryKind::File).map(|(path, member)| PackageFile { member, path })
    }

    /// The disk space that it needs when unpacked, in bytes.
    pub(crate) const fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Returns the directories that have entries of their own.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.of_kind(ZipEntryKind::Dir).map(|(path, _)| path)
    }

    fn of_kind(&self, kind: ZipEntryKind) -> impl Iterator<Item = (&Path, &ZipEntry)> {
        let members = self.members.iter().filter(move |member| member.kind == kind);
        members.filter_map(|member| Some((self.layout.relative(&member.path)?, member)))
    }

    /// Reads a file, by its path relative to the skill's directory.
    ///
    /// # Errors
    /// When it does not exist, or its content is corrupt.
    pub fn read(&self, relative: impl AsRef<Path>) -> Result<Vec<u8>, SkillError> {
        let relative = relative.as_ref();
        let Some(file) = self.files().find(|file| file.path == relative) else {
            return Err(SkillError::FileNotFound { path: relative.to_owned() });
        };
        let mut content = Vec::new();
        self.unpack(&file, &mut |piece: &[u8]| {
            content.extend_from_slice(piece);
            Ok::<_, Infallible>(())
        })
        .map_err(|fault| match fault {
            InflateError::Package(problem) => self.refuse(problem.in_entry(file.member.path.clone())),
            InflateError::Sink(never) => match never {},
        })?;
        Ok(content)
    }

    /// Reads the frontmatter, and checks that the top directory, if there is one, is named like the skill. In lenient
    /// mode, the directory's name replaces a missing name.
    ///
    /// # Errors
    /// As [`Package::read`], and when the frontmatter breaks a rule of the mode.
    pub fn frontmatter(&self, mode: Mode) -> Result<Frontmatter, SkillError> {
        let mut names =
            SKILL_FILES.iter().filter(|name| self.files().any(|file| file.path == Path::new(name)));
        // The layout requires this file.
        let name = names.next().unwrap_or(&SKILL_FILES[0]);
        let content = self.read(name)?;
        let document = match text(&content, SKILL_FILES[0]) {
            Ok(content) => {
                // A lenient reader uses the directory's name if the file has none. The check below compares both in
                // either mode.
                let dir = match (&self.layout, mode) {
                    (Layout::InDir(dir), Mode::Lenient) => ExpectedName::Named(dir),
                    _ => ExpectedName::Unknown,
                };
                Frontmatter::parse_in(content, mode, dir).map_err(|error| error.diagnostics)
            }
            Err(finding) => Err(vec![finding]),
        };
        let frontmatter = match document {
            Ok((frontmatter, ..)) => frontmatter,
            Err(diagnostics) => {
                return Err(SkillError::from_findings(self.path.join(name), diagnostics));
            }
        };
        self.layout.check_name(frontmatter.name().as_str()).map_err(|refusal| self.refuse(refusal))?;
        Ok(frontmatter)
    }

    /// Writes the content of a file to a sink.
    pub(crate) fn unpack<E>(
        &self,
        file: &PackageFile<'_>,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), InflateError<E>> {
        inflate::unpack(file.member, &self.archive, &self.limits, sink)
    }

    /// Converts a problem of this package to an error.
    pub(crate) fn refuse(&self, refusal: PackageEntryError) -> SkillError {
        refused(&self.path, refusal)
    }
}

/// Validates an archive. Returns its layout, its entries, and the disk space that they need.
fn check(archive: &[u8], limits: &PackageLimits) -> Result<(Layout, Vec<ZipEntry>, u64), PackageEntryError> {
    let members = archive::read_entries(archive, limits)?;
    let mut tree = PathTree::default();
    let mut total = 0_u64;
    for member in &members {
        let checked = tree
            .add(&member.path, member.kind, limits)
            .and_then(|()| inflate::check_declared_sizes(member, limits))
            .and_then(|()| {
                total = total.saturating_add(member.size);
                if total <= limits.total_bytes {
                    return Ok(());
                }
                Err(PackageProblem::Limit {
                    what: "bytes together with those before it",
                    limit: limits.total_bytes,
                })
            });
        checked.map_err(|problem| problem.in_entry(member.path.clone()))?;
    }
    let layout = Layout::detect(&members)?;
    let files = members.iter().filter(|member| member.kind == ZipEntryKind::File);
    let dirs = tree.len().saturating_sub(files.clone().count()) as u64;
    let disk_bytes = files.map(|member| disk_bytes(member.size)).sum::<u64>() + dirs * disk_bytes(0);
    Ok((layout, members, disk_bytes))
}

fn refused(path: &Path, PackageEntryError { entry, problem }: PackageEntryError) -> SkillError {
    SkillError::InvalidPackage { path: path.to_owned(), entry, problem }
}
