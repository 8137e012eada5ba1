//! The files of a skill beside its `SKILL.md`. They are listed, read and digested on demand, always beneath the
//! handle of its directory.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use conjure_base::{Digest, DigestHasher};

use crate::error::SkillError;
use crate::scan::dir_handle::{DirHandle, EntryKind, entries};
use crate::skill::{SKILL_FILES, Skill};

/// The maximum size that [`Skill::read_resource`] reads, in bytes.
pub const MAX_RESOURCE_BYTES: u64 = 32 * 1024 * 1024;

/// The maximum number of files and directories of a skill.
const MAX_ENTRIES: usize = 20_000;

/// The maximum depth of a skill's directories.
const MAX_DEPTH: usize = 32;

/// Directories without resources: those of version control, and those that tools create. Their files still count in
/// the digest, except for version control.
const TOOL_DIRS: [&str; 3] = [VERSION_CONTROL, "node_modules", "__pycache__"];
const VERSION_CONTROL: &str = ".git";

/// A file of a skill.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    path: PathBuf,
    size: u64,
}

impl Resource {
    /// Its path, relative to the skill's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }
}

/// The start of a file of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceStart {
    /// Its first bytes: as many as requested, or fewer.
    pub bytes: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
    /// Whether its owner may execute it.
    pub is_executable: bool,
}

/// The files of a skill without its `SKILL.md`, in groups, each sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Those in `scripts/`.
    pub scripts: Vec<Resource>,
    /// Those in `references/`.
    pub references: Vec<Resource>,
    /// Those in `assets/`.
    pub assets: Vec<Resource>,
    /// All others.
    pub other: Vec<Resource>,
}

impl Resources {
    /// All files, group by group.
    pub fn iter(&self) -> impl Iterator<Item = &Resource> {
        self.scripts.iter().chain(&self.references).chain(&self.assets).chain(&self.other)
    }

    /// How many files there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.scripts.len() + self.references.len() + self.assets.len() + self.other.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The digests of a skill's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillDigests {
    files: BTreeMap<PathBuf, Digest>,
}

impl SkillDigests {
    /// The digest of each file by its path, relative to the skill's directory.
    #[must_use]
    pub const fn files(&self) -> &BTreeMap<PathBuf, Digest> {
        &self.files
    }

    /// The digest of the skill: SHA-256 over the sorted lines `path\0hex\n` of all files.
    #[must_use]
    pub fn skill(&self) -> Digest {
        let mut lines: Vec<_> =
            self.files.iter().map(|(path, digest)| (path.as_os_str().as_bytes(), digest)).collect();
        lines.sort_unstable();
        let mut hasher = DigestHasher::new();
        for (path, digest) in lines {
            hasher.update(path);
            hasher.update(b"\0");
            hasher.update(digest.to_hex().as_bytes());
            hasher.update(b"\n");
        }
        hasher.finish()
    }
}

impl Skill {
    /// Lists its files. A link counts if it leads to a regular file within the skill. Pipes, devices and directories
    /// of tools (`.git`, `node_modules`, `__pycache__`) do not count.
    ///
    /// # Errors
    /// When a directory cannot be listed, or there are more than 20,000 entries or 32 levels.
    pub fn resources(&self) -> Result<Resources, SkillError> {
        let root = DirHandle::open(self.root_dir())?;
        let mut resources = Resources::default();
        walk(&root, self.root_dir(), &TOOL_DIRS, |path, kind| {
            let is_skill_file = SKILL_FILES.iter().any(|name| path == Path::new(name));
            if is_skill_file || kind == EntryKind::Other {
                return Ok(());
            }
            let size = match root.open_file(&path) {
                Ok(file) => file.size(),
                Err(SkillError::PathNotAllowed { .. } | SkillError::FileNotFound { .. }) => return Ok(()),
                // It exists. Reading it reports why it cannot be read.
                Err(SkillError::PermissionDenied { .. }) => 0,
                Err(error) => return Err(error),
            };
            let group = match path.components().next().and_then(|first| first.as_os_str().to_str()) {
                _ if path.components().nth(1).is_none() => &mut resources.other,
                Some("scripts") => &mut resources.scripts,
                Some("references") => &mut resources.references,
                Some("assets") => &mut resources.assets,
                _ => &mut resources.other,
            };
            group.push(Resource { path, size });
            Ok(())
        })?;
        for group in
            [&mut resources.scripts, &mut resources.references, &mut resources.assets, &mut resources.other]
        {
            group.sort();
        }
        Ok(resources)
    }

