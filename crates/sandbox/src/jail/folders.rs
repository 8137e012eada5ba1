//! The context's folders in a jail: the workspace, what may be read besides, what may be written besides.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use conjure_guest::protocol::{
    Access, Bind, Content, Links, Missing, Owner, Place, PlaceKind, Root, TakeBack,
};

use super::identity::Runner;
use super::root::{OUTPUT, WORKSPACE, place};
use crate::context::{ExecutionContext, SharedFolder};
use crate::data::DataFolder;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::{absent, folder, text};
use crate::places;
use crate::provision::{Consent, Provision, Shelf};
use crate::types::{ArtifactFolder, Layout};

/// What a folder of the host's may not take the place of.
pub(crate) const RESERVED: [&str; 19] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/dev",
    "/proc",
    "/sys",
    "/run",
    "/tmp",
    "/var",
    "/home/sandbox",
    WORKSPACE,
    OUTPUT,
    Shelf::Skills.path(),
    Shelf::Artifacts.path(),
];

/// What nothing of the host's is shown in besides.
pub(crate) const CLOSED: [&str; 4] = ["/dev", "/etc", "/proc", "/sys"];

/// The folders of one jail.
#[derive(Debug)]
pub(crate) struct Folders {
    pub(crate) places: Vec<Place>,
    pub(crate) roots: Vec<Root>,
    pub(crate) layout: Layout,
    /// Where commands may write, beside what is the jail's own.
    pub(crate) writable: Vec<String>,
    /// What a crashed host left with its jail's user, to be taken back first.
    pub(crate) left: Vec<TakeBack>,
    /// The workspace's real path.
    pub(crate) workspace: PathBuf,
    /// What belongs on the shelves, where those are not on this machine.
    pub(crate) provisions: Vec<Provision>,
}

/// Where a jail finds what it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shelves<'a> {
    pub(crate) data: &'a DataFolder,
    /// `None`: its shelves are not on this machine.
    pub(crate) place: Option<&'a places::Place>,
}

impl Folders {
    /// Looks at the folders that `context` names, for a jail that runs as `runner`, and puts those that belong on its
    /// shelves there, as they are now; blocks.
    pub(crate) fn of(
        context: &ExecutionContext,
        runner: Runner,
        shelves: Shelves<'_>,
    ) -> Result<Self, SandboxError> {
        let workspace = workspace(&context.workspace)?;
        shelves.data.check_writable(&workspace, "workspace")?;
        let mut folders = Self {
            places: Vec::new(),
            roots: Vec::new(),
            layout: layout(context)?,
            writable: Vec::new(),
            left: Vec::new(),
            workspace: workspace.clone(),
            provisions: Vec::new(),
        };
        folders.add(runner, &workspace, WORKSPACE, Access::ReadWrite)?;
        let allowed = allowed(context)?;
        allowed.iter().try_for_each(|real| shelves.data.check_writable(real, "allowed path"))?;
        for shelf in Shelf::ALL {
            folders.add_shelf(shelf, shelves)?;
        }
        for shared in &context.read_only {
            let real = folder("read-only folder", &shared.host)?;
            let target = inner(&shared.target)?;
            let on_shelf = shelved(shared)?;
            let kept = if on_shelf.is_some() { Kept::Copied } else { Kept::Shown };
            kept.check(&real, &shared.host, &workspace, "workspace", &context.workspace)?;
            for (given, writable) in context.allowed_paths.iter().zip(&allowed) {
                kept.check(&real, &shared.host, writable, "allowed path", given)?;
            }
            match on_shelf {
                Some((shelf, name)) => {
                    let tree = shelves.data.snapshot(&real)?;
                    let provision = Provision::tree(shelf, name, shelves.data.store(), tree);
                    match shelves.place {
                        Some(place) => place.provide(&provision, &Consent::default())?,
                        None => folders.provisions.push(provision),
                    }
                }
                None => folders.add(runner, &real, &target, Access::ReadOnly)?,
            }
        }
        for real in allowed {
            let target = text(&real)?;
            folders.add(runner, &real, &target, Access::ReadWrite)?;
        }
        Ok(folders)
    }

