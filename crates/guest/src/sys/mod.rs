//! What needs `unsafe`: forking, spawning, signal masks. Nothing else in this crate may use it.
//!
//! Everything here rests on one invariant of the program: it has exactly one thread, always.

#![expect(unsafe_code, reason = "fork, posix_spawn and signal masks have no safe interface")]

mod process;
mod signal;

pub(crate) use process::{fork, spawn};
pub(crate) use signal::{
    SignalFd, allow_termination, block_signals, is_termination_pending, wait_for_signal,
};
