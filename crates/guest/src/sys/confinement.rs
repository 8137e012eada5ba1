//! Calls by which a process confines itself: a system call filter, Landlock, and its own keyring. None of them can be
//! undone.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;

use crate::confinement::Instruction;

use super::process::last_errno;

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;
const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;

/// Applies a system call filter to this process and its future children. It must have set `no_new_privs`.
pub(crate) fn filter_syscalls(program: &[Instruction]) -> Result<(), Errno> {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_true,
            jf: instruction.jump_false,
            k: instruction.operand,
        })
        .collect();
    let length = u16::try_from(instructions.len()).map_err(|_| Errno::INVAL)?;
    let program = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // Kernels before 5.16 would enable speculation mitigations with a filter. They protect this process from
    // itself, and are slow.
    // SAFETY: the kernel copies the program, which lives until after the call, and checks every instruction of it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const program,
        )
    };
    check(result).map(drop)
}

/// Returns the version of Landlock.
pub(crate) fn landlock_abi() -> Result<u32, Errno> {
    let attributes: *const RulesetAttributes = ptr::null();
    // SAFETY: the call only asks for a number. It gets no attributes, and their size is given as 0.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, attributes, 0_usize, CREATE_RULESET_VERSION)
    };
    check(result).map(|version| u32::try_from(version).unwrap_or(0))
}

/// `struct landlock_ruleset_attr`. Old kernels know only its first fields.
#[repr(C)]
struct RulesetAttributes {
    handled_files: u64,
    handled_network: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: libc::c_int,
}

/// Creates a ruleset that refuses the `handled` file rights, and what is `scoped`.
pub(crate) fn landlock_ruleset(handled: u64, scoped: u64) -> Result<OwnedFd, Errno> {
    let attributes = RulesetAttributes { handled_files: handled, handled_network: 0, scoped };
    // A kernel ignores fields that it does not know if they are zero, and refuses other values.
    // SAFETY: the attributes live until after the call, and their real size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            size_of::<RulesetAttributes>(),
            0_u32,
        )
    };
    let fd = libc::c_int::try_from(check(result)?).map_err(|_| Errno::BADF)?;
    // SAFETY: the descriptor was opened just now and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Grants `allowed` rights on `beneath`, and what lies beneath it.
pub(crate) fn landlock_allow(
    ruleset: BorrowedFd<'_>,
    beneath: BorrowedFd<'_>,
    allowed: u64,
) -> Result<(), Errno> {
    let rule = PathBeneath { allowed, parent: beneath.as_raw_fd() };
    // SAFETY: the rule lives until after the call, and has the type that is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    };
    check(result).map(drop)
}

/// Applies the ruleset to this process and its future children. It must have set `no_new_privs`.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call takes a descriptor and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    check(result).map(drop)
}

/// Replaces the inherited session keyring by a new, empty one.
pub(crate) fn join_new_keyring() -> Result<(), Errno> {
    let name: *const libc::c_char = ptr::null();
    // SAFETY: no name is passed, so the call touches no memory.
    check(unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name) }).map(drop)
}

fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result < 0 { Err(last_errno()) } else { Ok(result) }
}
