//! The shim that waits for work.
//!
//! A shim whose program left nothing behind is kept, one at a time, for the next program: that spares a fork of the guest, and
//! the copies of memory that come with it. State: which one that is. If it is killed meanwhile, the next program gets a new
//! one.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal};

use super::line::{Order, send_order};

/// A shim that is not reaped, and the guest's end of its line.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(super) pid: Pid,
    pub(super) line: OwnedFd,
    pub(super) burden: Burden,
}

/// How much of the guest's memory a shim has, which is what there was when it was forked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Burden {
    /// Little.
    Light,
    /// The output of other programs, too: it is not to be held for longer than one program runs.
    Heavy,
}

impl Shim {
    /// Its process.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }
}

/// Shims that wait for work.
#[derive(Debug, Default)]
pub(crate) struct Shims {
    idle: Option<Shim>,
}

impl Shims {
    /// Keeps a shim that is idle. One too many ends itself, its line being closed.
    pub(crate) fn keep(&mut self, shim: Shim) {
        if shim.burden == Burden::Light {
            self.idle.get_or_insert(shim);
        }
    }

    /// Lets the idle shim end itself.
    pub(crate) fn let_go(&mut self) {
        self.idle = None;
    }

    /// A shim was reaped.
    pub(crate) fn reaped(&mut self, pid: Pid) {
        self.idle.take_if(|shim| shim.pid == pid);
    }

    /// Has the idle shim run a program, if there is one that takes the order.
    pub(super) fn take_up(&mut self, order: &Order<'_>, descriptors: [BorrowedFd<'_>; 3]) -> Option<Shim> {
        self.idle.as_ref()?;
        let message = order.message()?;
        let shim = self.idle.take()?;
        // A command may have stopped it.
        let _ = rustix::process::kill_process(shim.pid, Signal::CONT);
        send_order(&shim.line, &message, descriptors).ok().map(|()| shim)
    }
}
