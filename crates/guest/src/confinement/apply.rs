//! Applies seccomp and Landlock once, before the first command. All child processes inherit both, at no cost per
//! call, and nothing can undo them. The guest reports what the machine does not support, and the host decides
//! whether that is acceptable.

use std::os::fd::OwnedFd;

use conjure_guest::protocol::{Access, EnforcedRules, FileRule, Hello, RuleStatus, SyscallRule};

use crate::sys;

use super::seccomp_rules::{self, Preallocation};
use super::{Instruction, landlock};

/// The confinement of each command, in addition to the guest's own.
#[derive(Debug, Default)]
pub(crate) struct CommandConfinement {
    /// A Landlock ruleset, if there is one.
    pub(crate) landlock_ruleset: Option<OwnedFd>,
    /// A system call filter. Empty when there is none.
    pub(crate) syscall_filter: Vec<Instruction>,
}

/// Applies the rules of [`Hello`] to this process. The directories of [`Hello`] must be open already. Also returns the
/// confinement of each command.
pub(crate) fn apply(hello: &Hello) -> (EnforcedRules, CommandConfinement) {
    let rules = &hello.rules;
    let mut in_force = EnforcedRules::default();
    let mut for_commands = CommandConfinement::default();
    if rules.syscalls == SyscallRule::Open && rules.files == FileRule::Open {
        return (in_force, for_commands);
    }
    if let Err(errno) = rustix::thread::set_no_new_privs(true) {
        let reason = format!("`no_new_privs` cannot be set ({errno})");
        in_force.syscalls = rule_status(rules.syscalls == SyscallRule::Guarded, Err(reason.clone()));
        in_force.files = rule_status(rules.files != FileRule::Open, Err(reason));
        return (in_force, for_commands);
    }
    if let FileRule::Only(files) = &rules.files {
        let roots = hello.roots.iter().map(|root| (root.path.as_str(), root.access == Access::ReadWrite));
        let own = hello.spill_dir.iter().chain(&hello.content_root).map(String::as_str);
        let result = landlock::apply_ruleset(files, roots, own).map(|result| {
            in_force.landlock_abi = result.abi;
            for_commands.landlock_ruleset = result.for_commands;
        });
        in_force.files = rule_status(true, result);
    }
    // Last, since the filter refuses the calls above.
    if rules.syscalls == SyscallRule::Guarded {
        // File systems request keys on behalf of their users. The new keyring has none.
        let _ = sys::join_new_keyring();
        in_force.syscalls = rule_status(true, install_filter(preallocation(hello)));
        if in_force.syscalls == RuleStatus::Enforced {
            for_commands.syscall_filter = seccomp_rules::filter_for_commands().unwrap_or_default();
        }
    }
    (in_force, for_commands)
}

fn preallocation(hello: &Hello) -> Preallocation {
    if hello.quota.is_some() { Preallocation::Refused } else { Preallocation::Allowed }
}

fn install_filter(preallocation: Preallocation) -> Result<(), String> {
    let guest = rustix::process::getpid().as_raw_nonzero().get();
    let Some(program) = seccomp_rules::filter(guest, preallocation) else {
        return Err("this architecture has no system call filter".to_owned());
    };
    sys::filter_syscalls(&program).map_err(|errno| {
        format!("the kernel accepts no system call filter ({errno}); it needs CONFIG_SECCOMP_FILTER")
    })
}

fn rule_status(is_asked: bool, result: Result<(), String>) -> RuleStatus {
    match result {
        _ if !is_asked => RuleStatus::NotRequested,
        Ok(()) => RuleStatus::Enforced,
        Err(reason) => RuleStatus::Unsupported(reason),
    }
}
