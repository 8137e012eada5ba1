//! [`Jail`]: creates sandboxes in namespaces of their own.
//!
//! The connector decides the contents of a jail, and the guest sets it up (`conjure_guest::protocol::JailSpec`). A
//! connector holds what it detected on the machine: interpreters, and where control groups can be created.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use conjure_egress::{Egress, EgressPolicy};
use conjure_guest::protocol::{
    Access, ChownRequest, CommandRules, DiskUsage, FileRule, FileRules, Hello, JailSpec, MountEntry,
    OutputMount, ProcessLimits, Quota, QuotaBasis, Root, SyscallRule,
};
use futures_util::future::BoxFuture;

use super::dir_lock::OwnershipLock;
use super::environment::variables;
use super::guard::{JailGuard, JailResources};
use super::interpreters::{Installation, SYSTEM, outside_system_dirs};
use super::mounts::{self, JailMounts};
use super::ownership::{OwnershipTransfer, run_chown};
use super::rootfs::{self, DEVICES, HOSTNAME, OUTPUT, WORKSPACE, WRITABLE};
use super::user::JailUser;
use crate::cgroup::Cgroups;
use crate::connector::{Connector, StartedSandbox};
use crate::data_dir::DataDir;
use crate::egress;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::start;
use crate::guest_process::{PrivateDir, SpawnedGuest, safe_env, unavailable, utf8_path};
use crate::host_dirs::{ContentDirs, is_measurable, mount_limited};
use crate::proxy_gateway::Proxy;
use crate::settings::context::ExecutionContext;
use crate::settings::isolation::{Boundary, Isolation};
use crate::settings::layout::Layout;
use crate::settings::limits::{DiskLimit, Limits};

/// Runs the guest in new namespaces (user, mount, pid, network, ipc, uts, cgroup), without a daemon and without root.
///
/// Commands see a root of their own, read-only: the machine's programs and libraries, a small `/etc`, and their own
/// `/dev` and `/proc`. They may write `/workspace`, and `/tmp` and a home in memory. Skills are at `/mnt/skills`.
/// There is no network interface but loopback. Commands reach what the context's policy allows through a proxy on the
/// host, which they find by the usual variables. All capabilities are dropped, and system calls that administer a
/// machine are refused. Control groups limit the resources of the whole jail, where they can be created
/// ([`Cgroups::missing`]). If the host process is root, each jail runs as another user that owns nothing; files in
/// the workspace still belong to the host's user.
///
/// A directory shared at `/mnt/skills/NAME` or `/artifacts/NAME` is a snapshot, taken when the sandbox is created:
/// hard-linked from the store of the data directory ([`Jail::with_data`]), or copied where the store is on another
/// file system. More content can be installed later ([`crate::Executor::install_content`]). A directory shared at
/// another path is bind-mounted.
///
/// The workspace has a quota. By default the guest checks it often: commands can exceed it for a moment, and then all
/// of them are ended. The kernel enforces it on request ([`DiskLimit::Kernel`]). In a workspace of the data
/// directory, all files count. In other workspaces, only added files count. Further writable directories have no
/// quota, so with them the disk boundary is open. It is open also on Btrfs, which does not report how much of the
/// disk a file takes.
///
/// `Sandbox::isolation` shows which boundaries the machine does not permit. If the context's floor requires one of
/// them, that is an error. Without user namespaces there is no jail.
#[derive(Debug, Clone)]
pub struct Jail {
    host: Arc<JailHost>,
}

/// State that all jails of the connector share.
#[derive(Debug, Clone)]
struct JailHost {
    environment: BTreeMap<String, String>,
    /// The egress settings that all jails share.
    egress: Egress,
    installations: Vec<Installation>,
    mounts: Vec<MountEntry>,
    cgroups: Cgroups,
    /// `None`: each jail has a temporary one.
    data: Option<DataDir>,
}

impl Jail {
    /// Detects the features of the machine, with some hundred file accesses. Of the host's variables, commands get
    /// only the language and the time zone. The host's `PATH` is used to find interpreters outside the system's
    /// directories.
    pub fn new(host_environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let host: Vec<(OsString, OsString)> = host_environment.into_iter().collect();
        let path = host.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let installations = outside_system_dirs(path.filter(|path| *path != OsStr::new("")), &SYSTEM);
        let host = JailHost {
            mounts: rootfs::host_mounts(&installations),
            environment: safe_env(host),
            egress: Egress::new(EgressPolicy::None),
            installations,
            cgroups: Cgroups::detect(),
            data: None,
        };
        // Removes the control groups of killed processes.
        host.cgroups.sweep();
        Self { host: Arc::new(host) }
    }

