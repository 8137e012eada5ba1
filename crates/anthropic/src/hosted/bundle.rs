//! [`SkillBundle`]: the files of a skill for an upload, validated before anything is sent.
//!
//! A `.skill` package is unpacked into a private directory that is removed with the bundle. A directory is read in place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_artifact::content_type_of;
use conjure_base::{Digest, DigestHasher};
use conjure_skill::{Mode, Package, PackageLimits, Skill, SkillError, pack};

use crate::hosted::transfer::multipart::{Content, Form};
use crate::hosted::{HostedError, HostedErrorKind, HostedLimits};

/// The extension of a package.
const PACKAGE: &str = "skill";

/// A skill that is ready to be uploaded. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SkillBundle {
    skill: Arc<Skill>,
    files: Arc<[BundleFile]>,
    left_out: Arc<[PathBuf]>,
    total: u64,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFile {
    name: String,
    path: PathBuf,
    size: u64,
}

impl BundleFile {
    /// The name under which it is sent: `NAME/scripts/a.py`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }
}

impl SkillBundle {
    /// Opens a skill. `path` is its directory, its `SKILL.md` or its `.skill` package. Files are skipped as [`pack`](conjure_skill::pack)
    /// skips them.
    ///
    /// This reads files and blocks. In async code use [`Skills::upload`](crate::hosted::Skills::upload), which reads on a blocking thread.
    ///
    /// # Errors
    /// [`HostedErrorKind::InvalidSkill`] if the skill is not strictly valid or cannot be read. [`HostedErrorKind::OverLimit`] if it exceeds
    /// a limit.
    pub fn open(path: impl AsRef<Path>, limits: &HostedLimits) -> Result<Self, HostedError> {
        let path = path.as_ref();
        let is_package = path.extension().is_some_and(|ending| ending == PACKAGE) && !path.is_dir();
        let bounds = package_limits(limits);
        let (skill, paths, left_out) = if is_package {
            open_package(path, bounds)
        } else {
            // The archive itself is discarded. The service demands everything of a skill that a package must fulfil, except the compression
            // ratio.
            let mut bounds = bounds;
            bounds.ratio_free_bytes = u64::MAX;
            pack(path, &mut io::sink(), bounds).map(|packed| (packed.skill, packed.files, packed.skipped))
        }
        .map_err(HostedError::from_skill)?;
        let mut files = Vec::with_capacity(paths.len());
        let mut total = 0_u64;
        for path in paths {
            let size = skill.resource_start(&path, 0).map_err(HostedError::from_skill)?.size;
            total = total.saturating_add(size);
            let name = path.to_str().map(|path| format!("{}/{path}", skill.name()));
            let name = name.ok_or_else(|| {
                HostedError::new(
                    HostedErrorKind::InvalidSkill,
                    format!("the name of `{}` is not UTF-8; rename it", path.display()),
                )
            })?;
            files.push(BundleFile { name, path, size });
        }
        if total > limits.skill_bytes {
            let message = format!(
                "the files of the skill have {total} bytes, above the limit of {}; leave some out",
                limits.skill_bytes
            );
            return Err(HostedError::new(HostedErrorKind::OverLimit, message));
        }
        Ok(Self { skill: Arc::new(skill), files: files.into(), left_out: left_out.into(), total })
    }

    /// The skill.
    #[must_use]
    pub fn skill(&self) -> &Skill {
        &self.skill
    }

    /// The files that are sent, in order.
    #[must_use]
    pub fn files(&self) -> &[BundleFile] {
        &self.files
    }

    /// The skipped files, relative to the skill's directory.
    #[must_use]
    pub fn left_out(&self) -> &[PathBuf] {
        &self.left_out
    }

    /// The total size of the files, in bytes.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.total
    }

    /// The digest of the sent files: SHA-256 over the lines `path\0hex\n`, sorted by path. Paths are relative to the skill's directory. If
    /// no file was skipped, it equals the digest of the directory's [`digests`](Skill::digests). This reads files and blocks.
    ///
    /// # Errors
    /// [`HostedErrorKind::Unreadable`] if a file cannot be read, or if its size has changed.
    pub fn digest(&self) -> Result<Digest, HostedError> {
        let mut digests = Vec::with_capacity(self.files.len());
        for file in &*self.files {
            let content = self.skill.read_resource_up_to(&file.path, file.size);
            let content = content.map_err(|error| HostedError::unreadable(&file.path, error))?;
            if content.len() as u64 != file.size {
                return Err(HostedError::unreadable(&file.path, "it has just changed; try again"));
            }
            digests.push((file.path.as_path(), Digest::of_bytes(&content)));
        }
        Ok(combined_digest(digests))
    }

    /// Adds all files to a form.
    pub(crate) fn add_to_form(&self, form: Form) -> Form {
        self.files.iter().fold(form, |form, file| {
            let content = Content::SkillFile(Arc::clone(&self.skill), file.path.clone());
            form.file("files[]", &file.name, &content_type_of(&file.name, b""), content, file.size)
        })
    }
}

/// The digest of a skill's files as the service returns them: a ZIP archive of the skill's directory. It decompresses within these limits
/// and blocks.
pub(crate) fn digest_of_archive(archive: Vec<u8>, limits: &HostedLimits) -> Result<Digest, SkillError> {
    let mut bounds = package_limits(limits);
    // The compression ratio of the service's archive is not limited. The sizes are.
    bounds.ratio_free_bytes = u64::MAX;
    let package = Package::from_bytes(archive, "skill.zip", bounds)?;
    let files = package.files().map(|file| Ok((file.path(), Digest::of_bytes(&package.read(file.path())?))));
    Ok(combined_digest(files.collect::<Result<_, SkillError>>()?))
}

/// Combines the digests of files, by path, into one.
fn combined_digest(mut files: Vec<(&Path, Digest)>) -> Digest {
    files.sort_unstable_by_key(|(path, _)| path.as_os_str());
    let mut hasher = DigestHasher::new();
    for (path, digest) in files {
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(b"\0");
        hasher.update(digest.to_hex().as_bytes());
        hasher.update(b"\n");
    }
    hasher.finish()
}

type PackageContents = (Skill, Vec<PathBuf>, Vec<PathBuf>);

fn open_package(path: &Path, bounds: PackageLimits) -> Result<PackageContents, SkillError> {
    let package = Package::open(path, bounds)?;
    package.frontmatter(Mode::Strict)?;
    let files = package.files().map(|file| file.path().to_owned()).collect();
    let skill = package.extract(None)?.load(Mode::Strict)?;
    Ok((skill, files, Vec::new()))
}

fn package_limits(limits: &HostedLimits) -> PackageLimits {
    let mut bounds = PackageLimits::default();
    bounds.entries = limits.skill_files;
    bounds.total_bytes = limits.skill_bytes;
    bounds.entry_bytes = limits.skill_bytes;
    // The package itself is not sent. It may be a little larger than its files, because it also holds their names.
    bounds.archive_bytes = limits.skill_bytes.saturating_add(bounds.archive_bytes);
    bounds
}
