//! The processes of commands, and the guest's own: how they start, run, pause and end.

mod exec;
mod interference;
mod lifecycle;
mod pause;
mod sessions;
mod shim_reuse;
