//! [`JailMounts`]: the mounts and roots of a sandbox, from the directories of its context. These are the workspace,
//! read-only directories and writable directories.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use conjure_guest::protocol::{
    Access, Bind, BindContent, ChownRequest, IfMissing, MountEntry, MountKind, OwnerMapping, Root,
    SymlinkPolicy,
};

use super::rootfs::{OUTPUT, WORKSPACE, mount_entry};
use super::user::JailUser;
use crate::content::{CommitToken, ContentDir, ContentItem};
use crate::data_dir::DataDir;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::{missing_dir, resolve_dir, utf8_path};
use crate::host_dirs;
use crate::settings::context::{ExecutionContext, SharedDir};
use crate::settings::layout::{ArtifactDir, Layout};

/// Paths that no host directory may replace.
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
    ContentDir::Skills.path(),
    ContentDir::Artifacts.path(),
];

/// Paths that no host directory may be mounted in.
pub(crate) const CLOSED: [&str; 4] = ["/dev", "/etc", "/proc", "/sys"];

/// The mounts of one jail.
#[derive(Debug)]
pub(crate) struct JailMounts {
    pub(crate) mounts: Vec<MountEntry>,
    pub(crate) roots: Vec<Root>,
    pub(crate) layout: Layout,
    /// The writable paths, in addition to the jail's own.
    pub(crate) writable: Vec<String>,
    /// Directories that belong to a jail's user because a host process crashed. Their owner is restored first.
    pub(crate) to_restore: Vec<ChownRequest>,
    /// The workspace's real path.
    pub(crate) workspace: PathBuf,
    /// The content to install, where the content directories are not on this machine.
    pub(crate) items: Vec<ContentItem>,
}

/// The source of a jail's content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContentSource<'a> {
    pub(crate) data: &'a DataDir,
    /// `None`: its content directories are not on this machine.
    pub(crate) dir: Option<&'a host_dirs::SandboxDir>,
}

impl JailMounts {
    /// Resolves the directories of `context` for a jail that runs as `runner`, and installs those that belong in
    /// content directories, as they are now. Blocks.
    pub(crate) fn from_context(
        context: &ExecutionContext,
        runner: JailUser,
        content_source: ContentSource<'_>,
    ) -> Result<Self, SandboxError> {
        let workspace = workspace(&context.workspace)?;
        content_source.data.check_writable(&workspace, "workspace")?;
        let mut mounts = Self {
            mounts: Vec::new(),
            roots: Vec::new(),
            layout: layout(context)?,
            writable: Vec::new(),
            to_restore: Vec::new(),
            workspace: workspace.clone(),
            items: Vec::new(),
        };
        mounts.add(runner, &workspace, WORKSPACE, Access::ReadWrite)?;
        let allowed_paths = allowed_paths(context)?;
        allowed_paths.iter().try_for_each(|real| content_source.data.check_writable(real, "allowed path"))?;
        for content_dir in ContentDir::ALL {
            mounts.add_content_dir(content_dir, content_source)?;
        }
        for shared in &context.read_only {
            let real = resolve_dir("read-only directory", &shared.host)?;
            let target = sandbox_target(&shared.target)?;
            let target_dir = content_dir_of(shared)?;
            let mode = if target_dir.is_some() { SourceMode::Copied } else { SourceMode::BindMounted };
            mode.check(&real, &shared.host, &workspace, "workspace", &context.workspace)?;
            for (given, writable) in context.allowed_paths.iter().zip(&allowed_paths) {
                mode.check(&real, &shared.host, writable, "allowed path", given)?;
            }
            match target_dir {
                Some((content_dir, name)) => {
                    let tree = content_source.data.snapshot(&real)?;
                    let item = ContentItem::tree(content_dir, name, content_source.data.store(), tree);
                    match content_source.dir {
                        Some(dir) => dir.install(&item, &CommitToken::default())?,
                        None => mounts.items.push(item),
                    }
                }
                None => mounts.add(runner, &real, &target, Access::ReadOnly)?,
            }
        }
        for real in allowed_paths {
            let target = utf8_path(&real)?;
            mounts.add(runner, &real, &target, Access::ReadWrite)?;
        }
        Ok(mounts)
    }

    fn add(
        &mut self,
        runner: JailUser,
        host: &Path,
        target: &str,
        access: Access,
    ) -> Result<(), SandboxError> {
        let source = utf8_path(host)?;
        let found = fs::metadata(host).map_err(|error| missing_dir("directory", host, &error))?;
        let to_restore = runner.reclaim_request(&source, found.uid());
        let owner = if to_restore.is_some() {
            runner.host_dirs_owner()
        } else {
            runner.owner(found.uid(), found.gid())
        };
        self.to_restore.extend(to_restore);
        self.bind(source, target, access, owner);
        if access == Access::ReadWrite {
            self.writable.push(target.to_owned());
        }
        Ok(())
    }

