//! What a container will be, before there is one: folders, people, variables, rules. Looks at the host, and blocks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use conjure_guest::protocol::{
    Access, CommandRules, Counted, DiskUsage, FileRule, FileRules, Hello, OutputRule, Owner, PlaceKind,
    ProcessLimits, Quota, Root, SyscallRule, TakeBack,
};

use super::address::EngineAddress;
use super::facts::EngineFacts;
use super::image_facts::ImageFacts;
use super::image_volumes::in_memory;
use super::options::{DockerOptions, Volume};
use super::people::{Circumstances, People};
use super::premises::Premises;
use super::spec::{Bound, GUEST};
use crate::context::ExecutionContext;
use crate::error::{SandboxError, SandboxErrorKind};
use crate::guest_process::{absent, folder, text, unavailable};
use crate::isolation::Boundary;
use crate::jail::{
    DEVICES, Folders, FromShelves, HOME, Kept, NAME, OUTPUT, RESERVED, Runner, WORKSPACE, WRITABLE, inner,
    jail_layout, refused, usual_variables,
};
use crate::limits::Limits;
use crate::places::Place;
use crate::types::Layout;

/// What a container will be.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) hello: Hello,
    pub(super) layout: Layout,
    pub(super) bound: Vec<Bound>,
    /// Where the image wants volumes, and has memory.
    pub(super) memory: Vec<String>,
    pub(super) people: People,
    pub(super) place: Place,
    /// What a host that crashed left with a user of its sandboxes: to be taken back first.
    pub(super) left: Vec<TakeBack>,
    /// Whether the disk that it takes is bounded.
    pub(super) disk: Boundary,
}

/// What it is made of.
#[derive(Debug)]
pub(super) struct Ingredients<'a> {
    pub(super) address: &'a EngineAddress,
    pub(super) facts: &'a EngineFacts,
    pub(super) image: &'a ImageFacts,
    pub(super) options: &'a DockerOptions,
    pub(super) premises: &'a Premises,
    /// Those of the host's variables that commands may see.
    pub(super) environment: &'a BTreeMap<String, String>,
    pub(super) context: &'a ExecutionContext,
}

impl Ingredients<'_> {
    pub(super) fn prepare(&self) -> Result<Prepared, SandboxError> {
        self.check_folders_are_shared()?;
        let runner = Runner::choose();
        let data = &self.premises.data;
        let place = data.sandboxes().make()?;
        let Folders { places, mut roots, layout: _, mut writable, left, workspace } =
            Folders::of(self.context, runner, FromShelves { data, place: &place })?;
        let mut bound: Vec<Bound> = places.iter().filter_map(|place| bind(&place.path, &place.is)).collect();
        for volume in &self.options.volumes {
            let volume = self.volume(volume)?;
            roots.push(Root { path: volume.target.clone(), access: volume.access });
            match volume.access {
                Access::ReadWrite => writable.push(volume.target.clone()),
                Access::ReadOnly => {}
            }
            bound.push(volume);
        }
        check_fixed(&bound)?;
        if let Some(exposed) = bound.iter().find(|bound| self.holds_the_engine(Path::new(&bound.source))) {
            return Err(refused(format!(
                "the folder `{}` holds the engine's socket, and whoever reaches that is root on the host; choose another \
                 folder",
                exposed.source
            )));
        }
        let given = Circumstances {
            facts: self.facts,
            options: self.options,
            runner,
            owner: owner(&workspace, runner)?,
            demanded: self.context.floor.identity,
            writable: places.iter().map(|place| &place.is).filter(|is| is_writable(is)).collect(),
        };
        let people = People::choose(&given);
        bound.extend(self.furnish(&place, &people)?);
        let memory = in_memory(&self.image.volumes, &bound)?;
        writable.extend(memory.clone());
        roots.push(Root { path: OUTPUT.to_owned(), access: Access::ReadOnly });
        roots.extend(WRITABLE.map(|path| Root { path: path.to_owned(), access: Access::ReadWrite }));
        let limits = &self.context.limits;
        let hello = Hello {
            roots,
            workdir: WORKSPACE.to_owned(),
            env: self.variables(),
            spill_dir: Some(OUTPUT.to_owned()),
            quota: Some(Quota {
                path: WORKSPACE.to_owned(),
                allowed: DiskUsage { bytes: limits.disk(), inodes: limits.inodes() },
                // What a user has there already is not the sandbox's.
                counted: if data.is_workspace(&workspace) { Counted::Everything } else { Counted::Growth },
            }),
            rules: rules(limits, writable),
            ..Hello::default()
        };
        // Nobody watches over the others.
        let is_bounded = self.context.allowed_paths.is_empty()
            && self.options.volumes.iter().all(|volume| volume.access == Access::ReadOnly);
        let layout = layout(self.options, self.context)?;
        let disk = Boundary::enforced_if(is_bounded);
        Ok(Prepared { hello, layout, bound, memory, people, place, left, disk })
    }

    /// The host's folders must be the container's, and what commands write there the host's.
    fn check_folders_are_shared(&self) -> Result<(), SandboxError> {
        let refused = |why: &str| {
            let message = format!("containers of `{}` cannot be used: {why}", self.address);
            Err(SandboxError::new(SandboxErrorKind::Unavailable, message))
        };
        if self.facts.maps_users {
            return refused(
                "the engine maps users (`userns-remap`), so what commands write would be nobody's on the host; use an \
                 engine that does not, or a rootless one",
            );
        }
        if !self.address.is_local() {
            return refused(
                "it shares no folders with this host; use an engine of this machine, by its socket",
            );
        }
        Ok(())
    }

    /// What every container has of the host's: the guest, the shelves, and who its user is.
    fn furnish(&self, place: &Place, people: &People) -> Result<Vec<Bound>, SandboxError> {
        let failed = |error| unavailable("a sandbox's folder cannot be furnished", error);
        let fixed = |source: &Path, target: &str| {
            Ok(Bound { source: text(source)?, target: target.to_owned(), access: Access::ReadOnly })
        };
        let output = place.output();
        match people.numbers.filter(|_| rustix::process::geteuid().is_root() && !self.facts.is_rootless) {
            Some((user, group)) => chown(&output, Some(user), Some(group)).map_err(failed)?,
            // Whoever that is on the host; nobody but the host and the engine gets there.
            None => fs::set_permissions(&output, fs::Permissions::from_mode(0o777)).map_err(failed)?,
        }
        let output = Bound { source: text(&output)?, target: OUTPUT.to_owned(), access: Access::ReadWrite };
        let mut furniture = vec![output, fixed(&self.premises.guest, GUEST)?];
        if let Some((user, group)) = people.numbers {
            let passwd = format!(
                "{NAME}:x:{user}:{group}::{HOME}:/bin/sh\nroot:x:0:0:root:/root:/usr/sbin/nologin\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            );
            let groups = format!("{NAME}:x:{group}:\nroot:x:0:\nnogroup:x:65534:\n");
            for (name, content) in [("passwd", passwd), ("group", groups)] {
                let path = place.path().join(name);
                fs::write(&path, content).map_err(failed)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).map_err(failed)?;
                furniture.push(fixed(&path, &format!("/etc/{name}"))?);
            }
        }
        Ok(furniture)
    }

    /// The image's own on top of a sandbox's usual ones, and on top of these the context's.
    fn variables(&self) -> BTreeMap<String, String> {
        // The host's language is one that the image may not have.
        let host = self.environment.iter().filter(|(name, _)| *name == "TZ");
        let host = host.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut variables = usual_variables(&host, &self.context.limits);
        variables.extend(self.image.environment.clone());
        variables.extend(self.context.environment.clone());
        variables
    }

    fn volume(&self, volume: &Volume) -> Result<Bound, SandboxError> {
        let source = source(volume)?;
        self.premises.data.check_apart(&source, "volume")?;
        let target = inner(&volume.target)?;
        if let Some(reserved) = RESERVED.iter().find(|reserved| Path::new(reserved).starts_with(&target)) {
            return Err(refused(format!(
                "the volume `{}` would take the place of the sandbox's own `{reserved}`; choose another target",
                volume.target.display()
            )));
        }
        Ok(Bound { source: text(&source)?, target, access: volume.access })
    }

    /// Whether the engine's socket, or its link, lies in this folder, or is it.
    fn holds_the_engine(&self, source: &Path) -> bool {
        let EngineAddress::Unix(socket) = self.address else { return false };
        let real = fs::canonicalize(socket);
        socket.starts_with(source) || real.is_ok_and(|real| real.starts_with(source))
    }
}

