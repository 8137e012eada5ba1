//! Closing the guest in: once, at the greeting, before the first command. All that it starts inherits it, at no cost
//! for a call, and nothing undoes it. What the machine does not have is told, and is the host's to judge.

use std::os::fd::OwnedFd;

use conjure_guest::protocol::{Access, FileRule, Hello, InForce, RulesInForce, SyscallRule};

use crate::sys;

use super::syscalls::{self, Preallocation};
use super::{Instruction, landlock};

/// What each command must be put under besides what the guest itself is.
#[derive(Debug, Default)]
pub(crate) struct CommandWalls {
    /// Rules of Landlock, where there are any.
    pub(crate) files: Option<OwnedFd>,
    /// A filter of system calls; empty where there is none.
    pub(crate) syscalls: Vec<Instruction>,
}

/// Puts the rules of the greeting in force. The folders of the greeting must be open already. Yields, besides, what
/// each command must be put under.
pub(crate) fn close(hello: &Hello) -> (RulesInForce, CommandWalls) {
    let rules = &hello.rules;
    let mut in_force = RulesInForce::default();
    let mut for_commands = CommandWalls::default();
    if rules.syscalls == SyscallRule::Open && rules.files == FileRule::Open {
        return (in_force, for_commands);
    }
    if let Err(errno) = rustix::thread::set_no_new_privs(true) {
        let reason = format!("new privileges cannot be given up ({errno})");
        in_force.syscalls = asked(rules.syscalls == SyscallRule::Guarded, Err(reason.clone()));
        in_force.files = asked(rules.files != FileRule::Open, Err(reason));
        return (in_force, for_commands);
    }
    if let FileRule::Only(files) = &rules.files {
        let roots = hello.roots.iter().map(|root| (root.path.as_str(), root.access == Access::ReadWrite));
        let own = hello.spill_dir.iter().chain(&hello.shelves).map(String::as_str);
        let closed = landlock::close(files, roots, own).map(|closed| {
            in_force.landlock_abi = closed.abi;
            for_commands.files = closed.for_commands;
        });
        in_force.files = asked(true, closed);
    }
    // Last, since it refuses what comes before it.
    if rules.syscalls == SyscallRule::Guarded {
        // File systems ask for keys on behalf of whoever uses them; these are nobody's.
        let _ = sys::join_new_keyring();
        in_force.syscalls = asked(true, filter(preallocation(hello)));
        if in_force.syscalls == InForce::Yes {
            for_commands.syscalls = syscalls::filter_for_commands().unwrap_or_default();
        }
    }
    (in_force, for_commands)
}

fn preallocation(hello: &Hello) -> Preallocation {
    if hello.quota.is_some() { Preallocation::Refused } else { Preallocation::Allowed }
}

fn filter(preallocation: Preallocation) -> Result<(), String> {
    let guest = rustix::process::getpid().as_raw_nonzero().get();
    let Some(program) = syscalls::filter(guest, preallocation) else {
        return Err("there is no filter of system calls for this architecture".to_owned());
    };
    sys::filter_syscalls(&program).map_err(|errno| {
        format!("the kernel takes no filter of system calls ({errno}); it needs CONFIG_SECCOMP_FILTER")
    })
}

fn asked(is_asked: bool, closed: Result<(), String>) -> InForce {
    match closed {
        _ if !is_asked => InForce::NotAsked,
        Ok(()) => InForce::Yes,
        Err(reason) => InForce::No(reason),
    }
}
