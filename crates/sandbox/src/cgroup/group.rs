//! The control group of one sandbox: a directory in each hierarchy that limits a resource.
//!
//! Dropping it kills the remaining processes and removes the group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cgroup_state::{CgroupState, Controller, ParentGroup, unavailable};
use super::hierarchy::Version;
use crate::error::SandboxError;
use crate::settings::limits::Limits;

/// Additional processes for the guest, its shims and its workers, so that a fork bomb cannot keep the guest from
/// ending it.
const RESERVED_PROCESSES: u32 = 64;

/// The period over which processor time is counted, in microseconds.
const PERIOD: u32 = 100_000;

/// A group that exists until this is dropped.
#[derive(Debug)]
pub struct Cgroup {
    dirs: Vec<PathBuf>,
    shared: Arc<CgroupState>,
}

impl Cgroup {
    pub(super) const fn new(shared: Arc<CgroupState>) -> Self {
        Self { dirs: Vec::new(), shared }
    }

    /// Creates the directory, which belongs to this group from then on.
    pub(super) fn claim(&mut self, dir: PathBuf) -> io::Result<()> {
        fs::create_dir(&dir)?;
        self.dirs.push(dir);
        Ok(())
    }

    /// Sets the limits of the controllers of `parent` in the group's directory there.
    pub(super) fn limit(
        &self,
        parent: &ParentGroup,
        dir: &Path,
        limits: &Limits,
    ) -> Result<(), SandboxError> {
        for controller in &parent.controllers {
            limit(*controller, parent.version, dir, limits).map_err(|error| {
                let what = format!("does not take the limit of `{}`", controller.name());
                unavailable(&what, dir, &error)
            })?;
        }
        Ok(())
    }

    /// The directories that the sandbox's first process joins, by writing to `tasks` or `cgroup.procs` in each.
    #[must_use]
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for dir in self.dirs.drain(..) {
            self.shared.remove_later(dir);
        }
    }
}

fn limit(controller: Controller, version: Version, dir: &Path, limits: &Limits) -> io::Result<()> {
    let set = |file: &str, value: String| fs::write(dir.join(file), value);
    // Not every kernel has these files. Without them, the limit is the same or a little looser.
    let set_if_there = |file: &str, value: String| match set(file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written,
    };
    match (controller, version) {
        (Controller::Memory, Version::One) => {
            set("memory.limit_in_bytes", limits.memory().to_string())?;
            // Swap counts towards the limit. Where swap is not accounted, the group at least avoids it.
            set_if_there("memory.memsw.limit_in_bytes", limits.memory().to_string())?;
            set_if_there("memory.swappiness", "0".to_owned())
        }
        (Controller::Memory, Version::Two) => {
            set("memory.max", limits.memory().to_string())?;
            set_if_there("memory.swap.max", "0".to_owned())
        }
        (Controller::Pids, _) => {
            set("pids.max", limits.processes().saturating_add(RESERVED_PROCESSES).to_string())
        }
        (Controller::Cpu, version) => {
            let quota = u64::from(limits.millicpus()) * u64::from(PERIOD) / 1000;
            let written = match version {
                Version::One => set("cpu.cfs_period_us", PERIOD.to_string())
                    .and_then(|()| set("cpu.cfs_quota_us", quota.to_string())),
                Version::Two => set("cpu.max", format!("{quota} {PERIOD}")),
            };
            match written {
                // A parent group has a lower limit than this, which the kernel enforces.
                Err(error) if version == Version::One && error.kind() == io::ErrorKind::InvalidInput => {
                    Ok(())
                }
                written => written,
            }
        }
    }
}
