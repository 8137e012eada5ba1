//! Process 1 of the jail: it builds the root file system, drops all privileges, and runs the guest.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Signal, fchdir, pivot_root};

use conjure_guest::protocol::{Confinement, JailSpec, SetupStep};

use crate::confinement::{CgroupEvents, OomScore};
use crate::sys;

use super::mount_sources::MountSources;
use super::rootfs::RootfsBuilder;
use super::setup_error::{SetupResult, setup_error, with_reason};
use super::{identity, user_limits};

/// What the set-up of the jail prepared for the guest.
#[derive(Debug)]
pub(crate) struct InitEnv {
    /// For the handshake.
    pub(crate) confinement: Confinement,
    /// Opened while the cgroups were still visible.
    pub(crate) cgroup_events: CgroupEvents,
    /// Opened while it was writable.
    pub(crate) oom_score: OomScore,
    /// The directory for spill files, which is read-only for commands.
    pub(crate) output: Option<OwnedFd>,
}

/// Makes the kernel kill this process when the process `parent` dies.
pub(super) fn tie_to_parent(parent: &OwnedFd) -> SetupResult<()> {
    let process =
        |errno| setup_error(SetupStep::Process, "tie the jail's first process to its parent")(errno);
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(process)?;
    // A parent that died before the call above sends no signal.
    let mut died = [PollFd::new(parent, PollFlags::IN)];
    match poll(&mut died, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_err(process)? {
        0 => Ok(()),
        _ => Err(with_reason(SetupStep::Process, "tie the jail's first process to its parent", "it is gone")),
    }
}

/// Builds the jail and enters it.
pub(super) fn enter(spec: &JailSpec, sources: Option<MountSources>) -> SetupResult<InitEnv> {
    let cgroup_events = CgroupEvents::open(&spec.cgroups);
    // Keeps mounts private to this jail, in both directions.
    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", apart).map_err(setup_error(SetupStep::Root, "keep mounts to this jail"))?;
    let sources = match sources {
        Some(sources) => sources,
        None => MountSources::open(spec)?,
    };
    // Open it while it is writable: `/proc` of the jail is read-only.
    let oom_score = OomScore::open();
    // The specification sets all permission bits.
    rustix::process::umask(Mode::empty());
    let MountSources { binds, output, chowned_paths: handed_over } = sources;
    let mut root = RootfsBuilder::new()?;
    let mut binds = binds.into_iter();
    for entry in &spec.mounts {
        root.make(entry, &mut binds)?;
    }
    let mut writable = None;
    if let (Some(output), Some(dir)) = (output, &spec.output) {
        root.mount_source(&dir.path, output.readable)?;
        writable = Some(output.writable);
    }
    root.seal()?;
    // Mounting needs a temporary namespace. Nothing is mounted from here on.
    user_limits::lower_counts();
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    pivot(root.as_fd())?;
    rustix::system::sethostname(spec.hostname.as_bytes())
        .map_err(setup_error(SetupStep::Root, format!("set the host name to `{}`", spec.hostname)))?;
    sys::switch_loopback_on()
        .map_err(setup_error(SetupStep::Loopback, "switch the loopback interface on"))?;
    identity::give_up_privileges()?;
    Ok(InitEnv {
        confinement: Confinement { chowned_paths: handed_over },
        cgroup_events,
        oom_score,
        output: writable,
    })
}

/// Changes the root of this process to `root`, and unmounts the old root.
fn pivot(root: impl AsFd) -> SetupResult<()> {
    let failed = |errno| setup_error(SetupStep::Pivot, "change to the jail's root")(errno);
    fchdir(root).map_err(failed)?;
    // The old root is mounted over the new one, and unmounted from there.
    pivot_root(".", ".").map_err(failed)?;
    unmount(".", UnmountFlags::DETACH).map_err(failed)?;
    rustix::process::chdir("/").map_err(failed)
}
