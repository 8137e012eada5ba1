//! Packing a skill's folder into a package that every reader understands.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::SkillError;
use crate::files::{EntryKind, Folder};
use crate::frontmatter::Mode;
use crate::package::EXTENSION;
use crate::package::archive::MemberKind;
use crate::package::layout::Tree;
use crate::package::limits::PackageLimits;
use crate::package::output::{Output, check_replaceable};
use crate::package::problem::{PackageProblem, Refusal};
use crate::package::writer::{ArchiveWriter, Permission};
use crate::resources::walk;
use crate::skill::Skill;

/// Folders that are left out wherever they are.
const LEFT_OUT_FOLDERS: [&str; 3] = [".git", "__pycache__", "node_modules"];
/// The folder that is left out at the root only: what tests a skill is no part of it.
const LEFT_OUT_AT_ROOT: &str = "evals";
const LEFT_OUT_FILE: &str = ".DS_Store";
const LEFT_OUT_EXTENSION: &str = "pyc";

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The skill.
    pub skill: Skill,
    /// The file that was written; none when it went to a writer.
    pub output: Option<PathBuf>,
    /// The packed files, relative to the skill's folder, in their order.
    pub files: Vec<PathBuf>,
    /// The files that were left out, in the order of paths. Of folders that are left out everywhere, nothing is listed.
    pub left_out: Vec<PathBuf>,
    /// The bytes of all files, uncompressed.
    pub total_bytes: u64,
    /// The bytes of the package.
    pub package_bytes: u64,
}

/// Packs a skill: the folder, or whose `SKILL.md` it is. The same files give the same bytes, whenever and by whomever
/// they are packed. All lie below a folder named as the skill. Left out are `.git`, `__pycache__`, `node_modules`,
/// `*.pyc`, `.DS_Store`, and `evals` at the root. A link within the skill is packed as the file that it leads to.
///
/// # Errors
/// When the skill is not [strictly valid](Mode::Strict); when a file cannot be read, is no plain file or a link to
/// something else than a file of the skill; when a path or a size is one that a reader with these limits would refuse;
/// or when the writer fails.
pub fn pack(
    skill: impl AsRef<Path>,
    target: &mut impl Write,
    limits: PackageLimits,
) -> Result<Packed, SkillError> {
    Plan::of(Skill::load(skill, Mode::Strict)?, limits)?.write(target)
}

/// Packs a skill into a file, which is there whole or not at all, also when the process is killed meanwhile; a plain file
/// that was there is replaced, a link, a device or a pipe is not. `output` may be a folder: then the file is named as
/// the skill, with the ending `.skill`. File systems without nameless files, such as NFS, may keep a file
/// `.conjure-pack-…` of a process that was killed.
///
/// ```
/// use conjure_skill::{Mode, PackageLimits, load_skill_file, pack_file};
///
/// let temp = tempfile::tempdir()?;
/// let folder = temp.path().join("sales-report");
/// std::fs::create_dir(&folder)?;
/// std::fs::write(folder.join("SKILL.md"), "---\nname: sales-report\ndescription: Reports sales\n---\n# Steps\n")?;
/// let packed = pack_file(&folder, temp.path(), PackageLimits::default())?;
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
/// As [`pack`], and when the output would lie in the skill's folder, or is there and no plain file.
pub fn pack_file(
    skill: impl AsRef<Path>,
    output: impl AsRef<Path>,
    limits: PackageLimits,
) -> Result<Packed, SkillError> {
    let plan = Plan::of(Skill::load(skill, Mode::Strict)?, limits)?;
    let mut output = output.as_ref().to_owned();
    if output.is_dir() {
        output.push(format!("{}.{EXTENSION}", plan.skill.name()));
    }
    let failed = |source| SkillError::Write { path: output.clone(), source };
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(failed)?;
    if parent.starts_with(plan.skill.root_dir()) {
        let reason = "a package cannot lie in the skill that is packed: name another place".to_owned();
        return Err(SkillError::InvalidStructure { path: output, reason });
    }
    // Said before anything is compressed.
    check_replaceable(&output).map_err(failed)?;
    let mut file = Output::create_in(&parent).map_err(failed)?;
    let packed = plan.write(&mut file).map_err(|error| match error {
        SkillError::Write { source, .. } => failed(source),
        other => other,
    })?;
    file.publish(&output).map_err(failed)?;
    Ok(Packed { output: Some(output), ..packed })
}

/// The files that go into a package, all fit for it.
struct Plan {
    skill: Skill,
    root: Folder,
    limits: PackageLimits,
    /// The path of each in the skill's folder, by its path in the package.
    files: BTreeMap<String, PathBuf>,
    left_out: Vec<PathBuf>,
}

impl Plan {
    fn of(skill: Skill, limits: PackageLimits) -> Result<Self, SkillError> {
        let root = Folder::open(skill.root_dir())?;
        let mut plan = Self { skill, root, limits, files: BTreeMap::new(), left_out: Vec::new() };
        let mut tree = Tree::default();
        let root_dir = plan.skill.root_dir().to_owned();
        let mut found = Vec::new();
        walk(&plan.root, &root_dir, &LEFT_OUT_FOLDERS, |path, kind| {
            found.push((path, kind));
            Ok(())
        })?;
        found.sort();
        for (path, kind) in found {
            if is_left_out(&path) {
                plan.left_out.push(path);
                continue;
            }
            let refused = |refusal: Refusal| {
                let Refusal { entry, problem } = refusal;
                SkillError::InvalidPackage { path: root_dir.clone(), entry, problem }
            };
            let entry = match path.to_str() {
                Some(path) => format!("{}/{path}", plan.skill.name()),
                None => return Err(refused(PackageProblem::Encoding.of_entry(path.to_string_lossy()))),
            };
            let checked = match kind {
                EntryKind::Other => Err(PackageProblem::SpecialFile),
                _ => tree.add(&entry, MemberKind::File, &limits),
            };
            checked.map_err(|problem| refused(problem.of_entry(&*entry)))?;
            plan.files.insert(entry, path);
        }
        Ok(plan)
    }

    fn write(self, target: &mut impl Write) -> Result<Packed, SkillError> {
        let Self { skill, root, limits, files, left_out } = self;
        let mut writer = ArchiveWriter::new(target);
        let mut total_bytes = 0_u64;
        for (entry, path) in &files {
            // A folder beneath which a link leads, or anything else than a file of the skill, is refused here.
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
            let permission = if file.is_executable()? { Permission::Executable } else { Permission::Plain };
            writer
                .add(entry, &content, permission, &limits)
                .map_err(|source| SkillError::Write { path: path.clone(), source })?;
        }
        let package_bytes = writer
            .finish()
            .map_err(|source| SkillError::Write { path: skill.root_dir().to_owned(), source })?;
        // Many long paths can make a package larger than the files in it.
        if package_bytes > limits.archive_bytes {
            return Err(SkillError::TooLarge {
                path: skill.root_dir().to_owned(),
                limit: limits.archive_bytes,
            });
        }
        let files = files.into_values().collect();
        Ok(Packed { skill, output: None, files, left_out, total_bytes, package_bytes })
    }
}

fn is_left_out(path: &Path) -> bool {
    path.starts_with(LEFT_OUT_AT_ROOT) && path.components().nth(1).is_some()
        || path.file_name().is_some_and(|name| name == LEFT_OUT_FILE)
        || path.extension().is_some_and(|extension| extension == LEFT_OUT_EXTENSION)
}
