//! The skills that sessions were opened with, as they were then.
//!
//! A skill is put into the tenant's store, so that one digest stands for all of its files, and linked from there into a folder
//! named after that digest, which nobody changes any more. A session records the digest and finds the folder by it: here, and
//! after a restart, whatever became of the skill since. What is found is digested anew, but where a live session of this process has
//! it; what is damaged is put in order by the next session that is opened with the same content.
//!
//! Between being found and being kept, a skill may have been edited: what is kept is read anew, and refused where it is not the
//! skill any more that was found. Skills are removed when no session of the tenant has them, and nobody opens one (`gate`).
//!
//! State: `<tenant>/skills/DIGEST/NAME/…` on the disk, each whole or absent: a folder is put together elsewhere and renamed,
//! when all of it is on the disk. After a crash a half one is left as `draft-…`, and removed when the folder is opened again.
//! Sessions that are kept in memory have theirs in a place of the process (`DataFolder::workspace`), which goes with it.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use conjure_base::Digest;
use conjure_conversation::PinnedSkill;
use conjure_prompt::SessionSkill;
use conjure_sandbox::{DataFolder, PrivateWorkspace, SandboxError, SandboxErrorKind};
use conjure_skill::{Mode, Skill};
use conjure_store::StoreErrorKind;

use super::error::RuntimeError;
use super::gate::Alone;

/// The pinned skills of a tenant.
#[derive(Debug)]
pub(crate) struct Pins {
    data: DataFolder,
    folder: PathBuf,
    /// Those that live sessions have: each is in memory once, with what was read of it.
    known: Mutex<HashMap<Digest, Weak<SessionSkill>>>,
    /// One at a time puts one in its place.
    placing: Mutex<()>,
    /// What the folder goes with, where it goes with this process.
    _place: Option<PrivateWorkspace>,
}

