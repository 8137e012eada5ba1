//! [`ContainerPlan`]: a container before its creation: its mounts, user, environment and rules. It resolves
//! directories of the host, which blocks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use conjure_guest::protocol::{
    Access, ChownRequest, CommandRules, DiskUsage, FileRule, FileRules, Hello, MountKind, OwnerMapping,
    ProcessLimits, Quota, QuotaBasis, Root, SpillAccess, SyscallRule,
};

use super::container_spec::{BindMount, GUEST};
use super::container_user::{ContainerUser, UserChoice};
use crate::content::ContentDir;
use crate::copy::CopyPlan;
use crate::docker::engine::address::EngineAddress;
use crate::docker::engine::engine_info::EngineInfo;
use crate::docker::image_info::ImageInfo;
use crate::docker::image_volumes::in_memory;
use crate::docker::mount_check::ExpectedMounts;
use crate::docker::options::{DockerOptions, HostMount};
use crate::docker::runtime_files::RuntimeFiles;
use crate::docker::volume_container::{CONTENT_ROOT, VolumeContainer};
use crate::error::SandboxError;
use crate::guest_process::{missing_dir, resolve_dir, unavailable, utf8_path};
use crate::host_dirs::{SandboxDir, is_measurable};
use crate::jail::{
    CLOSED, ContentSource, DEVICES, HOME, JailMounts, JailUser, NAME, OUTPUT, RESERVED, SourceMode,
    WORKSPACE, WRITABLE, default_variables, jail_layout, path_not_allowed, sandbox_target,
};
use crate::settings::context::ExecutionContext;
use crate::settings::isolation::Boundary;
use crate::settings::layout::{HostAccess, Layout};
use crate::settings::limits::Limits;

/// Sockets of engines and of container runtimes that root runs. Access to one of them gives the rights of root.
const SOCKETS: [&str; 4] =
    ["/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// The plan of a container.
#[derive(Debug)]
pub(crate) struct ContainerPlan {
    pub(crate) hello: Hello,
    pub(crate) layout: Layout,
    pub(crate) mounts: Vec<BindMount>,
    /// The directories that must be mounted.
    pub(crate) expected_mounts: ExpectedMounts,
    /// The volumes of the image, which get in-memory file systems.
    pub(crate) tmpfs: Vec<String>,
    pub(crate) user: ContainerUser,
    /// `None`: the container has no directory on this machine.
    pub(crate) sandbox_dir: Option<SandboxDir>,
    /// The plan for an engine that cannot mount this machine's directories.
    pub(crate) remote: Option<RemoteEnginePlan>,
    /// Directories that belong to a user of sandboxes because a host process crashed. Their owner is restored first.
    pub(crate) to_restore: Vec<ChownRequest>,
    /// Whether its disk use is bounded.
    pub(crate) disk: Boundary,
}

/// The plan for an engine that cannot mount this machine's directories.
#[derive(Debug)]
pub(crate) struct RemoteEnginePlan {
    pub(crate) archive: Vec<u8>,
    pub(crate) copy_plan: CopyPlan,
}

/// The inputs of the plan.
#[derive(Debug)]
pub(crate) struct PlanInputs<'a> {
    pub(crate) address: &'a EngineAddress,
    pub(crate) info: &'a EngineInfo,
    pub(crate) image: &'a ImageInfo,
    pub(crate) options: &'a DockerOptions,
    pub(crate) runtime_files: &'a RuntimeFiles,
    /// The host's variables that commands may see.
    pub(crate) environment: &'a BTreeMap<String, String>,
    pub(crate) context: &'a ExecutionContext,
}