    fn add(&mut self, runner: Runner, host: &Path, target: &str, access: Access) -> Result<(), SandboxError> {
        let source = text(host)?;
        let found = fs::metadata(host).map_err(|error| absent("folder", host, &error))?;
        let left = runner.left(&source, found.uid());
        let owner = if left.is_some() { runner.own() } else { runner.owner(found.uid(), found.gid()) };
        self.left.extend(left);
        self.bind(source, target, access, owner);
        if access == Access::ReadWrite {
            self.writable.push(target.to_owned());
        }
        Ok(())
    }

    fn add_shelf(&mut self, shelf: Shelf, shelves: Shelves<'_>) -> Result<(), SandboxError> {
        let Some(place) = shelves.place else {
            self.roots.push(Root { path: shelf.path().to_owned(), access: Access::ReadOnly });
            return Ok(());
        };
        let source = text(&place.shelf(shelf))?;
        // Everybody may read what is on it.
        self.bind(source, shelf.path(), Access::ReadOnly, Owner::Kept);
        Ok(())
    }

    fn bind(&mut self, source: String, target: &str, access: Access, owner: Owner) {
        let bind = Bind {
            source,
            access,
            content: Content::Programs,
            // It was resolved here; what is a link by then was put there by somebody else.
            links: Links::Refused,
            missing: Missing::Refused,
            owner,
        };
        self.places.push(place(target, PlaceKind::Bind(bind)));
        self.roots.push(Root { path: target.to_owned(), access });
    }
}

/// What a sandbox that was made for nobody yet is to be given for a context.
#[derive(Debug)]
pub(crate) struct Belongings {
    /// The workspace's real path.
    pub(crate) workspace: PathBuf,
    /// What belongs on the shelves.
    pub(crate) provisions: Vec<Provision>,
    pub(crate) layout: Layout,
}

impl Belongings {
    /// Looks at the folders that `context` names, as [`Folders::of`] does, and puts those that belong on shelves into the
    /// store, as they are now; blocks.
    ///
    /// # Errors
    /// As [`Folders::of`]; and `Unsupported` for a workspace that is not a session's own, in this data folder.
    pub(crate) fn of(context: &ExecutionContext, data: &DataFolder) -> Result<Self, SandboxError> {
        let real = workspace(&context.workspace)?;
        if !data.is_own_workspace(&real) {
            let message = "only the workspace of a session's own can be handed over";
            return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
        }
        let mut provisions = Vec::with_capacity(context.read_only.len());
        for shared in &context.read_only {
            let Some((shelf, name)) = shelved(shared)? else {
                let message = "a folder beside the shelves is not given to a sandbox that runs";
                return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
            };
            let folder = folder("read-only folder", &shared.host)?;
            Kept::Copied.check(&folder, &shared.host, &real, "workspace", &context.workspace)?;
            let tree = data.snapshot(&folder)?;
            provisions.push(Provision::tree(shelf, name, data.store(), tree));
        }
        Ok(Self { workspace: real, provisions, layout: layout(context)? })
    }
}

/// Whether all that `context` has for reading only belongs on shelves.
pub(crate) fn has_shelves_only(context: &ExecutionContext) -> bool {
    context.read_only.iter().all(|shared| shelved(shared).is_ok_and(|shelf| shelf.is_some()))
}

/// Where a sandbox with a file system of its own has the folders that `context` names; blocks.
pub(crate) fn layout(context: &ExecutionContext) -> Result<Layout, SandboxError> {
    let mut read_only = Vec::new();
    for SharedFolder { host, target } in &context.read_only {
        let real = folder("read-only folder", host)?;
        inner(target)?;
        if *host != real {
            read_only.push((real, target.clone()));
        }
        read_only.push((host.clone(), target.clone()));
    }
    read_only.extend(allowed(context)?.into_iter().map(|real| (real.clone(), real)));
    let artifacts = ArtifactFolder::At(Shelf::Artifacts.path().into());
    Ok(Layout { workspace: WORKSPACE.into(), read_only, artifacts })
}

