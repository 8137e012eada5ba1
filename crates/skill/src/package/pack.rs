//! Packing a skill's directory into a package that every reader understands.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use conjure_fs::StagedFile;

use crate::error::SkillError;
use crate::frontmatter::Mode;
use crate::package::archive::ZipEntryKind;
use crate::package::layout::PathTree;
use crate::package::limits::PackageLimits;
use crate::package::problem::{PackageEntryError, PackageProblem};
use crate::package::reader::EXTENSION;
use crate::package::writer::{ArchiveWriter, Permission};
use crate::resources::walk;
use crate::scan::dir_handle::{DirHandle, EntryKind};
use crate::skill::Skill;

/// Directories that are skipped anywhere.
const SKIPPED_DIRS: [&str; 3] = [".git", "__pycache__", "node_modules"];
/// The directory that is skipped only at the root: tests of a skill are no part of it.
const SKIPPED_AT_ROOT: &str = "evals";
const SKIPPED_FILE: &str = ".DS_Store";
const SKIPPED_EXTENSION: &str = "pyc";

/// All users may read a package, subject to the umask.
const OUTPUT_MODE: rustix::fs::Mode = rustix::fs::Mode::from_raw_mode(0o666);

/// The result of packing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackReport {
    /// The skill.
    pub skill: Skill,
    /// The file that was written. `None` when a writer was given.
    pub output: Option<PathBuf>,
    /// The packed files, relative to the skill's directory, sorted.
    pub files: Vec<PathBuf>,
    /// The skipped files, sorted by path. Files in skipped directories are not listed.
    pub skipped: Vec<PathBuf>,
    /// The total size of all files in bytes, uncompressed.
    pub total_bytes: u64,
    /// The size of the package in bytes.
    pub package_bytes: u64,
}

/// Packs a skill. `skill` is its directory or its `SKILL.md`. The same files always result in the same bytes. All
/// files are below a directory named like the skill. `.git`, `__pycache__`, `node_modules`, `*.pyc`, `.DS_Store`, and
/// `evals` at the root are skipped. A link within the skill is packed as the file that it leads to.
///
/// # Errors
/// - The skill is not [strictly valid](Mode::Strict).
/// - A file cannot be read, is not a regular file, or is a link to something else than a file of the skill.
/// - A path or size exceeds a limit.
/// - The writer fails.
pub fn pack(
    skill: impl AsRef<Path>,
    target: &mut impl Write,
    limits: PackageLimits,
) -> Result<PackReport, SkillError> {
    PackPlan::new(Skill::load(skill, Mode::Strict)?, limits)?.write(target)
}

/// Packs a skill into a file. The file is replaced completely or not at all, even if the process is killed meanwhile.
/// An existing file is replaced only if it is a regular file, not a link, a device or a pipe. `output` may be a
/// directory: then the file is named after the skill, with the ending `.skill`. On file systems without nameless files,
/// such as NFS, a killed process may leave a file `.conjure-….tmp`.
///
/// ```
/// use conjure_skill::{Mode, PackageLimits, load_skill_file, pack_file};
///
/// let temp = tempfile::tempdir()?;
/// let directory = temp.path().join("sales-report");
/// std::fs::create_dir(&directory)?;
/// std::fs::write(directory.join("SKILL.md"), "---\nname: sales-report\ndescription: Reports sales\n---\n# Steps\n")?;
/// let packed = pack_file(&directory, temp.path(), PackageLimits::default())?;
/// assert_eq!(packed.output, Some(temp.path().join("sales-report.skill")));
///
/// let skill = load_skill_file(temp.path().join("sales-report.skill"), Mode::Strict)?;
/// assert_eq!(skill.body()?, "# Steps");
/// let private = skill.root_dir().to_owned();
/// drop(skill);
/// assert!(!private.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`pack`], and when the output would lie in the skill's directory, or exists and is not a regular file.
pub fn pack_file(
    skill: impl AsRef<Path>,
    output: impl AsRef<Path>,
    limits: PackageLimits,
) -> Result<PackReport, SkillError> {
    let plan = PackPlan::new(Skill::load(skill, Mode::Strict)?, limits)?;
    let mut output = output.as_ref().to_owned();
    if output.is_dir() {
        output.push(format!("{}.{EXTENSION}", plan.skill.name()));
    }
    let failed = |source| SkillError::Write { path: output.clone(), source };
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(failed)?;
    if parent.starts_with(plan.skill.root_dir()) {
        let reason = "the package cannot be inside the skill that is packed: choose another path".to_owned();
        return Err(SkillError::InvalidStructure { path: output, reason });
    }
    // Check it before anything is compressed.
    check_replaceable(&output).map_err(failed)?;
    let dir = conjure_fs::DirHandle::open(&parent).map_err(|errno| failed(errno.into()))?;
    let mut file = StagedFile::create_unnamed(dir, OUTPUT_MODE).map_err(failed)?;
    let packed = plan.write(&mut file).map_err(|error| match error {
        SkillError::Write { source, .. } => failed(source),
        other => other,
    })?;
    let published = check_replaceable(&output).and_then(|()| file.sync());
    let name = output.file_name().unwrap_or_default();
    published.and_then(|()| file.replace(name)).map_err(failed)?;
    Ok(PackReport { output: Some(output), ..packed })
}

