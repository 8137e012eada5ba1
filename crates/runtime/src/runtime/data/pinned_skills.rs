//! The skills of sessions, pinned as they were when the sessions were opened.
//!
//! A skill is put into the tenant's store, and linked from there into a directory that is named after its digest. This
//! directory never changes. A session records the digest, and finds the directory by it. So the session works after a
//! restart, and after the original skill was changed or removed.
//!
//! A directory that is found is digested again, unless a live session of this process uses it. If a directory is damaged, the
//! next session that is opened with the same content replaces it.
//!
//! A skill may be edited between its discovery and its pinning. So the pinned copy is read again, and refused if it is
//! not the skill that was discovered. When no session of the tenant has a pinned skill, it is removed under the
//! exclusive tenant lock.
//!
//! State: `<tenant>/skills/DIGEST/NAME/…` on the disk, each complete or absent. A directory is built under another name,
//! synced and renamed. A crash leaves an incomplete directory `draft-…`, which is removed when the tenant's directory is
//! opened again.
//!
//! Sessions in memory pin skills in a directory of this process (`DataDir::workspace`), which is removed with the process.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use conjure_base::{Digest, lock};
use conjure_conversation::PinnedSkill;
use conjure_fs::{ensure_dir, ignore_absent, names_in, sync_dir};
use conjure_prompt::SessionSkill;
use conjure_sandbox::{DataDir, OwnedWorkspace, SandboxError, SandboxErrorKind};
use conjure_skill::{Mode, Skill};
use conjure_store::StoreErrorKind;

use crate::runtime::data::tenant_lock::ExclusiveGuard;
use crate::runtime::error::RuntimeError;

/// The pinned skills of a tenant.
#[derive(Debug)]
pub(crate) struct PinnedSkills {
    data: DataDir,
    dir: PathBuf,
    /// The skills of live sessions, each in memory once.
    known: Mutex<HashMap<Digest, Weak<SessionSkill>>>,
    /// Lets only one thread at a time move a skill to its final name.
    rename_lock: Mutex<()>,
    /// The directory of this process, if the skills end with the process.
    _process_dir: Option<OwnedWorkspace>,
}

impl PinnedSkills {
    /// The pinned skills in a tenant's data directory. Blocks.
    pub(crate) fn open(data: &DataDir) -> io::Result<Self> {
        let dir = data.path().join("skills");
        ensure_dir(&dir)?;
        Ok(Self::at(dir, data, None))
    }

    /// Pinned skills that end with this process. Blocks.
    pub(crate) fn temporary(data: &DataDir) -> Result<Self, SandboxError> {
        let process_dir = data.workspace()?;
        Ok(Self::at(process_dir.path().to_owned(), data, Some(process_dir)))
    }

    fn at(dir: PathBuf, data: &DataDir, process_dir: Option<OwnedWorkspace>) -> Self {
        let (known, rename_lock) = Default::default();
        Self { data: data.clone(), dir, known, rename_lock, _process_dir: process_dir }
    }