impl Pins {
    /// Those in a tenant's data folder, which stay. Blocks.
    pub(crate) fn open(data: &DataFolder) -> io::Result<Self> {
        let folder = data.path().join("skills");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self {
            data: data.clone(),
            folder,
            known: Mutex::default(),
            placing: Mutex::default(),
            _place: None,
        })
    }

    /// Those of sessions that end with this process. Blocks.
    pub(crate) fn temporary(data: &DataFolder) -> Result<Self, SandboxError> {
        let place = data.workspace()?;
        let folder = place.path().to_owned();
        Ok(Self {
            data: data.clone(),
            folder,
            known: Mutex::default(),
            placing: Mutex::default(),
            _place: Some(place),
        })
    }

    /// Removes what was left half made, or half removed. Nobody may keep skills meanwhile. Blocks.
    pub(crate) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("draft-") {
                // Nobody looks into it: it is in nobody's way.
                if let Err(error) = fs::remove_dir_all(entry.path()) {
                    tracing::warn!(path = %entry.path().display(), %error, "half a skill is left");
                }
            }
        }
        Ok(())
    }

    /// All that are kept. Blocks.
    pub(crate) fn all(&self) -> Result<Vec<Digest>, RuntimeError> {
        let unusable = |error: io::Error| RuntimeError::data(&self.folder, &error);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(unusable)? {
            let name = entry.map_err(unusable)?.file_name();
            found.extend(name.to_str().and_then(|name| format!("sha256:{name}").parse::<Digest>().ok()));
        }
        Ok(found)
    }

    /// Removes one that no session has. Blocks.
    pub(crate) fn remove(&self, digest: &Digest, _: &Alone) -> Result<(), RuntimeError> {
        let name = digest.to_hex();
        // Never half of it under its name.
        let dead = self.folder.join(format!("draft-{name}"));
        let removed = match fs::rename(self.folder.join(name), &dead) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => fs::remove_dir_all(&dead),
        };
        removed.map_err(|error| RuntimeError::data(&dead, &error))
    }

    /// Keeps a skill as it is now. Blocks.
    pub(crate) fn pin(&self, skill: &Skill) -> Result<PinnedSkill, RuntimeError> {
        let name = skill.name().as_str();
        let failed = |source| RuntimeError::Pin { name: name.to_owned(), source };
        let tree = self.data.snapshot(skill.root_dir()).map_err(failed)?;
        let digest = *tree.digest();
        let target = self.folder_of(&digest);
        let kept = target.join(name);
        if self.is_whole(&kept, &digest) {
            check(skill, &kept)?;
        } else {
            let draft = tempfile::Builder::new()
                .prefix("draft-")
                .tempdir_in(&self.folder)
                .map_err(|error| failed(of_io(&self.folder, &error)))?;
            let inner = draft.path().join(name);
            let open = || -> io::Result<File> {
                fs::create_dir(&inner)?;
                File::open(&inner)
            };
            let opened = open().map_err(|error| failed(of_io(&inner, &error)))?;
            self.data.store().link_tree(&tree, &opened).map_err(|error| failed(of_store(&error)))?;
            check(skill, &inner)?;
            sync_folders(draft.path()).map_err(|error| failed(of_io(draft.path(), &error)))?;
            let _one = self.placing.lock().unwrap_or_else(PoisonError::into_inner);
            let placed = match target.is_dir() {
                false => rename_new(draft.path(), &target),
                // Somebody else was faster, who may be reading it by now.
                true if self.is_whole(&kept, &digest) => Ok(()),
                true => replace(draft.path(), &target, name),
            };
            let settled = placed.and_then(|()| File::open(&self.folder)?.sync_all());
            settled.map_err(|error| failed(of_io(&target, &error)))?;
        }
        Ok(PinnedSkill { name: name.to_owned(), digest })
    }

    /// Whether a kept skill is what it should be. What a live session has was looked at for it.
    fn is_whole(&self, path: &Path, digest: &Digest) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned();
        if known.is_some_and(|skill| skill.strong_count() > 0) {
            return path.is_dir();
        }
        path.is_dir() && self.data.snapshot(path).is_ok_and(|tree| tree.digest() == digest)
    }

    /// The skill of this name and digest, found to be what it was. Blocks.
    pub(crate) fn find(&self, pinned: &PinnedSkill) -> Result<Arc<SessionSkill>, RuntimeError> {
        let PinnedSkill { name, digest } = pinned;
        let known =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).get(digest).and_then(Weak::upgrade);
        if let Some(skill) = known.filter(|skill| skill.name() == name) {
            return Ok(skill);
        }
        let path = self.folder_of(digest).join(name);
        let lost =
            |what| RuntimeError::SkillLost { name: name.clone(), digest: *digest, what, path: path.clone() };
        let tree = self.data.snapshot(&path).map_err(|error| match error.kind() {
            SandboxErrorKind::NotFound => lost("is not there any more"),
            _ => RuntimeError::Pin { name: name.clone(), source: error },
        })?;
        if tree.digest() != digest {
            return Err(lost("was changed"));
        }
        let skill = Skill::load(&path, Mode::Lenient).map_err(|_| lost("cannot be read"))?;
        let skill = Arc::new(SessionSkill::pinned(Arc::new(skill), *digest));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, skill| skill.strong_count() > 0);
        known.insert(*digest, Arc::downgrade(&skill));
        Ok(skill)
    }

    fn folder_of(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.to_hex())
    }
}

/// Looks whether a folder still holds the skill that was found, as good as it was.
fn check(found: &Skill, folder: &Path) -> Result<(), RuntimeError> {
    let changed = |reason: String| RuntimeError::SkillChanged {
        name: found.name().to_string(),
        path: found.root_dir().to_owned(),
        // It is mended where it was found.
        reason: reason.replace(&*folder.to_string_lossy(), &found.root_dir().to_string_lossy()),
    };
    let now = Skill::load(folder, Mode::Lenient).map_err(|error| changed(error.to_string()))?;
    if now.name() != found.name() {
        return Err(changed(format!("it is called `{}` now", now.name())));
    }
    match now.diagnostics().first() {
        Some(worse) if found.diagnostics().is_empty() => Err(changed(worse.to_string())),
        _ => Ok(()),
    }
}

/// Waits until the names in a folder and those below it are on the disk. Their contents are: the store saw to that.
fn sync_folders(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Gives a folder its name, unless somebody else was faster: then the other one is as good.
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

/// Puts a skill in the place of a damaged one, which goes with the draft's folder. Sandboxes that have the damaged one have it
/// by copies of their own.
fn replace(draft: &Path, target: &Path, name: &str) -> io::Result<()> {
    match fs::rename(target.join(name), draft.join("damaged")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        moved => moved?,
    }
    rename_new(&draft.join(name), &target.join(name))?;
    File::open(target)?.sync_all()
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