    /// Uses the resolver, the observer, the limits and the address policy of this egress for the connections of
    /// commands. Its network policy and its connection permits are not used: each jail has the policy of its context,
    /// and its own permits.
    #[must_use]
    pub fn with_egress(mut self, egress: Egress) -> Self {
        Arc::make_mut(&mut self.host).egress = egress;
        self
    }

    /// Uses this data directory: sandboxes read from its store, and have their directories in it. Without one, each
    /// sandbox has a temporary data directory, and reads its skills from the disk again.
    #[must_use]
    pub fn with_data(mut self, data: DataDir) -> Self {
        Arc::make_mut(&mut self.host).data = Some(data);
        self
    }

    /// Creates a connector with another data directory and the same detected features of the machine. The two share
    /// no data and no name resolution.
    #[must_use]
    pub fn for_data_dir(&self, data: DataDir) -> Self {
        let host = JailHost {
            egress: Egress::new(EgressPolicy::None),
            data: Some(data),
            ..JailHost::clone(&self.host)
        };
        Self { host: Arc::new(host) }
    }

    /// The control groups of the machine, and why some are missing.
    #[must_use]
    pub fn cgroups(&self) -> &Cgroups {
        &self.host.cgroups
    }
}

impl Connector for Jail {
    fn isolation(&self) -> Isolation {
        self.host.isolation(JailUser::choose())
    }

    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        mounts::layout(context)
    }

    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<StartedSandbox, SandboxError>> {
        Box::pin(async move {
            let (host, owned_context) = (Arc::clone(&self.host), context.clone());
            let planned = tokio::task::spawn_blocking(move || host.prepare(&owned_context)).await;
            let JailPlan { hello, layout, proxy, to_restore, private, resources } =
                planned.map_err(|error| unavailable("its preparation failed", error))??;
            // Directories that seem to be left over may belong to a running container. The lock shows that.
            let lock =
                OwnershipLock::lock(to_restore.iter().map(|to_restore| to_restore.dir.as_str())).await?;
            for to_restore in &to_restore {
                run_chown(to_restore).await?;
            }
            drop(lock);
            let SpawnedGuest { reader, writer, process } = start(&["jail"], private).await?;
            Ok(StartedSandbox {
                reader: Box::new(reader),
                writer: Box::new(writer),
                hello,
                layout,
                proxy,
                guard: Box::new(JailGuard::new(process, resources)),
            })
        })
    }
}

/// The plan of a jail, with its resources.
#[derive(Debug)]
struct JailPlan {
    hello: Hello,
    layout: Layout,
    proxy: Option<Proxy>,
    to_restore: Vec<ChownRequest>,
    private: PrivateDir,
    resources: JailResources,
}

impl JailHost {
    /// The boundaries of a jail on this machine, if its guest can set it up.
    fn isolation(&self, runner: JailUser) -> Isolation {
        let groups = self.cgroups.isolation();
        Isolation {
            filesystem: Boundary::Enforced,
            network: Boundary::Enforced,
            processes: Boundary::Enforced,
            identity: Boundary::enforced_if(runner.is_dedicated()),
            syscalls: Boundary::Enforced,
            files: Boundary::Enforced,
            disk: Boundary::Watched,
            ..groups
        }
    }

