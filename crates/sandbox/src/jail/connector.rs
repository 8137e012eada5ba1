//! [`Jail`]: makes sandboxes in namespaces of their own.
//!
//! It decides what a jail is made of, and the guest carries it out (`conjure_guest::protocol::JailSpec`). A connector
//! holds what it found on the machine: interpreters, and where control groups can be made.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use conjure_egress::{Egress, Policy};
use conjure_guest::protocol::{
    Access, CommandRules, Counted, DiskUsage, FileRule, FileRules, Hello, JailSpec, OutputFolder, Place,
    ProcessLimits, Quota, Root, SyscallRule, TakeBack,
};
use futures_util::future::BoxFuture;

use super::environment::variables;
use super::folders::{self, Folders};
use super::guard::{Holdings, JailGuard};
use super::hand_back::{HandedOver, take_back};
use super::identity::Runner;
use super::interpreters::{Installation, SYSTEM, elsewhere};
use super::lent::Lent;
use super::root::{self, DEVICES, HOSTNAME, OUTPUT, WORKSPACE, WRITABLE};
use crate::cgroup::Cgroups;
use crate::connector::{Connection, Connector};
use crate::context::ExecutionContext;
use crate::data::DataFolder;
use crate::egress;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::gateway::Proxy;
use crate::guest_process::{Private, Started, safe, start, text, unavailable};
use crate::isolation::{Boundary, Isolation};
use crate::limits::{DiskLimit, Limits};
use crate::places::{Shelves, mount_limited};
use crate::types::Layout;

/// Runs the guest in fresh namespaces (user, mount, pid, network, ipc, uts, cgroup), without a daemon and without root.
///
/// Commands see a root of their own, for reading only: the machine's programs and libraries, a small `/etc`, `/dev` and
/// `/proc` of their own; `/workspace`, which they may write; `/tmp` and a home in memory; skills at `/mnt/skills`.
/// There is no network interface but loopback; what the context's policy allows is reached through a proxy, which
/// commands find by the usual variables, and which runs on the host. All capabilities are dropped, system calls that administer a machine
/// are refused, and what all of it uses together is limited where control groups can be made ([`Cgroups::missing`]).
/// A host that is root runs each jail as another user that owns nothing; files in the workspace stay the host's.
///
/// What is shared at `/mnt/skills/NAME` or `/artifacts/NAME` is a snapshot, taken when the sandbox is made: linked from the
/// store of the data folder ([`Jail::with_data`]), or copied where that lies on another file system. More can be put there
/// later ([`crate::Executor::provide`]). What is shared elsewhere is the host's folder itself.
///
/// The workspace has a quota, which the guest keeps by looking often: what commands write meanwhile is more than it, and the
/// next thing that happens is that all of them end. Or the kernel keeps it, where that is asked for ([`DiskLimit::Kernel`]). In a workspace of the data folder all counts, in any other what is
/// added to it. Further folders to write have none, so with those the disk is open.
///
/// What the machine does not permit is open in `Sandbox::isolation`, and an error where the context's floor
/// demands it; without user namespaces there is no jail at all.
#[derive(Debug, Clone)]
pub struct Jail {
    machine: Arc<Machine>,
}

/// What does not change from jail to jail.
#[derive(Debug, Clone)]
struct Machine {
    environment: BTreeMap<String, String>,
    /// What the ways out of all jails have in common.
    egress: Egress,
    installations: Vec<Installation>,
    places: Vec<Place>,
    cgroups: Cgroups,
    /// `None`: each jail has a temporary one.
    data: Option<DataFolder>,
}

impl Jail {
    /// Looks at the machine, and takes of the host's variables the language and the time zone for commands, and
    /// `PATH` to find interpreters that are not installed with the system. Does some hundred accesses to files.
    pub fn new(host_environment: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let host: Vec<(OsString, OsString)> = host_environment.into_iter().collect();
        let path = host.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let installations = elsewhere(path.filter(|path| *path != OsStr::new("")), &SYSTEM);
        let machine = Machine {
            places: root::machine(&installations),
            environment: safe(host),
            egress: Egress::new(Policy::None),
            installations,
            cgroups: Cgroups::detect(),
            data: None,
        };
        // What hosts that were killed left behind.
        machine.cgroups.sweep();
        Self { machine: Arc::new(machine) }
    }

    /// With another resolver, observer, bounds or check of addresses for the connections of commands. Its policy and its
    /// places are not used: each jail has those of its context, and its own.
    #[must_use]
    pub fn with_egress(mut self, egress: Egress) -> Self {
        Arc::make_mut(&mut self.machine).egress = egress;
        self
    }

    /// With sandboxes that read out of this folder's store, and have their own folders in it. Without one, each sandbox has
    /// a temporary one, and reads its skills from the disk anew.
    #[must_use]
    pub fn with_data(mut self, data: DataFolder) -> Self {
        Arc::make_mut(&mut self.machine).data = Some(data);
        self
    }

    /// Makes jails for somebody else, with this data folder. What was found on the machine is not looked for again; neither has a part in
    /// the other's data, nor in what looks up names for the other's commands.
    #[must_use]
    pub fn apart(&self, data: DataFolder) -> Self {
        let machine =
            Machine { egress: Egress::new(Policy::None), data: Some(data), ..Machine::clone(&self.machine) };
        Self { machine: Arc::new(machine) }
    }