impl PlanInputs<'_> {
    pub(crate) fn prepare(&self) -> Result<ContainerPlan, SandboxError> {
        if self.info.host_access(self.address) == HostAccess::Copied {
            return self.prepare_remote();
        }
        let runner = JailUser::choose();
        let data = &self.runtime_files.data;
        let sandbox_dir = data.sandboxes().create()?;
        let JailMounts { mounts: entries, mut roots, mut writable, to_restore, workspace, .. } =
            JailMounts::from_context(self.context, runner, ContentSource { data, dir: Some(&sandbox_dir) })?;
        let mut mounts: Vec<BindMount> =
            entries.iter().filter_map(|entry| bind(&entry.path, &entry.kind)).collect();
        for volume in &self.options.volumes {
            let volume = self.volume(volume)?;
            if let Some(other) = mounts.iter().find(|mount| mount.target == volume.target) {
                return Err(path_not_allowed(format!(
                    "the volume `{}` would take the place of `{}`, which is at `{}` already; choose another target",
                    volume.source, other.source, other.target
                )));
            }
            roots.push(Root { path: volume.target.clone(), access: volume.access });
            match volume.access {
                Access::ReadWrite => writable.push(volume.target.clone()),
                Access::ReadOnly => {}
            }
            mounts.push(volume);
        }
        check_read_only(&mounts)?;
        if let Some(exposed) =
            mounts.iter().find(|mount| self.exposes_engine_socket(Path::new(&mount.source)))
        {
            return Err(path_not_allowed(format!(
                "the directory `{}` holds the socket of a container engine, and whoever reaches that is root on the host; choose another \
                 directory",
                exposed.source
            )));
        }
        let given = UserChoice {
            info: self.info,
            options: self.options,
            runner,
            owner: owner(&workspace, runner)?,
            demanded: self.context.floor.identity,
            writable: entries.iter().map(|entry| &entry.kind).filter(|is| is_writable(is)).collect(),
        };
        let user = ContainerUser::select(&given);
        let expected_mounts = ExpectedMounts::record(&roots, &mounts)?;
        mounts.extend(self.runtime_mounts(&sandbox_dir, &user)?);
        let tmpfs = in_memory(&self.image.volumes, &mounts)?;
        writable.extend(tmpfs.clone());
        // In a directory of the user, files that exist already do not count.
        let counted = if data.is_workspace(&workspace) { QuotaBasis::Everything } else { QuotaBasis::Growth };
        let hello = self.hello(roots, writable, counted);
        // Further writable directories have no quota.
        let is_bounded = is_measurable(&workspace)
            && self.context.allowed_paths.is_empty()
            && self.options.volumes.iter().all(|volume| volume.access == Access::ReadOnly);
        let layout = layout(self.options, self.context)?;
        let (sandbox_dir, disk) = (Some(sandbox_dir), Boundary::watched_if(is_bounded));
        Ok(ContainerPlan {
            hello,
            layout,
            mounts,
            expected_mounts,
            tmpfs,
            user,
            sandbox_dir,
            remote: None,
            to_restore,
            disk,
        })
    }

    /// Creates the plan for an engine that cannot mount this machine's directories. The paths are the same, but
    /// content is copied.
    fn prepare_remote(&self) -> Result<ContainerPlan, SandboxError> {
        let data = &self.runtime_files.data;
        let JailMounts { mut roots, layout, writable, to_restore, workspace, items, .. } =
            JailMounts::from_context(self.context, JailUser::choose(), ContentSource { data, dir: None })?;
        self.check_nothing_is_shared(&workspace)?;
        let user = ContainerUser::for_remote_engine(self.info, self.options);
        let files = VolumeContainer::for_user(&user, user.ids.map(names));
        let VolumeContainer { archive, mounts } =
            files.map_err(|error| unavailable("its preparation failed", error))?;
        // The roots of the context are the content directories and the workspace only.
        roots.retain(|root| mounts.iter().any(|mount| mount.target == root.path));
        let tmpfs = in_memory(&self.image.volumes, &mounts)?;
        let writable = writable.into_iter().chain(tmpfs.clone()).collect();
        let hello = Hello {
            content_root: Some(CONTENT_ROOT.to_owned()),
            ..self.hello(roots, writable, QuotaBasis::Everything)
        };
        let most = self.context.limits.disk();
        let copy_plan = CopyPlan { items, workspace, content_max_bytes: most, copy_out_max_bytes: most };
        let remote = Some(RemoteEnginePlan { archive, copy_plan });
        let disk = Boundary::Watched;
        let expected_mounts = ExpectedMounts::default();
        Ok(ContainerPlan {
            hello,
            layout,
            mounts,
            expected_mounts,
            tmpfs,
            user,
            sandbox_dir: None,
            remote,
            to_restore,
            disk,
        })
    }

    fn hello(&self, mut roots: Vec<Root>, writable: Vec<String>, counted: QuotaBasis) -> Hello {
        roots.push(Root { path: OUTPUT.to_owned(), access: Access::ReadOnly });
        roots.extend(WRITABLE.map(|path| Root { path: path.to_owned(), access: Access::ReadWrite }));
        let limits = &self.context.limits;
        let allowed = DiskUsage { bytes: limits.disk(), inodes: limits.inodes() };
        Hello {
            roots,
            workdir: WORKSPACE.to_owned(),
            env: self.variables(),
            spill_dir: Some(OUTPUT.to_owned()),
            quota: Some(Quota { path: WORKSPACE.to_owned(), allowed, basis: counted }),
            rules: rules(limits, writable),
            ..Hello::default()
        }
    }

    /// Fails for every part of the context that would need a mount of a host directory.
    fn check_nothing_is_shared(&self, workspace: &Path) -> Result<(), SandboxError> {
        let engine =
            if self.address.is_local() { "maps users (`userns-remap`)" } else { "is on another machine" };
        let refused = |what: &str, path: &Path, instead: &str| {
            Err(path_not_allowed(format!(
                "the {what} `{}` cannot be given to containers of `{}`: the engine {engine}, so no directory is shared with it; \
                 {instead}",
                path.display(),
                self.address
            )))
        };
        if let Some(volume) = self.options.volumes.first() {
            return refused("volume", &volume.host, "give what is needed as a skill or an artifact");
        }
        if let Some(path) = self.context.allowed_paths.first() {
            return refused("allowed path", path, "take what commands produce from the workspace");
        }
        let is_content = |target: &Path| ContentDir::ALL.iter().any(|dir| target.starts_with(dir.path()));
        if let Some(shared) = self.context.read_only.iter().find(|shared| !is_content(&shared.target)) {
            return refused(
                "read-only directory",
                &shared.host,
                "have it at `/mnt/skills/NAME` or `/artifacts/NAME`, where a copy of it is taken",
            );
        }
        if !self.runtime_files.data.is_workspace(workspace) {
            let instead = "work in a session's own workspace, of which copies travel there and back, or use an engine of this \
                           machine";
            return refused("workspace", workspace, instead);
        }
        Ok(())
    }

    /// The mounts of every container: the guest, the output directory, and the files that name its user.
    fn runtime_mounts(
        &self,
        sandbox_dir: &SandboxDir,
        user: &ContainerUser,
    ) -> Result<Vec<BindMount>, SandboxError> {
        let failed = |error| unavailable("the contents of a sandbox's directory cannot be created", error);
        let fixed = |source: &Path, target: &str| {
            Ok::<_, SandboxError>(BindMount {
                source: utf8_path(source)?,
                target: target.to_owned(),
                access: Access::ReadOnly,
            })
        };
        let output = sandbox_dir.output();
        match user.ids.filter(|_| rustix::process::geteuid().is_root() && !self.info.is_rootless) {
            Some((user, group)) => chown(&output, Some(user), Some(group)).map_err(failed)?,
            // The user on the host is unknown. Only the host and the engine can enter the directory around it.
            None => fs::set_permissions(&output, fs::Permissions::from_mode(0o777)).map_err(failed)?,
        }
        let output =
            BindMount { source: utf8_path(&output)?, target: OUTPUT.to_owned(), access: Access::ReadWrite };
        let mut mounts = vec![output, fixed(&self.runtime_files.guest, GUEST)?];
        if let Some(ids) = user.ids {
            let (passwd, groups) = names(ids);
            for (name, content) in [("passwd", passwd), ("group", groups)] {
                let path = sandbox_dir.path().join(name);
                fs::write(&path, content).map_err(failed)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(failed)?;
                mounts.push(fixed(&path, &format!("/etc/{name}"))?);
            }
        }
        Ok(mounts)
    }

    /// The variables of commands: a sandbox's defaults, then the image's, then the context's.
    fn variables(&self) -> BTreeMap<String, String> {
        // The image may not have the host's locale.
        let host = self.environment.iter().filter(|(name, _)| *name == "TZ");
        let host = host.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut variables = default_variables(&host, &self.context.limits);
        variables.extend(self.image.environment.clone());
        variables.extend(self.context.environment.clone());
        variables
    }

    fn volume(&self, volume: &HostMount) -> Result<BindMount, SandboxError> {
        let source = source(volume)?;
        self.runtime_files.data.check_apart(&source, "volume")?;
        let target = sandbox_target(&volume.target)?;
        let takes = RESERVED.iter().find(|reserved| Path::new(reserved).starts_with(&target));
        let within =
            CLOSED.iter().chain(&["/.conjure"]).find(|closed| Path::new(&target).starts_with(closed));
        if let Some(reserved) = takes.or(within) {
            return Err(path_not_allowed(format!(
                "the volume `{}` would take the place of the sandbox's own `{reserved}`; choose another target",
                volume.target.display()
            )));
        }
        Ok(BindMount { source: utf8_path(&source)?, target, access: volume.access })
    }

    /// Whether this directory contains the socket of this engine or of another usual one, or a link to it, or is it.
    fn exposes_engine_socket(&self, source: &Path) -> bool {
        let own = match self.address {
            EngineAddress::Unix(socket) => Some(socket.as_path()),
            EngineAddress::Tcp(_) => None,
        };
        let mut sockets = own.into_iter().chain(SOCKETS.map(Path::new));
        sockets.any(|socket| {
            let real = fs::canonicalize(socket);
            real.is_ok_and(|real| real.starts_with(source) || socket.starts_with(source))
        })
    }
}