    fn add_content_dir(
        &mut self,
        content_dir: ContentDir,
        content_source: ContentSource<'_>,
    ) -> Result<(), SandboxError> {
        let Some(dir) = content_source.dir else {
            self.roots.push(Root { path: content_dir.path().to_owned(), access: Access::ReadOnly });
            return Ok(());
        };
        let source = utf8_path(&dir.content_dir(content_dir))?;
        // All users may read the content.
        self.bind(source, content_dir.path(), Access::ReadOnly, OwnerMapping::Unchanged);
        Ok(())
    }

    fn bind(&mut self, source: String, target: &str, access: Access, owner: OwnerMapping) {
        let bind = Bind {
            source,
            access,
            content: BindContent::Programs,
            // The path was resolved here. If it is a link at the time of the mount, another process has replaced it.
            links: SymlinkPolicy::Refuse,
            missing: IfMissing::Fail,
            owner,
        };
        self.mounts.push(mount_entry(target, MountKind::Bind(bind)));
        self.roots.push(Root { path: target.to_owned(), access });
    }
}

/// The mounts of workspace directories at a second path. The workspace itself must be mounted before.
pub(super) fn workspace_mounts(context: &ExecutionContext) -> Result<Vec<(MountEntry, Root)>, SandboxError> {
    let mounts = context.workspace_mounts.iter().map(|mount| {
        let target = sandbox_target(&mount.target)?;
        let is_plain = mount.dir.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_plain || RESERVED.iter().any(|reserved| Path::new(reserved).starts_with(&target)) {
            let message = format!("`{}` cannot be mounted at `{target}`", mount.dir.display());
            return Err(SandboxError::new(SandboxErrorKind::BadRequest, message));
        }
        let path = utf8_path(&Path::new(WORKSPACE).join(&mount.dir))?;
        let entry = mount_entry(&target, MountKind::SubdirBind { path });
        Ok((entry, Root { path: target, access: Access::ReadWrite }))
    });
    mounts.collect()
}

/// The content and layout that a warm sandbox gets from a context.
#[derive(Debug)]
pub(crate) struct ClaimContent {
    /// The workspace's real path.
    pub(crate) workspace: PathBuf,
    /// The content to install.
    pub(crate) items: Vec<ContentItem>,
    pub(crate) layout: Layout,
}

impl ClaimContent {
    /// Resolves the directories of `context`, as [`JailMounts::from_context`] does, and inserts those that belong in
    /// content directories into the store, as they are now; blocks.
    ///
    /// # Errors
    /// As [`JailMounts::from_context`]; and `Unsupported` for a workspace that is not a session's own in this data
    /// directory.
    pub(crate) fn from_context(context: &ExecutionContext, data: &DataDir) -> Result<Self, SandboxError> {
        let real = workspace(&context.workspace)?;
        if !data.is_own_workspace(&real) {
            let message = "only a session's own workspace can be swapped";
            return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
        }
        let mut items = Vec::with_capacity(context.read_only.len());
        for shared in &context.read_only {
            let Some((content_dir, name)) = content_dir_of(shared)? else {
                let message =
                    "a directory outside the content directories cannot be added to a running sandbox";
                return Err(SandboxError::new(SandboxErrorKind::Unsupported, message));
            };
            let directory = resolve_dir("read-only directory", &shared.host)?;
            SourceMode::Copied.check(&directory, &shared.host, &real, "workspace", &context.workspace)?;
            let tree = data.snapshot(&directory)?;
            items.push(ContentItem::tree(content_dir, name, data.store(), tree));
        }
        Ok(Self { workspace: real, items, layout: layout(context)? })
    }
}

/// Whether all read-only directories of `context` belong in content directories.
pub(crate) fn needs_only_content_dirs(context: &ExecutionContext) -> bool {
    context
        .read_only
        .iter()
        .all(|shared| content_dir_of(shared).is_ok_and(|content_dir| content_dir.is_some()))
}