    /// Where control groups can be made, and why not where they cannot.
    #[must_use]
    pub fn cgroups(&self) -> &Cgroups {
        &self.machine.cgroups
    }
}

impl Connector for Jail {
    fn isolation(&self) -> Isolation {
        self.machine.isolation(Runner::choose())
    }

    fn layout(&self, context: &ExecutionContext) -> Result<Layout, SandboxError> {
        folders::layout(context)
    }

    fn connect<'a>(
        &'a self,
        context: &'a ExecutionContext,
    ) -> BoxFuture<'a, Result<Connection, SandboxError>> {
        Box::pin(async move {
            let (machine, wanted) = (Arc::clone(&self.machine), context.clone());
            let prepared = tokio::task::spawn_blocking(move || machine.prepare(&wanted)).await;
            let Prepared { hello, layout, proxy, left, private, holdings } =
                prepared.map_err(|error| unavailable("its preparation failed", error))??;
            // What seems to be left may be a container's, just now.
            let lent = Lent::take(left.iter().map(|left| left.folder.as_str())).await?;
            for left in &left {
                take_back(left).await?;
            }
            drop(lent);
            let Started { reader, writer, process } = start(&["jail"], private).await?;
            Ok(Connection {
                reader: Box::new(reader),
                writer: Box::new(writer),
                hello,
                layout,
                proxy,
                guard: Box::new(JailGuard::new(process, holdings)),
            })
        })
    }
}

/// A jail without its guest.
#[derive(Debug)]
struct Prepared {
    hello: Hello,
    layout: Layout,
    proxy: Option<Proxy>,
    left: Vec<TakeBack>,
    private: Private,
    holdings: Holdings,
}

impl Machine {
    /// What a jail on this machine keeps apart, if its guest can close itself in.
    fn isolation(&self, runner: Runner) -> Isolation {
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

    /// Looks at folders, and makes the private one and the control group; blocks.
    fn prepare(&self, context: &ExecutionContext) -> Result<Prepared, SandboxError> {
        let proxy = egress::proxy(&self.egress, &context.network)?;
        let runner = Runner::choose();
        let data = self.data.clone().map_or_else(DataFolder::temporary, Ok)?;
        let place = data.sandboxes().make()?;
        if context.limits.disk_limit() == DiskLimit::Kernel {
            limit_by_kernel(&data, context)?;
        }
        let shelves = folders::Shelves { data: &data, place: Some(&place) };
        let Folders { places, mut roots, layout, writable, left, workspace, .. } =
            Folders::of(context, runner, shelves)?;
        let private = Private::of_place(&place);
        let cgroup = self.cgroups.make(&context.limits)?;
        let limits = &context.limits;
        let output =
            OutputFolder { source: text(private.output())?, path: OUTPUT.to_owned(), owner: runner.own() };
        let kinds = places.iter().map(|place| &place.is);
        let handed_over = HandedOver::of(runner, kinds, Some((&output.source, output.owner)));
        roots.push(Root { path: OUTPUT.to_owned(), access: Access::ReadOnly });
        // Files that a command left in memory can be viewed and edited like those of the workspace.
        roots.extend(WRITABLE.map(|path| Root { path: path.to_owned(), access: Access::ReadWrite }));
        let jail = JailSpec {
            identity: runner.identity(),
            hostname: HOSTNAME.to_owned(),
            places: [self.places.clone(), root::own(limits), places].concat(),
            output: Some(output),
            cgroups: cgroup.folders().iter().map(|folder| text(folder)).collect::<Result<_, _>>()?,
        };
        let hello = Hello {
            roots,
            workdir: WORKSPACE.to_owned(),
            env: variables(&self.environment, &self.installations, limits, &context.environment),
            spill_dir: Some(OUTPUT.to_owned()),
            // What the kernel limits is not watched.
            quota: (limits.disk_limit() == DiskLimit::Watched).then(|| Quota {
                path: WORKSPACE.to_owned(),
                allowed: DiskUsage { bytes: limits.disk(), inodes: limits.inodes() },
                // What a user has there already is not the sandbox's.
                counted: if data.is_workspace(&workspace) { Counted::Everything } else { Counted::Growth },
            }),
            rules: rules(limits, writable),
            jail: Some(jail),
            ..Hello::default()
        };
        let isolation = Isolation {
            // Nobody watches over the others.
            disk: match limits.disk_limit() {
                _ if !context.allowed_paths.is_empty() => Boundary::Open,
                DiskLimit::Watched => Boundary::Watched,
                DiskLimit::Kernel => Boundary::Enforced,
            },
            ..self.isolation(runner)
        };
        let (workspace, shelves) = (text(&workspace)?, Shelves::new(place));
        let holdings = Holdings { handed_over, workspace, isolation, shelves, cgroup: Some(cgroup), data };
        Ok(Prepared { hello, layout, proxy, left, private, holdings })
    }
}

/// Has the kernel limit the workspace.
fn limit_by_kernel(data: &DataFolder, context: &ExecutionContext) -> Result<(), SandboxError> {
    let workspace = folders::workspace(&context.workspace)?;
    if data.is_own_workspace(&workspace) {
        return mount_limited(&workspace, &context.limits);
    }
    let message = "the kernel limits the disk of a session's own workspace only, and this sandbox has another folder; have \
                   the guest watch over it";
    Err(SandboxError::new(SandboxErrorKind::Unsupported, message))
}

/// What commands may not do, beyond what the namespaces forbid.
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
