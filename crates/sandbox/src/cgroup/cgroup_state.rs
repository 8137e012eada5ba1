//! State that all control groups of a process share: where they are created, and which ones must still be removed.
//!
//! State: the groups that could not be removed yet because the kernel still had a process in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use conjure_base::lock;
use rustix::process::{Pid, Signal};

use super::hierarchy::Version;
use super::owner_process::OwnerProcess;
use crate::error::{SandboxError, SandboxErrorKind};

/// A cgroup controller: it limits one resource of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

/// A controller that this process cannot use, with the reason and a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingController {
    /// `memory`, `cpu` or `pids`.
    pub controller: &'static str,
    /// The reason.
    pub reason: String,
    /// How to enable it.
    pub hint: &'static str,
}

/// State that all control groups of a process share.
#[derive(Debug)]
pub(super) struct CgroupState {
    pub(super) parents: Vec<ParentGroup>,
    pub(super) missing: Vec<MissingController>,
    pub(super) owner: Option<OwnerProcess>,
    pub(super) next: AtomicU64,
    /// Directories of groups that wait for the end of their last process.
    pub(super) pending_removal: Mutex<Vec<PathBuf>>,
}

/// A group in which groups can be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParentGroup {
    pub(super) version: Version,
    pub(super) dir: PathBuf,
    pub(super) controllers: Vec<Controller>,
}

/// How often a group is checked after its processes were killed.
const KILL_ROUNDS: usize = 20;

/// How often groups are checked after their processes were killed, at intervals of a millisecond.
const ROUNDS: usize = 500;

/// Removes groups, and keeps those that are not empty after half a second. Blocks meanwhile.
pub(super) fn remove_all(dirs: &mut Vec<PathBuf>) {
    for _ in 0..ROUNDS {
        dirs.retain(|dir| remove(dir).is_err());
        if dirs.is_empty() {
            return;
        }
        pause();
    }
}

/// Waits a millisecond for the kernel to remove killed processes. The kernel sends no notification.
fn pause() {
    let millisecond = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // If a signal interrupts the wait, it is only shorter.
    let _ = rustix::event::poll(&mut [], Some(&millisecond));
}

impl CgroupState {
    /// Removes the directory now or later.
    pub(super) fn remove_later(&self, dir: PathBuf) {
        if let Err(error) = remove(&dir) {
            tracing::debug!(%error, group = %dir.display(), "a control group is not empty yet");
            lock(&self.pending_removal).push(dir);
        }
    }

    pub(super) fn remove_pending(&self) {
        let mut pending = lock(&self.pending_removal);
        pending.retain(|dir| remove(dir).is_err());
    }
}

impl Drop for CgroupState {
    /// Waits for processes that were just killed, because no later call removes their groups.
    fn drop(&mut self) {
        remove_all(self.pending_removal.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Removes a group's directory. Kills processes that are still in the group.
fn remove(dir: &Path) -> io::Result<()> {
    let mut result = fs::remove_dir(dir);
    for _ in 0..KILL_ROUNDS {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => return result,
        }
        kill(dir);
        result = fs::remove_dir(dir);
    }
    result
}

/// Kills every process of the group. They end shortly afterwards.
fn kill(dir: &Path) {
    // Version 2, since Linux 5.14, does it without a race.
    if fs::write(dir.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let listed = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // A process of another pid namespace is listed as 0, and cannot be signalled.
    for pid in listed.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw)) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

pub(super) fn unavailable(what: &str, dir: &Path, error: &io::Error) -> SandboxError {
    let message = format!("the control group `{}` {what}: {error}", dir.display());
    SandboxError::new(SandboxErrorKind::Unavailable, message)
}
