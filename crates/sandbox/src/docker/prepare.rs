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
use super::meant::Meant;
use super::options::{DockerOptions, Volume};
use super::people::{Circumstances, People};
use super::premises::Premises;
use super::spec::{Bound, GUEST};
use super::stock::{SHELVES, Stock};
use crate::context::ExecutionContext;
use crate::error::SandboxError;
use crate::guest_process::{absent, folder, text, unavailable};
use crate::isolation::Boundary;
use crate::jail::{
    CLOSED, DEVICES, Folders, FromShelves, HOME, Kept, NAME, OUTPUT, RESERVED, Runner, WORKSPACE, WRITABLE,
    inner, jail_layout, refused, usual_variables,
};
use crate::limits::Limits;
use crate::places::Place;
use crate::provision::Shelf;
use crate::transfer::Transfer;
use crate::types::{Layout, Sharing};

/// Where engines listen, and what they are made of, when root runs them.
const SOCKETS: [&str; 4] =
    ["/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// What a container will be.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) hello: Hello,
    pub(super) layout: Layout,
    pub(super) bound: Vec<Bound>,
    /// Which folders of the host's those are.
    pub(super) meant: Meant,
    /// Where the image wants volumes, and has memory.
    pub(super) memory: Vec<String>,
    pub(super) people: People,
    /// `None`: nothing of it is on this machine.
    pub(super) place: Option<Place>,
    /// What it is made of, and what travels through its guest, where it has none of this machine's folders.
    pub(super) elsewhere: Option<Elsewhere>,
    /// What a host that crashed left with a user of its sandboxes: to be taken back first.
    pub(super) left: Vec<TakeBack>,
    /// Whether the disk that it takes is bounded.
    pub(super) disk: Boundary,
}