/// Checks that a path is a regular file or does not exist. Nothing else is replaced.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            Err(io::Error::other("only a regular file is replaced, not a link, a device or anything else"))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The files of a package, all valid.
struct PackPlan {
    skill: Skill,
    root: DirHandle,
    limits: PackageLimits,
    /// The path of each file in the skill's directory, by its path in the package.
    files: BTreeMap<String, PathBuf>,
    skipped: Vec<PathBuf>,
}

impl PackPlan {
    fn new(skill: Skill, limits: PackageLimits) -> Result<Self, SkillError> {
        let root = DirHandle::open(skill.root_dir())?;
        let mut plan = Self { skill, root, limits, files: BTreeMap::new(), skipped: Vec::new() };
        let mut tree = PathTree::default();
        let root_dir = plan.skill.root_dir().to_owned();
        let mut found = Vec::new();
        walk(&plan.root, &root_dir, &SKIPPED_DIRS, |path, kind| {
            found.push((path, kind));
            Ok(())
        })?;
        found.sort();
        for (path, kind) in found {
            if is_skipped(&path) {
                plan.skipped.push(path);
                continue;
            }
            let refused = |refusal: PackageEntryError| {
                let PackageEntryError { entry, problem } = refusal;
                SkillError::InvalidPackage { path: root_dir.clone(), entry, problem }
            };
            let entry = match path.to_str() {
                Some(path) => format!("{}/{path}", plan.skill.name()),
                None => return Err(refused(PackageProblem::Encoding.in_entry(path.to_string_lossy()))),
            };
            let checked = match kind {
                EntryKind::Other => Err(PackageProblem::SpecialFile),
                _ => tree.add(&entry, ZipEntryKind::File, &limits),
            };
            checked.map_err(|problem| refused(problem.in_entry(&*entry)))?;
            plan.files.insert(entry, path);
        }
        Ok(plan)
    }

    fn write(self, target: &mut impl Write) -> Result<PackReport, SkillError> {
        let Self { skill, root, limits, files, skipped } = self;
        let mut writer = ArchiveWriter::new(target);
        let mut total_bytes = 0_u64;
        for (entry, path) in &files {
            // Refuses a directory that is reached by a link, and anything that is not a file of the skill.
            let mut file = root.open_file(path)?;
            let content = file.read_all(limits.entry_bytes.min(limits.total_bytes - total_bytes));
            let content = content.map_err(|error| match error {
                SkillError::TooLarge { .. } if file.size() <= limits.entry_bytes => {
                    SkillError::InvalidPackage {
                        path: skill.root_dir().to_owned(),
                        entry: Some(entry.as_str().into()),
                        problem: PackageProblem::Limit {
                            what: "bytes together with those before it",
                            limit: limits.total_bytes,
                        },
                    }
                }
                other => other,
            })?;
            total_bytes += content.len() as u64;
            let permission = if file.is_executable() { Permission::Executable } else { Permission::Plain };
            writer
                .add(entry, &content, permission, &limits)
                .map_err(|source| SkillError::Write { path: path.clone(), source })?;
        }
        let package_bytes = writer
            .finish()
            .map_err(|source| SkillError::Write { path: skill.root_dir().to_owned(), source })?;
        // Many long paths can make a package larger than its files.
        if package_bytes > limits.archive_bytes {
            return Err(SkillError::TooLarge {
                path: skill.root_dir().to_owned(),
                limit: limits.archive_bytes,
            });
        }
        let files = files.into_values().collect();
        Ok(PackReport { skill, output: None, files, skipped, total_bytes, package_bytes })
    }
}

fn is_skipped(path: &Path) -> bool {
    path.starts_with(SKIPPED_AT_ROOT) && path.components().nth(1).is_some()
        || path.file_name().is_some_and(|name| name == SKIPPED_FILE)
        || path.extension().is_some_and(|extension| extension == SKIPPED_EXTENSION)
}