    /// Reads a file of the skill, by its path relative to the skill's directory.
    ///
    /// # Errors
    /// When it does not exist, leads out of the directory (by `..`, as an absolute path, or through a link), is not a plain
    /// file, cannot be read, or is larger than [`MAX_RESOURCE_BYTES`].
    pub fn read_resource(&self, relative: impl AsRef<Path>) -> Result<Vec<u8>, SkillError> {
        self.read_resource_up_to(relative, MAX_RESOURCE_BYTES)
    }

    /// Like [`Skill::read_resource`], with another limit in bytes.
    ///
    /// # Errors
    /// As [`Skill::read_resource`].
    pub fn read_resource_up_to(&self, relative: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, SkillError> {
        DirHandle::open(self.root_dir())?.open_file(relative.as_ref())?.read_all(limit)
    }

    /// Reads the start of a file of the skill, whatever its size.
    ///
    /// # Errors
    /// As [`Skill::read_resource`], except for the size.
    pub fn resource_start(
        &self,
        relative: impl AsRef<Path>,
        count: usize,
    ) -> Result<ResourceStart, SkillError> {
        let mut file = DirHandle::open(self.root_dir())?.open_file(relative.as_ref())?;
        let mut bytes = vec![0; count];
        let mut filled = 0;
        loop {
            match file.read_some(&mut bytes[filled..])? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(ResourceStart { bytes, size: file.size(), is_executable: file.is_executable() })
    }

    /// Digests all its files as they are now, except for version control (`.git`). A link to a regular file within
    /// the skill counts with that file's content, any other link with its target path.
    ///
    /// # Errors
    /// When a file or directory cannot be read, or there are more than 20,000 entries or 32 levels.
    pub fn digests(&self) -> Result<SkillDigests, SkillError> {
        let root = DirHandle::open(self.root_dir())?;
        let mut files = BTreeMap::new();
        walk(&root, self.root_dir(), &[VERSION_CONTROL], |path, kind| {
            let digest = match (kind, digest_of(&root, &path)) {
                (EntryKind::Other, _) => return Ok(()),
                (
                    EntryKind::Link,
                    Err(SkillError::PathNotAllowed { .. } | SkillError::FileNotFound { .. }),
                ) => Digest::of_bytes(&root.read_link(&path)?),
                (_, digest) => digest?,
            };
            files.insert(path, digest);
            Ok(())
        })?;
        Ok(SkillDigests { files })
    }

    /// Digests the skill as it is now. See [`SkillDigests::skill`].
    ///
    /// # Errors
    /// As [`Skill::digests`].
    pub fn digest(&self) -> Result<Digest, SkillError> {
        self.digests().map(|digests| digests.skill())
    }
}

fn digest_of(root: &DirHandle, path: &Path) -> Result<Digest, SkillError> {
    let mut file = root.open_file(path)?;
    let mut hasher = DigestHasher::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read_some(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// Visits everything beneath a directory but directories, each with its relative path. Does not follow links to
/// directories.
pub(crate) fn walk(
    root: &DirHandle,
    root_dir: &Path,
    skipped: &[&str],
    mut visit: impl FnMut(PathBuf, EntryKind) -> Result<(), SkillError>,
) -> Result<(), SkillError> {
    let mut pending = vec![(PathBuf::new(), 0)];
    let mut count = 0;
    while let Some((dir, depth)) = pending.pop() {
        let relative = if dir.as_os_str().is_empty() { Path::new(".") } else { &dir };
        let handle = root.open_dir(relative)?;
        for entry in entries(&handle, &root_dir.join(&dir))? {
            count += 1;
            if count > MAX_ENTRIES || depth > MAX_DEPTH {
                let reason =
                    format!("it has more than {MAX_ENTRIES} files and directories, or {MAX_DEPTH} levels");
                return Err(SkillError::InvalidStructure { path: root_dir.to_owned(), reason });
            }
            let path = dir.join(&entry.name);
            match entry.kind {
                EntryKind::Dir if skipped.iter().any(|skipped| entry.name == *skipped) => {}
                EntryKind::Dir => pending.push((path, depth + 1)),
                kind => visit(path, kind)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