/// The real paths that may be written besides, at their own places inside.
fn allowed(context: &ExecutionContext) -> Result<Vec<PathBuf>, SandboxError> {
    let mut allowed = Vec::new();
    for given in &context.allowed_paths {
        let real = fs::canonicalize(given).map_err(|error| absent("allowed path", given, &error))?;
        let takes = RESERVED.into_iter().find(|reserved| Path::new(reserved).starts_with(&real));
        let lies_in = CLOSED.into_iter().find(|closed| real.starts_with(closed));
        if let Some(reserved) = takes.or(lies_in) {
            return Err(refused(format!(
                "the allowed path `{}` would take the place of the sandbox's own `{reserved}`; choose another folder",
                real.display()
            )));
        }
        allowed.push(real);
    }
    Ok(allowed)
}

/// Which shelf a folder belongs on, by its place in the sandbox, and under which name; `None`: on none.
fn shelved(shared: &SharedFolder) -> Result<Option<(Shelf, &str)>, SandboxError> {
    let target = &shared.target;
    let Some(shelf) = Shelf::ALL.into_iter().find(|shelf| target.starts_with(shelf.path())) else {
        return Ok(None);
    };
    let name = target.file_name().and_then(|name| name.to_str());
    match name.filter(|_| target.parent() == Some(Path::new(shelf.path()))) {
        Some(name) => Ok(Some((shelf, name))),
        None => Err(SandboxError::new(
            SandboxErrorKind::BadRequest,
            format!("`{}` is no place for a folder: one of `{}` has a name", target.display(), shelf.path()),
        )),
    }
}

/// What a sandbox has of a folder for reading only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// What it held when the sandbox was made.
    Copied,
    /// The folder itself.
    Shown,
}

impl Kept {
    /// Refuses what could be changed by another name. What was copied cannot; but to work in a skill would be to add to
    /// it, which nobody means.
    pub(crate) fn check(
        self,
        real: &Path,
        given: &Path,
        writable: &Path,
        what: &str,
        writable_given: &Path,
    ) -> Result<(), SandboxError> {
        let how = if writable.starts_with(real) {
            "lies in"
        } else if real.starts_with(writable) && self == Self::Shown {
            "contains"
        } else {
            return Ok(());
        };
        Err(refused(format!(
            "the {what} `{}` {how} the read-only folder `{}`, which could then be changed; choose another {what}",
            writable_given.display(),
            given.display()
        )))
    }
}

/// The real path of the workspace, which must be a folder, and none of its path a link: that could lead elsewhere tomorrow, or by the time
/// at which the folder is mounted.
pub(super) fn workspace(given: &Path) -> Result<PathBuf, SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(CWD, given, flags, Mode::empty(), resolve).map_err(|errno| match errno {
        Errno::LOOP => refused(format!(
            "a symbolic link stands in the path of the workspace `{}`; give the folder's real path",
            given.display()
        )),
        Errno::NOTDIR if given.exists() => {
            let message = format!("the workspace `{}` is not a folder", given.display());
            SandboxError::new(SandboxErrorKind::WrongFileType, message)
        }
        other => absent("workspace", given, &other.into()),
    })?;
    // The path of what was opened, not of what the given path leads to by now.
    let real = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let real = real.map_err(|error| absent("workspace", given, &error))?;
    if real.parent().is_none() {
        return Err(refused("the workspace `/` is the whole machine; choose a folder".to_owned()));
    }
    Ok(real)
}

/// A path inside, as the guest takes it.
pub(crate) fn inner(path: &Path) -> Result<String, SandboxError> {
    let mut parts = path.components();
    let is_plain = parts.next() == Some(Component::RootDir)
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)));
    if is_plain {
        return text(path);
    }
    Err(SandboxError::new(
        SandboxErrorKind::BadRequest,
        format!("`{}` is no place in a sandbox: an absolute path without `..` is needed", path.display()),
    ))
}

