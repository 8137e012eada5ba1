//! Finds which control groups this process may create, and creates the groups of sandboxes.
//!
//! Only processes of the sandbox are moved into a group. State: groups that could not be removed yet because the
//! kernel still had a process in them. The removal is tried again whenever a group is created, and by a sweep. After
//! a crash of this process, its groups stay, empty, until [`Cgroups::sweep`] removes them.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use conjure_base::lock;
use rustix::fs::Access;

use super::cgroup_state::{CgroupState, Controller, MissingController, ParentGroup, remove_all, unavailable};
use super::group::Cgroup;
use super::hierarchy::{Hierarchy, Version, hierarchies};
use super::owner_process::OwnerProcess;
use crate::error::SandboxError;
use crate::settings::isolation::{Boundary, Isolation};
use crate::settings::limits::Limits;

/// The control groups that this process can create on this machine.
#[derive(Debug, Clone)]
pub struct Cgroups {
    shared: Arc<CgroupState>,
}

impl Cgroups {
    /// Finds where this process may create groups. In version 2 it enables a controller in a group of its own branch,
    /// if that is permitted and affects nothing else.
    #[must_use]
    pub fn detect() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Self::from_hierarchies(&hierarchies(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")))
    }

    pub(super) fn from_hierarchies(hierarchies: &[Hierarchy]) -> Self {
        let mut parents = Vec::new();
        let mut missing = Vec::new();
        for controller in Controller::ALL {
            match find_parent(controller, hierarchies) {
                Ok((version, dir)) => {
                    let known = parents
                        .iter_mut()
                        .find(|parent: &&mut ParentGroup| parent.dir == dir && parent.version == version);
                    match known {
                        Some(parent) => parent.controllers.push(controller),
                        None => parents.push(ParentGroup { version, dir, controllers: vec![controller] }),
                    }
                }
                Err((reason, hint)) => {
                    missing.push(MissingController { controller: controller.name(), reason, hint });
                }
            }
        }
        let owner =
            OwnerProcess::current().inspect_err(|error| tracing::warn!(%error, "no control groups")).ok();
        let shared = CgroupState {
            parents: if owner.is_some() { parents } else { Vec::new() },
            missing,
            owner,
            // Random, because other values of this type in this process create groups, too.
            next: AtomicU64::new(RandomState::new().build_hasher().finish()),
            pending_removal: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What cannot be limited, and the reasons.
    #[must_use]
    pub fn missing(&self) -> &[MissingController] {
        &self.shared.missing
    }

    /// The boundaries that groups enforce on this machine: some of memory, processor and process count.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        let has = |controller| {
            Boundary::enforced_if(
                self.shared.parents.iter().any(|parent| parent.controllers.contains(&controller)),
            )
        };
        Isolation {
            memory: has(Controller::Memory),
            processor: has(Controller::Cpu),
            process_count: has(Controller::Pids),
            ..Isolation::NONE
        }
    }

    /// Creates a group with these limits, as far as limits can be set here. It contains no process yet. Its file
    /// accesses do not block.
    ///
    /// # Errors
    /// If a group cannot be created, or a limit cannot be set, although it should be possible. Then nothing of the
    /// group remains.
    pub fn make(&self, limits: &Limits) -> Result<Cgroup, SandboxError> {
        self.shared.remove_pending();
        let Some(owner) = &self.shared.owner else { return Ok(Cgroup::new(Arc::clone(&self.shared))) };
        loop {
            let name = owner.name(self.shared.next.fetch_add(1, Ordering::Relaxed));
            if let Some(group) = self.make_named(&name, limits)? {
                return Ok(group);
            }
        }
    }

    /// Creates the group of this name; `None` if another value of this type in the same process has taken the name.
    fn make_named(&self, name: &str, limits: &Limits) -> Result<Option<Cgroup>, SandboxError> {
        let mut group = Cgroup::new(Arc::clone(&self.shared));
        for parent in &self.shared.parents {
            let dir = parent.dir.join(name);
            match group.claim(dir.clone()) {
                Ok(()) => group.limit(parent, &dir, limits)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
                Err(error) => return Err(unavailable("cannot be made", &dir, &error)),
            }
        }
        Ok(Some(group))
    }

    /// Removes the groups of dead processes, and kills processes that are still in them. Returns the number of
    /// groups. Blocks for up to half a second while killed processes end; a group that is still not empty is removed
    /// later.
    pub fn sweep(&self) -> usize {
        self.shared.remove_pending();
        let mut left: Vec<PathBuf> = Vec::new();
        for parent in &self.shared.parents {
            for entry in fs::read_dir(&parent.dir).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let owner = name.to_str().and_then(OwnerProcess::parse);
                if owner.is_some_and(|owner| owner.is_dead()) {
                    left.push(entry.path());
                }
            }
        }
        let found = left.len();
        remove_all(&mut left);
        for dir in &left {
            tracing::warn!(group = %dir.display(), "the control group of a dead process is not empty yet");
        }
        let removed = found - left.len();
        lock(&self.shared.pending_removal).append(&mut left);
        removed
    }
}

/// A version, and a group in which groups can be created.
type ParentPath = (Version, PathBuf);
/// Why no group can be created, and a hint.
type MissingReason = (String, &'static str);

/// Finds a group in which groups with this controller can be created.
fn find_parent(controller: Controller, hierarchies: &[Hierarchy]) -> Result<ParentPath, MissingReason> {
    const DELEGATE: &str = "run the host under `systemd-run --user --scope -p Delegate=yes`, or as root";
    let name = controller.name();
    let one = hierarchies
        .iter()
        .find(|it| it.version == Version::One && it.controllers.iter().any(|known| known == name));
    if let Some(hierarchy) = one {
        return if is_writable(&hierarchy.own) {
            Ok((Version::One, hierarchy.own.clone()))
        } else {
            let reason = format!("`{}` cannot be written by this user", hierarchy.own.display());
            Err((reason, "run the host as root, or on a machine with cgroups of version 2"))
        };
    }
    let Some(hierarchy) = hierarchies.iter().find(|it| it.version == Version::Two) else {
        return Err(("no control groups are mounted".to_owned(), "mount cgroup2 at /sys/fs/cgroup"));
    };
    let mut reason = format!("`{}` cannot be written by this user", hierarchy.own.display());
    // Uses the nearest group that permits it, so that processes stay in the branch that they were started in.
    for dir in hierarchy.own.ancestors().take_while(|dir| dir.starts_with(&hierarchy.mount)) {
        if !read_words(&dir.join("cgroup.controllers")).iter().any(|word| word == name) {
            reason = format!("the controller `{name}` is not available in `{}`", dir.display());
            continue;
        }
        // To move a process, this process needs write permission in the nearest common ancestor of both groups.
        if !is_writable(dir) || !is_writable(&dir.join("cgroup.procs")) {
            continue;
        }
        let control = dir.join("cgroup.subtree_control");
        if read_words(&control).iter().any(|word| word == name)
            || fs::write(&control, format!("+{name}")).is_ok()
        {
            return Ok((Version::Two, dir.to_owned()));
        }
        reason = format!("`{}` has processes of its own, so nothing can be limited below it", dir.display());
    }
    Err((reason, DELEGATE))
}

fn read_words(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Whether this process may write, as the kernel decides.
fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}
