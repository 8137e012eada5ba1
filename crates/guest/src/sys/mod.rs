//! All code that needs `unsafe`: forks, signal masks, namespaces, confinement. No other module may use it.
//!
//! Everything here relies on one invariant of the program: it always has exactly one thread.

#![expect(
    unsafe_code,
    reason = "fork, clone, signal masks, mounts, seccomp and Landlock have no safe interface"
)]

mod confinement;
mod namespace;
mod process;
mod signal;

pub(crate) use confinement::{
    filter_syscalls, join_new_keyring, landlock_abi, landlock_allow, landlock_restrict, landlock_ruleset,
};
pub(crate) use namespace::{
    MountChange, MountDepth, change_mount, clear_bounding_set, close_from, fork_user_namespace,
    switch_loopback_on, unshare,
};
pub(crate) use process::{SpawnError, fork, fork_whole, spawn};
pub(crate) use signal::{
    SignalFd, SignalSender, allow_termination, block_signals, block_termination, is_other_pending,
    is_termination_pending, wait_for_signal,
};
