//! The runtime: the root of the tree, its tenants, and the sessions that it knows.
//!
//! [`Runtime::spawn`] starts the journal's actor, the registry of skills and the tenants' supervisors; a host opens sessions and finds them again by
//! their ids, here or after a restart. Each tenant has a supervisor of its own, so that whatever its sessions do
//! disturbs no other tenant.

mod error;
mod options;

mod root;

mod index;
mod locks;
mod tenants;

pub use error::RuntimeError;
pub use options::{Health, RuntimeOptions, SessionSpec, Turns};
pub use root::Runtime;