/// The layout of a sandbox with a file system of its own for `context`; blocks.
pub(crate) fn layout(context: &ExecutionContext) -> Result<Layout, SandboxError> {
    let mut read_only = Vec::new();
    for SharedDir { host, target } in &context.read_only {
        let real = resolve_dir("read-only directory", host)?;
        sandbox_target(target)?;
        if *host != real {
            read_only.push((real, target.clone()));
        }
        read_only.push((host.clone(), target.clone()));
    }
    read_only.extend(allowed_paths(context)?.into_iter().map(|real| (real.clone(), real)));
    let artifacts = ArtifactDir::Fixed(ContentDir::Artifacts.path().into());
    Ok(Layout { workspace: WORKSPACE.into(), read_only, artifacts })
}

/// The real paths of the allowed paths. They have the same paths in the sandbox.
fn allowed_paths(context: &ExecutionContext) -> Result<Vec<PathBuf>, SandboxError> {
    let mut allowed_paths = Vec::new();
    for given in &context.allowed_paths {
        let real = fs::canonicalize(given).map_err(|error| missing_dir("allowed path", given, &error))?;
        let takes = RESERVED.into_iter().find(|reserved| Path::new(reserved).starts_with(&real));
        let lies_in = CLOSED.into_iter().find(|closed| real.starts_with(closed));
        if let Some(reserved) = takes.or(lies_in) {
            return Err(path_not_allowed(format!(
                "the allowed path `{}` would take the place of the sandbox's own `{reserved}`; choose another directory",
                real.display()
            )));
        }
        allowed_paths.push(real);
    }
    Ok(allowed_paths)
}

/// The content directory that a shared directory belongs in by its target, and its name there; `None`: in none.
fn content_dir_of(shared: &SharedDir) -> Result<Option<(ContentDir, &str)>, SandboxError> {
    let target = &shared.target;
    let Some(content_dir) =
        ContentDir::ALL.into_iter().find(|content_dir| target.starts_with(content_dir.path()))
    else {
        return Ok(None);
    };
    let name = target.file_name().and_then(|name| name.to_str());
    match name.filter(|_| target.parent() == Some(Path::new(content_dir.path()))) {
        Some(name) => Ok(Some((content_dir, name))),
        None => Err(SandboxError::new(
            SandboxErrorKind::BadRequest,
            format!(
                "a directory cannot be mounted at `{}`; mount it at `{}/NAME`",
                target.display(),
                content_dir.path()
            ),
        )),
    }
}

/// How a sandbox gets the content of a read-only directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceMode {
    /// As a copy of its content at the creation of the sandbox.
    Copied,
    /// As a mount of the directory itself.
    BindMounted,
}

impl SourceMode {
    /// Fails when commands could change the directory by another path. A copy cannot be changed. But a workspace
    /// inside a skill is refused, too, because it is certainly a mistake.
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
        } else if real.starts_with(writable) && self == Self::BindMounted {
            "contains"
        } else {
            return Ok(());
        };
        Err(path_not_allowed(format!(
            "the {what} `{}` {how} the read-only directory `{}`, which could then be changed; choose another {what}",
            writable_given.display(),
            given.display()
        )))
    }
}

/// The real path of the workspace. It must be a directory, and its path must contain no link: the target of a link
/// could change before the mount.
pub(super) fn workspace(given: &Path) -> Result<PathBuf, SandboxError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(CWD, given, flags, Mode::empty(), resolve).map_err(|errno| match errno {
        Errno::LOOP => path_not_allowed(format!(
            "a symbolic link stands in the path of the workspace `{}`; give the directory's real path",
            given.display()
        )),
        Errno::NOTDIR if given.exists() => {
            let message = format!("the workspace `{}` is not a directory", given.display());
            SandboxError::new(SandboxErrorKind::WrongFileType, message)
        }
        other => missing_dir("workspace", given, &other.into()),
    })?;
    // The path of the opened directory. The given path may lead to another directory by now.
    let real = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    let real = real.map_err(|error| missing_dir("workspace", given, &error))?;
    if real.parent().is_none() {
        return Err(path_not_allowed(
            "the workspace `/` is the whole machine; choose a directory".to_owned(),
        ));
    }
    Ok(real)
}

/// Checks a path in the sandbox: absolute, without `..`.
pub(crate) fn sandbox_target(path: &Path) -> Result<String, SandboxError> {
    let mut parts = path.components();
    let is_plain = parts.next() == Some(Component::RootDir)
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)));
    if is_plain {
        return utf8_path(path);
    }
    Err(SandboxError::new(
        SandboxErrorKind::BadRequest,
        format!("`{}` is no place in a sandbox: an absolute path without `..` is needed", path.display()),
    ))
}

pub(crate) fn path_not_allowed(message: String) -> SandboxError {
    SandboxError::new(SandboxErrorKind::PathNotAllowed, message)
}

#[cfg(test)]
mod tests;
