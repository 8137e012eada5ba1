//! What needs `unsafe`: forking, spawning, signal masks, namespaces, closing in. Nothing else in this crate may use it.
//!
//! Everything here rests on one invariant of the program: it has exactly one thread, always.

#![expect(
    unsafe_code,
    reason = "fork, clone, signal masks, mounts, seccomp and Landlock have no safe interface"
)]

mod confine;
mod namespace;
mod process;
mod signal;

pub(crate) use confine::{
    filter_syscalls, join_new_keyring, landlock_abi, landlock_allow, landlock_restrict, landlock_ruleset,
};
pub(crate) use namespace::{
    Depth, MountChange, change_mount, clear_bounding_set, close_from, fork_user_namespace,
    switch_loopback_on, unshare,
};
pub(crate) use process::{SpawnError, fork, fork_whole, spawn};
pub(crate) use signal::{
    Sender, SignalFd, allow_termination, block_signals, block_termination, is_other_pending,
    is_termination_pending, wait_for_signal,
};
