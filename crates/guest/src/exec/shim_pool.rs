//! Keeps one idle shim for reuse.
//!
//! A shim whose program left nothing running serves the next program. That saves a fork of the guest, and copies
//! of its memory. State: the idle shim. If it is killed, the next program gets a new one.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal};

use super::shim_protocol::{LaunchRequest, send_request};

/// A shim that was not reaped, and the guest's end of its channel.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(super) pid: Pid,
    pub(super) channel: OwnedFd,
    pub(super) footprint: MemoryFootprint,
}

/// How much of the guest's memory a shim holds: a copy of what the guest held at the fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryFootprint {
    /// Little.
    Small,
    /// Also output of other programs. Such a shim is not kept after its program.
    Large,
}

impl Shim {
    /// Returns its process id.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }
}

/// The idle shim, if there is one.
#[derive(Debug, Default)]
pub(crate) struct ShimPool {
    idle: Option<Shim>,
}

impl ShimPool {
    /// Keeps an idle shim. A second one is dropped: its channel closes, and it exits.
    pub(crate) fn keep(&mut self, shim: Shim) {
        if shim.footprint == MemoryFootprint::Small {
            self.idle.get_or_insert(shim);
        }
    }

    /// Drops the idle shim, which makes it exit.
    pub(crate) fn release(&mut self) {
        self.idle = None;
    }

    /// Removes a shim that was reaped.
    pub(crate) fn forget(&mut self, pid: Pid) {
        self.idle.take_if(|shim| shim.pid == pid);
    }

    /// Sends the request to the idle shim. `None` when there is none, or it does not accept the request.
    pub(super) fn try_reuse(
        &mut self,
        request: &LaunchRequest<'_>,
        descriptors: [BorrowedFd<'_>; 3],
    ) -> Option<Shim> {
        self.idle.as_ref()?;
        let message = request.message()?;
        let shim = self.idle.take()?;
        // A command may have stopped it.
        let _ = rustix::process::kill_process(shim.pid, Signal::CONT);
        send_request(&shim.channel, &message, descriptors).ok().map(|()| shim)
    }
}