/// Where a container for this context has things; blocks.
pub(super) fn layout(options: &DockerOptions, context: &ExecutionContext) -> Result<Layout, SandboxError> {
    let mut layout = jail_layout(context)?;
    for volume in &options.volumes {
        layout.read_only.push((source(volume)?, inner(&volume.target)?.into()));
    }
    Ok(layout)
}

/// What the host has of a volume.
fn source(volume: &Volume) -> Result<PathBuf, SandboxError> {
    let source = fs::canonicalize(&volume.host).map_err(|error| absent("volume", &volume.host, &error))?;
    if source.is_dir() { folder("volume", &source) } else { Ok(source) }
}

fn bind(path: &str, is: &PlaceKind) -> Option<Bound> {
    match is {
        PlaceKind::Bind(bind) => {
            Some(Bound { source: bind.source.clone(), target: path.to_owned(), access: bind.access })
        }
        _ => None,
    }
}

/// What is for reading only must not be there for writing by another name.
fn check_fixed(bound: &[Bound]) -> Result<(), SandboxError> {
    let with = |access| bound.iter().filter(move |bound| bound.access == access);
    for (fixed, open) in
        with(Access::ReadOnly).flat_map(|fixed| with(Access::ReadWrite).map(move |open| (fixed, open)))
    {
        let (fixed, open) = (Path::new(&fixed.source), Path::new(&open.source));
        Kept::Shown.check(fixed, fixed, open, "folder", open)?;
    }
    Ok(())
}

fn is_writable(is: &PlaceKind) -> bool {
    matches!(is, PlaceKind::Bind(bind) if bind.access == Access::ReadWrite)
}

/// The workspace's owner; the host, where that is a user of sandboxes that a crashed host has left it with.
fn owner(workspace: &Path, runner: Runner) -> Result<(u32, u32), SandboxError> {
    let found = fs::metadata(workspace).map_err(|error| absent("workspace", workspace, &error))?;
    Ok(match (runner.left("", found.uid()), runner.own()) {
        (Some(_), Owner::Mapped { uid, gid }) => (uid, gid),
        _ => (found.uid(), found.gid()),
    })
}

/// What commands may not do, beyond what the container forbids. Nothing in `/proc` is written, or they could make themselves
/// the last that are killed when memory runs out.
fn rules(limits: &Limits, writable: Vec<String>) -> CommandRules {
    let own = WRITABLE.into_iter().chain(["/var/tmp", "/dev/pts", "/dev/mqueue"]).map(str::to_owned);
    let files = FileRules {
        read: vec!["/".to_owned()],
        write: own.chain(writable).collect(),
        devices: DEVICES.into_iter().chain(["/dev/pts", "/dev/ptmx"]).map(str::to_owned).collect(),
        // It is no mount of its own for them, as it is in a jail.
        output: OutputRule::GuestAlone,
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
