//! The context's folders in a jail: the workspace, what may be read besides, what may be written besides.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use conjure_guest::protocol::{Access, Bind, Content, Links, Missing, Place, PlaceKind, Root, TakeBack};

use super::identity::Runner;
use super::root::{OUTPUT, WORKSPACE, place};
use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::{absent, folder, text};
use crate::types::Layout;

/// What a folder of the host's may not take the place of.
const RESERVED: [&str; 18] = [
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
    "/mnt/skills",
];

/// What nothing of the host's is shown in besides.
const CLOSED: [&str; 4] = ["/dev", "/etc", "/proc", "/sys"];

/// The folders of one jail.
#[derive(Debug)]
pub(super) struct Folders {
    pub(super) places: Vec<Place>,
    pub(super) roots: Vec<Root>,
    pub(super) layout: Layout,
    /// Where commands may write, beside what is the jail's own.
    pub(super) writable: Vec<String>,
    /// What a crashed host left with its jail's user, to be taken back first.
    pub(super) left: Vec<TakeBack>,
}

impl Folders {
    /// Looks at the folders that `context` names, for a jail that runs as `runner`; blocks.
    pub(super) fn of(context: &ExecutionContext, runner: Runner) -> Result<Self, SandboxError> {
        let workspace = workspace(&context.workspace)?;
        let mut folders = Self {
            places: Vec::new(),
            roots: Vec::new(),
            layout: Layout { workspace: WORKSPACE.into(), read_only: Vec::new() },
            writable: Vec::new(),
            left: Vec::new(),
        };
        folders.add(runner, &workspace, WORKSPACE, Access::ReadWrite)?;
        let allowed = allowed(context)?;
        for shared in &context.read_only {
            let real = folder("read-only folder", &shared.host)?;
            fixed(&real, &shared.host, &workspace, "workspace", &context.workspace)?;
            for (given, writable) in context.allowed_paths.iter().zip(&allowed) {
                fixed(&real, &shared.host, writable, "allowed path", given)?;
            }
            let target = inner(&shared.target)?;
            folders.add(runner, &real, &target, Access::ReadOnly)?;
            if shared.host != real {
                folders.layout.read_only.push((real, shared.target.clone()));
            }
            folders.layout.read_only.push((shared.host.clone(), shared.target.clone()));
        }
        for real in allowed {
            let target = text(&real)?;
            folders.add(runner, &real, &target, Access::ReadWrite)?;
            folders.layout.read_only.push((real.clone(), real));
        }
        Ok(folders)
    }

    fn add(&mut self, runner: Runner, host: &Path, target: &str, access: Access) -> Result<(), SandboxError> {
        let source = text(host)?;
        let found = fs::metadata(host).map_err(|error| absent("folder", host, &error))?;
        let left = runner.left(&source, found.uid());
        let owner = if left.is_some() { runner.own() } else { runner.owner(found.uid(), found.gid()) };
        self.left.extend(left);
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
        if access == Access::ReadWrite {
            self.writable.push(target.to_owned());
        }
        Ok(())
    }
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

/// Refuses a folder for reading only that could be changed by another name.
fn fixed(
    real: &Path,
    given: &Path,
    writable: &Path,
    what: &str,
    writable_given: &Path,
) -> Result<(), SandboxError> {
    let how = if writable.starts_with(real) {
        "lies in"
    } else if real.starts_with(writable) {
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

/// The real path of the workspace, which must be a folder and no link: a link could lead elsewhere tomorrow.
fn workspace(given: &Path) -> Result<PathBuf, SandboxError> {
    let is_link = fs::symlink_metadata(given).is_ok_and(|found| found.is_symlink());
    if is_link {
        return Err(refused(format!(
            "the workspace `{}` is a symbolic link; give the folder itself",
            given.display()
        )));
    }
    let real = folder("workspace", given)?;
    if real.parent().is_none() {
        return Err(refused("the workspace `/` is the whole machine; choose a folder".to_owned()));
    }
    Ok(real)
}

/// A path inside, as the guest takes it.
fn inner(path: &Path) -> Result<String, SandboxError> {
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

fn refused(message: String) -> SandboxError {
    SandboxError::new(SandboxErrorKind::PathNotAllowed, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SharedFolder;

    fn refusal(context: &ExecutionContext) -> String {
        Folders::of(context, Runner::choose()).unwrap_err().to_string()
    }

    #[test]
    fn a_workspace_is_a_folder_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let (skill, inner, link) =
            (folder.path().join("skill"), folder.path().join("skill/work"), folder.path().join("link"));
        fs::create_dir_all(&inner).unwrap();
        std::os::unix::fs::symlink(&inner, &link).unwrap();
        assert!(refusal(&ExecutionContext::new(&link)).contains("is a symbolic link"));
        assert!(refusal(&ExecutionContext::new(folder.path().join("none"))).contains("cannot be used"));
        assert!(refusal(&ExecutionContext::new("/")).contains("the whole machine"));
        let read_only = vec![SharedFolder::new(&skill, "/mnt/skills/one")];
        let within = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(&inner) };
        assert!(refusal(&within).contains("lies in the read-only folder"));
        let same = ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(&skill) };
        assert!(refusal(&same).contains("lies in the read-only folder"));
        let around =
            ExecutionContext { read_only: read_only.clone(), ..ExecutionContext::new(folder.path()) };
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
        let shared = |target: &str| {
            let read_only = vec![SharedFolder::new("/usr", target)];
            ExecutionContext { read_only, ..ExecutionContext::new(folder.path()) }
        };
        for target in ["mnt/skills", "/mnt/../etc", "/", ""] {
            assert!(refusal(&shared(target)).contains("is no place in a sandbox"), "{target}");
        }
        let good = Folders::of(&shared("/mnt/skills/usr"), Runner::choose()).unwrap();
        assert_eq!(good.layout.sandbox_path(Path::new("/usr/bin")), Some("/mnt/skills/usr/bin".into()));
    }
}
