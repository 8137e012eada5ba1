//! The handles of actors: addresses, supervisor handles, monitors, and the context of a worker.

pub(super) mod address;
pub(super) mod call;
pub(super) mod child;
pub(super) mod child_scope;
pub(super) mod context;
pub(super) mod error;
pub(super) mod handle;
pub(super) mod monitor;
pub(super) mod worker;
