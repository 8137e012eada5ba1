//! Tests of the runtime through its public API.

mod artifacts;
pub(crate) mod fixture;
mod hosted;
mod network;
pub(crate) mod open_failpoints;
pub(crate) mod programs;
mod remote_cleanup;
mod sandboxes;
mod sessions;
mod shutdown;
mod skills;
mod storage;
mod tenants;
mod turns;
