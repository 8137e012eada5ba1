//! The inner process: process 1 of the jail, from its first moment to the guest's life in it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};
use rustix::process::{Signal, fchdir, pivot_root};

use conjure_guest::protocol::{Confinement, JailSpec, SetupStep};

use crate::fortress::{OomScore, Pressure};
use crate::sys;

use super::build::Root;
use super::failure::{Done, at, because};
use super::sources::Sources;
use super::{identity, shares};

/// What the guest has from its set-up.
#[derive(Debug)]
pub(crate) struct Inside {
    /// For the greeting.
    pub(crate) confinement: Confinement,
    /// Opened while the control groups could still be seen.
    pub(crate) pressure: Pressure,
    /// Opened while it could be written.
    pub(crate) oom_score: OomScore,
    /// The folder of cut output, which commands see for reading only.
    pub(crate) output: Option<OwnedFd>,
}

/// Makes this process end with the outer one, `outer`.
pub(super) fn follow(outer: &OwnedFd) -> Done<()> {
    let process = |errno| at(SetupStep::Process, "tie the jail's first process to its parent")(errno);
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(process)?;
    // One that died before the line above sends no signal any more.
    let mut died = [PollFd::new(outer, PollFlags::IN)];
    match poll(&mut died, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).map_err(process)? {
        0 => Ok(()),
        _ => Err(because(SetupStep::Process, "tie the jail's first process to its parent", "it is gone")),
    }
}

/// Builds the jail and moves into it.
pub(super) fn enter(spec: &JailSpec, sources: Option<Sources>) -> Done<Inside> {
    let pressure = Pressure::open(&spec.cgroups);
    // What is mounted here stays here, and what the host mounts stays out.
    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", apart).map_err(at(SetupStep::Root, "keep mounts to this jail"))?;
    let sources = match sources {
        Some(sources) => sources,
        None => Sources::open(spec)?,
    };
    // While it can be opened for writing: the jail's `/proc` is for reading only.
    let oom_score = OomScore::open();
    // The permission bits of places are those of the specification.
    rustix::process::umask(Mode::empty());
    let Sources { binds, output, handed_over } = sources;
    let mut root = Root::new()?;
    let mut binds = binds.into_iter();
    for place in &spec.places {
        root.make(place, &mut binds)?;
    }
    let mut writable = None;
    if let (Some(output), Some(folder)) = (output, &spec.output) {
        root.mount_source(&folder.path, output.readable)?;
        writable = Some(output.writable);
    }
    root.seal()?;
    // Mounting needs a namespace for a moment; nothing is mounted from here on.
    shares::lower_counts();
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    pivot(root.as_fd())?;
    rustix::system::sethostname(spec.hostname.as_bytes())
        .map_err(at(SetupStep::Root, format!("set the host name to `{}`", spec.hostname)))?;
    sys::switch_loopback_on().map_err(at(SetupStep::Loopback, "switch the loopback interface on"))?;
    identity::give_up_privileges()?;
    Ok(Inside { confinement: Confinement { handed_over }, pressure, oom_score, output: writable })
}

/// Makes `root` the root of this process, and lets go of the old one with everything in it.
fn pivot(root: impl AsFd) -> Done<()> {
    let refused = |errno| at(SetupStep::Pivot, "change to the jail's root")(errno);
    fchdir(root).map_err(refused)?;
    // The old root comes to lie over the new one, and is taken from it.
    pivot_root(".", ".").map_err(refused)?;
    unmount(".", UnmountFlags::DETACH).map_err(refused)?;
    rustix::process::chdir("/").map_err(refused)
}