    /// Removes incomplete directories. No task may pin skills meanwhile. Blocks.
    pub(crate) fn remove_drafts(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("draft-") {
                // No session reads it, so it does no harm.
                if let Err(error) = fs::remove_dir_all(entry.path()) {
                    tracing::warn!(path = %entry.path().display(), %error, "an incomplete skill was not removed");
                }
            }
        }
        Ok(())
    }

    /// All pinned skills. Blocks.
    pub(crate) fn all(&self) -> Result<Vec<Digest>, RuntimeError> {
        let names = names_in(&self.dir).map_err(|error| RuntimeError::data(&self.dir, &error))?;
        Ok(names.iter().filter_map(|name| format!("sha256:{name}").parse().ok()).collect())
    }

    /// Removes a skill that no session has. Blocks.
    pub(crate) fn remove(&self, digest: &Digest, _: &ExclusiveGuard) -> Result<(), RuntimeError> {
        let name = digest.to_hex();
        // It is renamed first, so that under its final name a skill is never incomplete.
        let dead = self.dir.join(format!("draft-{name}"));
        let removed = ignore_absent(fs::rename(self.dir.join(name), &dead))
            .and_then(|renamed| renamed.map_or(Ok(()), |()| fs::remove_dir_all(&dead)));
        removed.map_err(|error| RuntimeError::data(&dead, &error))
    }

    /// Pins the current version of a skill. Blocks.
    pub(crate) fn pin(&self, skill: &Skill) -> Result<PinnedSkill, RuntimeError> {
        let name = skill.name().as_str();
        let failed = |source| RuntimeError::SkillPin { name: name.to_owned(), source };
        let tree = self.data.snapshot(skill.root_dir()).map_err(failed)?;
        let digest = *tree.digest();
        let target = self.dir_of(&digest);
        let pinned_path = target.join(name);
        if self.is_intact(&pinned_path, &digest) {
            check(skill, &pinned_path)?;
        } else {
            let draft = tempfile::Builder::new()
                .prefix("draft-")
                .tempdir_in(&self.dir)
                .map_err(|error| failed(of_io(&self.dir, &error)))?;
            let inner = draft.path().join(name);
            let open = || -> io::Result<File> {
                fs::create_dir(&inner)?;
                File::open(&inner)
            };
            let opened = open().map_err(|error| failed(of_io(&inner, &error)))?;
            self.data.store().link_tree(&tree, &opened).map_err(|error| failed(of_store(&error)))?;
            check(skill, &inner)?;
            sync_dirs(draft.path()).map_err(|error| failed(of_io(draft.path(), &error)))?;
            let _guard = lock(&self.rename_lock);
            let placed = match target.is_dir() {
                false => rename_new(draft.path(), &target),
                // Another thread was faster; its copy may be in use.
                true if self.is_intact(&pinned_path, &digest) => Ok(()),
                true => replace(draft.path(), &target, name),
            };
            let settled = placed.and_then(|()| sync_dir(&self.dir));
            settled.map_err(|error| failed(of_io(&target, &error)))?;
        }
        Ok(PinnedSkill { name: name.to_owned(), digest })
    }

    /// Whether a pinned skill is intact. If a live session uses it, it was checked before.
    fn is_intact(&self, path: &Path, digest: &Digest) -> bool {
        let known = lock(&self.known).get(digest).cloned();
        if known.is_some_and(|skill| skill.strong_count() > 0) {
            return path.is_dir();
        }
        path.is_dir() && self.data.snapshot(path).is_ok_and(|tree| tree.digest() == digest)
    }

    /// The pinned skill of this name and digest, checked to be intact. Blocks.
    pub(crate) fn find(&self, pinned: &PinnedSkill) -> Result<Arc<SessionSkill>, RuntimeError> {
        let PinnedSkill { name, digest } = pinned;
        let known = lock(&self.known).get(digest).and_then(Weak::upgrade);
        if let Some(skill) = known.filter(|skill| skill.name() == name) {
            return Ok(skill);
        }
        let path = self.dir_of(digest).join(name);
        let lost =
            |what| RuntimeError::SkillLost { name: name.clone(), digest: *digest, what, path: path.clone() };
        let tree = self.data.snapshot(&path).map_err(|error| match error.kind() {
            SandboxErrorKind::NotFound => lost("is not there any more"),
            _ => RuntimeError::SkillPin { name: name.clone(), source: error },
        })?;
        if tree.digest() != digest {
            return Err(lost("was changed"));
        }
        let skill = Skill::load(&path, Mode::Lenient).map_err(|_| lost("cannot be read"))?;
        let skill = Arc::new(SessionSkill::pinned(Arc::new(skill), *digest));
        let mut known = lock(&self.known);
        known.retain(|_, skill| skill.strong_count() > 0);
        known.insert(*digest, Arc::downgrade(&skill));
        Ok(skill)
    }

    fn dir_of(&self, digest: &Digest) -> PathBuf {
        self.dir.join(digest.to_hex())
    }
}

/// Checks that a directory holds the skill that was discovered, and that it is still as valid as it was.
fn check(found: &Skill, dir: &Path) -> Result<(), RuntimeError> {
    let changed = |reason: String| RuntimeError::SkillChanged {
        name: found.name().to_string(),
        path: found.root_dir().to_owned(),
        // The user repairs the skill in the directory where it was discovered, so the reason names that directory.
        reason: reason.replace(&*dir.to_string_lossy(), &found.root_dir().to_string_lossy()),
    };
    let now = Skill::load(dir, Mode::Lenient).map_err(|error| changed(error.to_string()))?;
    if now.name() != found.name() {
        return Err(changed(format!("it is called `{}` now", now.name())));
    }
    match now.diagnostics().first() {
        Some(worse) if found.diagnostics().is_empty() => Err(changed(worse.to_string())),
        _ => Ok(()),
    }
}

/// Waits until the names in a directory and its subdirectories are on the disk. The store synced their contents.
fn sync_dirs(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_dirs(&entry.path())?;
        }
    }
    sync_dir(dir)
}

/// Renames a directory. If the name is taken, the existing directory stays, since it has the same content.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Replaces a damaged skill. The damaged one is removed with the draft's directory. Sandboxes that use it have copies of
/// their own.
fn replace(draft: &Path, target: &Path, name: &str) -> io::Result<()> {
    ignore_absent(fs::rename(target.join(name), draft.join("damaged")))?;
    rename_new(&draft.join(name), &target.join(name))?;
    sync_dir(target)
}

fn of_io(path: &Path, error: &io::Error) -> SandboxError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SandboxErrorKind::NoSpace,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, format!("failed to write `{}`: {error}", path.display()))
}

fn of_store(error: &conjure_store::StoreError) -> SandboxError {
    let kind = match error.kind() {
        StoreErrorKind::NoSpace => SandboxErrorKind::NoSpace,
        _ => SandboxErrorKind::Io,
    };
    SandboxError::new(kind, error.to_string())
}