    /// Resolves directories, and creates the private directory and the control group. Blocks.
    fn prepare(&self, context: &ExecutionContext) -> Result<JailPlan, SandboxError> {
        let proxy = egress::proxy(&self.egress, context)?;
        let runner = JailUser::choose();
        let data = self.data.clone().map_or_else(DataDir::temporary, Ok)?;
        let sandbox_dir = data.sandboxes().create()?;
        if context.limits.disk_limit() == DiskLimit::Kernel {
            limit_by_kernel(&data, context)?;
        }
        let content_dirs = mounts::ContentSource { data: &data, dir: Some(&sandbox_dir) };
        let JailMounts { mut mounts, mut roots, layout, mut writable, to_restore, workspace, .. } =
            JailMounts::from_context(context, runner, content_dirs)?;
        for (mount, root) in mounts::workspace_mounts(context)? {
            writable.push(root.path.clone());
            mounts.push(mount);
            roots.push(root);
        }
        let private = PrivateDir::for_sandbox_dir(&sandbox_dir);
        let cgroup = self.cgroups.make(&context.limits)?;
        let limits = &context.limits;
        let output = OutputMount {
            source: utf8_path(private.output())?,
            path: OUTPUT.to_owned(),
            owner: runner.host_dirs_owner(),
        };
        let kinds = mounts.iter().map(|mount| &mount.kind);
        let ownership = OwnershipTransfer::from_mounts(runner, kinds, Some((&output.source, output.owner)));
        roots.push(Root { path: OUTPUT.to_owned(), access: Access::ReadOnly });
        // File operations may also access files in the in-memory file systems.
        roots.extend(WRITABLE.map(|path| Root { path: path.to_owned(), access: Access::ReadWrite }));
        let jail = JailSpec {
            identity: runner.identity(),
            hostname: HOSTNAME.to_owned(),
            mounts: [self.mounts.clone(), rootfs::own_mounts(limits), mounts].concat(),
            output: Some(output),
            cgroups: cgroup.dirs().iter().map(|directory| utf8_path(directory)).collect::<Result<_, _>>()?,
        };
        let hello = Hello {
            roots,
            workdir: WORKSPACE.to_owned(),
            env: variables(&self.environment, &self.installations, limits, &context.environment),
            spill_dir: Some(OUTPUT.to_owned()),
            // The guest does not monitor a quota that the kernel enforces.
            quota: (limits.disk_limit() == DiskLimit::Watched).then(|| Quota {
                path: WORKSPACE.to_owned(),
                allowed: DiskUsage { bytes: limits.disk(), inodes: limits.inodes() },
                // In a directory of the user, files that exist already do not count.
                basis: if data.is_workspace(&workspace) {
                    QuotaBasis::Everything
                } else {
                    QuotaBasis::Growth
                },
            }),
            rules: rules(limits, writable),
            jail: Some(jail),
            ..Hello::default()
        };
        let isolation = Isolation {
            // Further writable directories have no quota.
            disk: match limits.disk_limit() {
                _ if !context.allowed_paths.is_empty() => Boundary::Open,
                DiskLimit::Watched => Boundary::watched_if(is_measurable(&workspace)),
                DiskLimit::Kernel => Boundary::Enforced,
            },
            ..self.isolation(runner)
        };
        let (workspace, content_dirs) = (utf8_path(&workspace)?, ContentDirs::new(sandbox_dir));
        let resources =
            JailResources { ownership, workspace, isolation, content_dirs, cgroup: Some(cgroup), data };
        Ok(JailPlan { hello, layout, proxy, to_restore, private, resources })
    }
}

/// Mounts the workspace as a file system with a size limit.
fn limit_by_kernel(data: &DataDir, context: &ExecutionContext) -> Result<(), SandboxError> {
    let workspace = mounts::workspace(&context.workspace)?;
    if data.is_own_workspace(&workspace) {
        return mount_limited(&workspace, &context.limits);
    }
    let message = "the kernel limits the disk of a session's own workspace only, and this sandbox has another directory; have \
                   the guest watch over it";
    Err(SandboxError::new(SandboxErrorKind::Unsupported, message))
}

/// The rules for commands, in addition to the namespaces.
fn rules(limits: &Limits, writable: Vec<String>) -> CommandRules {
    let own = WRITABLE.into_iter().chain(["/proc", "/dev/pts"]).map(str::to_owned);
    let files = FileRules {
        read: vec!["/".to_owned()],
        write: own.chain(writable).collect(),
        devices: DEVICES.into_iter().chain(["/dev/pts", "/dev/ptmx"]).map(str::to_owned).collect(),
        ..FileRules::default()
    };
    CommandRules {
        syscalls: SyscallRule::Guarded,
        files: FileRule::Only(files),
        limits: ProcessLimits {
            core_bytes: Some(0),
            open_files: Some(limits.open_files().into()),
            file_bytes: Some(limits.disk()),
            processes: Some(limits.processes().into()),
            ..ProcessLimits::default()
        },
    }
}