/// The layout of a container for this context; blocks.
pub(crate) fn layout(options: &DockerOptions, context: &ExecutionContext) -> Result<Layout, SandboxError> {
    let mut layout = jail_layout(context)?;
    for volume in &options.volumes {
        layout.read_only.push((source(volume)?, sandbox_target(&volume.target)?.into()));
    }
    Ok(layout)
}

/// The real host path of a volume.
fn source(volume: &HostMount) -> Result<PathBuf, SandboxError> {
    let source =
        fs::canonicalize(&volume.host).map_err(|error| missing_dir("volume", &volume.host, &error))?;
    if source.is_dir() { resolve_dir("volume", &source) } else { Ok(source) }
}

/// The content of `/etc/passwd` and `/etc/group`.
fn names((user, group): (u32, u32)) -> (String, String) {
    let passwd = format!(
        "{NAME}:x:{user}:{group}::{HOME}:/bin/sh\nroot:x:0:0:root:/root:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let groups = format!("{NAME}:x:{group}:\nroot:x:0:\nnogroup:x:65534:\n");
    (passwd, groups)
}

fn bind(path: &str, is: &MountKind) -> Option<BindMount> {
    match is {
        MountKind::Bind(bind) => {
            Some(BindMount { source: bind.source.clone(), target: path.to_owned(), access: bind.access })
        }
        _ => None,
    }
}

/// Fails when a read-only mount could be written by another mount.
fn check_read_only(mounts: &[BindMount]) -> Result<(), SandboxError> {
    let with = |access| mounts.iter().filter(move |mount| mount.access == access);
    for (fixed, open) in
        with(Access::ReadOnly).flat_map(|fixed| with(Access::ReadWrite).map(move |open| (fixed, open)))
    {
        let (fixed, open) = (Path::new(&fixed.source), Path::new(&open.source));
        SourceMode::BindMounted.check(fixed, fixed, open, "directory", open)?;
    }
    Ok(())
}

fn is_writable(is: &MountKind) -> bool {
    matches!(is, MountKind::Bind(bind) if bind.access == Access::ReadWrite)
}

/// The owner of the workspace. It is the host's user if a crash has left the workspace with a user of sandboxes.
fn owner(workspace: &Path, runner: JailUser) -> Result<(u32, u32), SandboxError> {
    let found = fs::metadata(workspace).map_err(|error| missing_dir("workspace", workspace, &error))?;
    Ok(match (runner.reclaim_request("", found.uid()), runner.host_dirs_owner()) {
        (Some(_), OwnerMapping::Mapped { uid, gid }) => (uid, gid),
        _ => (found.uid(), found.gid()),
    })
}

/// The rules for commands, beyond those of the container. Nothing in `/proc` is writable. Otherwise commands could
/// lower their own out-of-memory score.
fn rules(limits: &Limits, writable: Vec<String>) -> CommandRules {
    let own = WRITABLE.into_iter().chain(["/var/tmp", "/dev/pts", "/dev/mqueue"]).map(str::to_owned);
    let files = FileRules {
        read: vec!["/".to_owned()],
        write: own.chain(writable).collect(),
        devices: DEVICES.into_iter().chain(["/dev/pts", "/dev/ptmx"]).map(str::to_owned).collect(),
        // In a jail the output directory is a mount of its own, so a jail does not need this rule.
        output: SpillAccess::GuestOnly,
    };
    CommandRules {
        syscalls: SyscallRule::Guarded,
        files: FileRule::Only(files),
        limits: ProcessLimits {
            core_bytes: Some(0),
            open_files: Some(limits.open_files().into()),
            file_bytes: Some(limits.disk()),
            ..ProcessLimits::default()
        },
    }
}
