//! A package that was read and found sound, in memory.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use conjure_base::Digest;

use crate::error::SkillError;
use crate::files::open_named;
use crate::frontmatter::{Folder, Frontmatter, Mode};
use crate::package::archive::{self, Member, MemberKind};
use crate::package::budget::disk_bytes;
use crate::package::inflate::{self, Fault};
use crate::package::layout::{Layout, Tree};
use crate::package::limits::PackageLimits;
use crate::package::problem::{PackageProblem, Refusal};
use crate::skill::{SKILL_FILES, text};

/// A package whose container is sound: every path is safe and there once, everything that it claims is within the
/// limits. Its files are inflated, and found to be what was packed, when they are read.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    archive: Vec<u8>,
    limits: PackageLimits,
    layout: Layout,
    /// How much room it takes when it is unpacked, as it claims.
    disk_bytes: u64,
    /// The skill's files and folders, in the order in which they lie in the archive.
    members: Vec<Member>,
}

/// A file of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackageFile<'a> {
    pub(crate) member: &'a Member,
    path: &'a Path,
}

impl<'a> PackageFile<'a> {
    /// Its path, relative to the skill's folder.
    #[must_use]
    pub const fn path(&self) -> &'a Path {
        self.path
    }

    /// Its size in bytes, uncompressed, as the package claims it.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.member.size
    }
}

impl Package {
    /// Reads a package.
    ///
    /// # Errors
    /// When it is no plain file, cannot be read, or is refused: [`SkillError::InvalidPackage`] with the entry and the
    /// reason.
    pub fn open(path: impl AsRef<Path>, limits: PackageLimits) -> Result<Self, SkillError> {
        let path = path.as_ref();
        let archive = open_named(path)?.read_all(limits.archive_bytes)?;
        Self::from_bytes(archive, path, limits)
    }

    /// The package that these bytes are. `path` is where they are from; nothing is read there.
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

    /// Where it was read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of its bytes. That of the skill in it is another: see
    /// [`SkillDigests::skill`](crate::SkillDigests::skill).
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.archive)
    }

    /// The skill's files, in the order in which they lie in the package.
    pub fn files(&self) -> impl Iterator<Item = PackageFile<'_>> {
        self.of_kind(MemberKind::File).map(|(path, member)| PackageFile { member, path })
    }

    /// How much room it takes on disk when it is unpacked.
    pub(crate) const fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// The paths of the folders that have entries of their own.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.of_kind(MemberKind::Folder).map(|(path, _)| path)
    }

    fn of_kind(&self, kind: MemberKind) -> impl Iterator<Item = (&Path, &Member)> {
        let members = self.members.iter().filter(move |member| member.kind == kind);
        members.filter_map(|member| Some((self.layout.relative(&member.path)?, member)))
    }

    /// Reads a file, by its path relative to the skill's folder.
    ///
    /// # Errors
    /// When it does not exist, or its content is not what was packed.
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
            Fault::Package(problem) => self.refuse(problem.of_entry(file.member.path.clone())),
            Fault::Sink(never) => match never {},
        })?;
        Ok(content)
    }

    /// Reads the frontmatter, and checks that the top folder, if there is one, is named as the skill. In lenient mode the
    /// folder's name is taken when the frontmatter has none.
    ///
    /// # Errors
    /// As [`Package::read`], and when the frontmatter breaks a rule of the mode.
    pub fn frontmatter(&self, mode: Mode) -> Result<Frontmatter, SkillError> {
        let mut names =
            SKILL_FILES.iter().filter(|name| self.files().any(|file| file.path == Path::new(name)));
        // The layout was found by this file.
        let name = names.next().unwrap_or(&SKILL_FILES[0]);
        let content = self.read(name)?;
        let document = match text(&content, SKILL_FILES[0]) {
            Ok(content) => {
                // A lenient reader takes the folder's name when the file does not say one. That both agree is checked
                // below, in either mode.
                let folder = match (&self.layout, mode) {
                    (Layout::InFolder(folder), Mode::Lenient) => Folder::Named(folder),
                    _ => Folder::Unknown,
                };
                Frontmatter::parse_in(content, mode, folder).map_err(|error| error.diagnostics)
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

    /// Gives the content of a file to a sink.
    pub(crate) fn unpack<E>(
        &self,
        file: &PackageFile<'_>,
        sink: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), Fault<E>> {
        inflate::unpack(file.member, &self.archive, &self.limits, sink)
    }

    /// The failure that a problem of this package is.
    pub(crate) fn refuse(&self, refusal: Refusal) -> SkillError {
        refused(&self.path, refusal)
    }
}

/// The layout, the entries, and how much room they take on disk, when nothing is wrong with them.
fn check(archive: &[u8], limits: &PackageLimits) -> Result<(Layout, Vec<Member>, u64), Refusal> {
    let members = archive::members(archive, limits)?;
    let mut tree = Tree::default();
    let mut total = 0_u64;
    for member in &members {
        let checked = tree
            .add(&member.path, member.kind, limits)
            .and_then(|()| inflate::check_claims(member, limits))
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
        checked.map_err(|problem| problem.of_entry(member.path.clone()))?;
    }
    let layout = Layout::of(&members)?;
    let files = members.iter().filter(|member| member.kind == MemberKind::File);
    let folders = tree.len().saturating_sub(files.clone().count()) as u64;
    let disk_bytes = files.map(|member| disk_bytes(member.size)).sum::<u64>() + folders * disk_bytes(0);
    Ok((layout, members, disk_bytes))
}

fn refused(path: &Path, Refusal { entry, problem }: Refusal) -> SkillError {
    SkillError::InvalidPackage { path: path.to_owned(), entry, problem }
}