/// What there is of a container that has none of this machine's folders.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) archive: Vec<u8>,
    pub(super) transfer: Transfer,
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
        if self.facts.sharing(self.address) == Sharing::Transferred {
            return self.prepare_elsewhere();
        }
        let runner = Runner::choose();
        let data = &self.premises.data;
        let place = data.sandboxes().make()?;
        let Folders { places, mut roots, mut writable, left, workspace, .. } =
            Folders::of(self.context, runner, FromShelves { data, place: Some(&place) })?;
        let mut bound: Vec<Bound> = places.iter().filter_map(|place| bind(&place.path, &place.is)).collect();
        for volume in &self.options.volumes {
            let volume = self.volume(volume)?;
            if let Some(other) = bound.iter().find(|bound| bound.target == volume.target) {
                return Err(refused(format!(
                    "the volume `{}` would take the place of `{}`, which is at `{}` already; choose another target",
                    volume.source, other.source, other.target
                )));
            }
            roots.push(Root { path: volume.target.clone(), access: volume.access });
            match volume.access {
                Access::ReadWrite => writable.push(volume.target.clone()),
                Access::ReadOnly => {}
            }
            bound.push(volume);
        }
        check_fixed(&bound)?;
        if let Some(exposed) = bound.iter().find(|bound| self.holds_an_engine(Path::new(&bound.source))) {
            return Err(refused(format!(
                "the folder `{}` holds the socket of a container engine, and whoever reaches that is root on the host; choose another \
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
        let meant = Meant::of(&roots, &bound)?;
        bound.extend(self.furnish(&place, &people)?);
        let memory = in_memory(&self.image.volumes, &bound)?;
        writable.extend(memory.clone());
        // What a user has there already is not the sandbox's.
        let counted = if data.is_workspace(&workspace) { Counted::Everything } else { Counted::Growth };
        let hello = self.hello(roots, writable, counted);
        // Nobody watches over the others.
        let is_bounded = self.context.allowed_paths.is_empty()
            && self.options.volumes.iter().all(|volume| volume.access == Access::ReadOnly);
        let layout = layout(self.options, self.context)?;
        let (place, disk) = (Some(place), Boundary::watched_if(is_bounded));
        Ok(Prepared { hello, layout, bound, meant, memory, people, place, elsewhere: None, left, disk })
    }

    /// The same where the engine has none of this machine's folders: places are the same, content travels.
    fn prepare_elsewhere(&self) -> Result<Prepared, SandboxError> {
        let data = &self.premises.data;
        let Folders { mut roots, layout, writable, left, workspace, provisions, .. } =
            Folders::of(self.context, Runner::choose(), FromShelves { data, place: None })?;
        self.check_nothing_is_shared(&workspace)?;
        let people = People::elsewhere(self.facts, self.options);
        let Stock { archive, bound } = Stock::of(&people, people.numbers.map(names));
        // The roots of the context are the shelves and the workspace alone.
        roots.retain(|root| bound.iter().any(|bound| bound.target == root.path));
        let memory = in_memory(&self.image.volumes, &bound)?;
        let writable = writable.into_iter().chain(memory.clone()).collect();
        let hello =
            Hello { shelves: Some(SHELVES.to_owned()), ..self.hello(roots, writable, Counted::Everything) };
        let most = self.context.limits.disk();
        let transfer = Transfer { provisions, workspace, room: most, bring_back: most };
        let elsewhere = Some(Elsewhere { archive, transfer });
        let disk = Boundary::Watched;
        let meant = Meant::default();
        Ok(Prepared { hello, layout, bound, meant, memory, people, place: None, elsewhere, left, disk })
    }

    fn hello(&self, mut roots: Vec<Root>, writable: Vec<String>, counted: Counted) -> Hello {
        roots.push(Root { path: OUTPUT.to_owned(), access: Access::ReadOnly });
        roots.extend(WRITABLE.map(|path| Root { path: path.to_owned(), access: Access::ReadWrite }));
        let limits = &self.context.limits;
        let allowed = DiskUsage { bytes: limits.disk(), inodes: limits.inodes() };
        Hello {
            roots,
            workdir: WORKSPACE.to_owned(),
            env: self.variables(),
            spill_dir: Some(OUTPUT.to_owned()),
            quota: Some(Quota { path: WORKSPACE.to_owned(), allowed, counted }),
            rules: rules(limits, writable),
            ..Hello::default()
        }
    }

    /// Refuses what could only be the host's folder itself.
    fn check_nothing_is_shared(&self, workspace: &Path) -> Result<(), SandboxError> {
        let engine =
            if self.address.is_local() { "maps users (`userns-remap`)" } else { "is on another machine" };
        let refused = |what: &str, path: &Path, instead: &str| {
            Err(refused(format!(
                "the {what} `{}` cannot be given to containers of `{}`: the engine {engine}, so no folder is shared with it; \
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
        let is_shelved = |target: &Path| Shelf::ALL.iter().any(|shelf| target.starts_with(shelf.path()));
        if let Some(shared) = self.context.read_only.iter().find(|shared| !is_shelved(&shared.target)) {
            return refused(
                "read-only folder",
                &shared.host,
                "have it at `/mnt/skills/NAME` or `/artifacts/NAME`, where a copy of it is taken",
            );
        }
        if !self.premises.data.is_workspace(workspace) {
            let instead = "work in a session's own workspace, of which copies travel there and back, or use an engine of this \
                           machine";
            return refused("workspace", workspace, instead);
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
        if let Some(numbers) = people.numbers {
            let (passwd, groups) = names(numbers);
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
        let takes = RESERVED.iter().find(|reserved| Path::new(reserved).starts_with(&target));
        let within =
            CLOSED.iter().chain(&["/.conjure"]).find(|closed| Path::new(&target).starts_with(closed));
        if let Some(reserved) = takes.or(within) {
            return Err(refused(format!(
                "the volume `{}` would take the place of the sandbox's own `{reserved}`; choose another target",
                volume.target.display()
            )));
        }
        Ok(Bound { source: text(&source)?, target, access: volume.access })
    }

    /// Whether the socket of this engine, or of another one that is usual, or a link to it, lies in this folder, or is it.
    fn holds_an_engine(&self, source: &Path) -> bool {
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

/// What commands find in `/etc/passwd` and `/etc/group`.
fn names((user, group): (u32, u32)) -> (String, String) {
    let passwd = format!(
        "{NAME}:x:{user}:{group}::{HOME}:/bin/sh\nroot:x:0:0:root:/root:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let groups = format!("{NAME}:x:{group}:\nroot:x:0:\nnogroup:x:65534:\n");
    (passwd, groups)
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