pub(crate) fn refused(message: String) -> SandboxError {
    SandboxError::new(SandboxErrorKind::PathNotAllowed, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SharedFolder;

    fn of(context: &ExecutionContext) -> Result<Folders, SandboxError> {
        let data = DataFolder::temporary().unwrap();
        let place = data.sandboxes().make().unwrap();
        Folders::of(context, Runner::choose(), Shelves { data: &data, place: Some(&place) })
    }

    fn refusal(context: &ExecutionContext) -> String {
        of(context).unwrap_err().to_string()
    }

    #[test]
    fn a_workspace_is_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (skill, inner, link) =
            (folder.path().join("skill"), folder.path().join("skill/work"), folder.path().join("link"));
        fs::create_dir_all(&inner).unwrap();
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        let around = folder.path().join("around");
        std::os::unix::fs::symlink(&skill, &around).unwrap();
        for given in [link, around.join("work")] {
            assert!(refusal(&ExecutionContext::new(&given)).contains("a symbolic link stands in the path"));
        }
        assert!(refusal(&ExecutionContext::new(folder.path().join("none"))).contains("cannot be used"));
        assert!(refusal(&ExecutionContext::new("/")).contains("the whole machine"));
        let read_only = vec![SharedFolder::new(&skill, "/mnt/skills/one")];
        let within = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(&inner) };
        assert!(refusal(&within).contains("lies in the read-only folder"));
        let same = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(&skill) };
        assert!(refusal(&same).contains("lies in the read-only folder"));
        let around =
            ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(folder.path()) };
        // It is a snapshot that the sandbox has.
        assert!(of(&around).is_ok());
        let shown = vec![SharedFolder::new(&skill, "/mnt/one")];
        let around = ExecutionContext { read_only: shown, ..ExecutionContext::new(folder.path()) };
        assert!(refusal(&around).contains("contains the read-only folder"));
        let other = tempfile::tempdir().unwrap();
        let allowed_paths = vec![inner];
        let allowed = ExecutionContext { read_only, allowed_paths, ..ExecutionContext::new(other.path()) };
        assert!(refusal(&allowed).contains("the allowed path"), "{}", refusal(&allowed));
    }

    #[test]
    fn nothing_takes_the_place_of_what_is_the_sandboxs_own() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/", "/usr", "/home", "/mnt", "/etc", "/proc/self", "/dev/shm"] {
            let allowed_paths = vec![PathBuf::from(path)];
            let context = ExecutionContext { allowed_paths, ..ExecutionContext::new(folder.path()) };
            if Path::new(path).is_dir() {
                assert!(refusal(&context).contains("the sandbox's own"), "{path}");
            }
        }
        let host = tempfile::tempdir().unwrap();
        let shared = |target: &str| {
            let read_only = vec![SharedFolder::new(host.path(), target)];
            ExecutionContext { read_only, ..ExecutionContext::new(folder.path()) }
        };
        for target in ["mnt/skills", "/mnt/../etc", "/", ""] {
            assert!(refusal(&shared(target)).contains("is no place in a sandbox"), "{target}");
        }
        for target in ["/mnt/skills", "/mnt/skills/a/b", "/artifacts"] {
            assert!(refusal(&shared(target)).contains("is no place for a folder"), "{target}");
        }
        let good = of(&shared("/mnt/skills/one")).unwrap();
        let inside = good.layout.sandbox_path(&host.path().join("SKILL.md"));
        assert_eq!(inside, Some("/mnt/skills/one/SKILL.md".into()));
        let mut twice = shared("/mnt/skills/one");
        twice.read_only.push(twice.read_only[0].clone());
        assert_eq!(of(&twice).unwrap_err().kind(), SandboxErrorKind::Exists);
    }

    #[test]
    fn what_is_the_host_s_own_is_not_for_commands_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(&folder.path().join("data")).unwrap();
        let place = data.sandboxes().make().unwrap();
        let shelves = Shelves { data: &data, place: Some(&place) };
        let of = |context: &ExecutionContext| Folders::of(context, Runner::choose(), shelves);
        let own = data.workspace().unwrap();
        assert!(of(&ExecutionContext::new(own.path())).is_ok());
        let others = [folder.path().to_owned(), data.path().to_owned(), data.store().root().to_owned()];
        for path in others.iter().chain([&place.output(), &own.path().join("..")]) {
            let error = of(&ExecutionContext::new(path)).unwrap_err();
            assert!(error.to_string().contains("the data folder"), "{error}");
            let allowed_paths = vec![path.clone()];
            let error = of(&ExecutionContext { allowed_paths, ..ExecutionContext::new(own.path()) });
            assert!(error.unwrap_err().to_string().contains("the data folder"));
        }
    }
}
