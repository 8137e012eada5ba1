//! The runtime: the root of the tree, its tenants, and the sessions that it knows.
//!
//! [`SessionRuntime::spawn`] starts the journal's actor, the registry of skills and the tenants' supervisors; a host opens sessions and finds them again by
//! their ids, here or after a restart. Each tenant has a supervisor of its own, so that whatever its sessions do
//! disturbs no other tenant.

mod error;
mod options;

mod session_runtime;

mod session_index;
mod tenant_locks;
mod tenant_supervisors;

pub use error::TreeError;
pub use options::{Health, NewSession, TreeOptions, TurnAdmission};
pub use session_runtime::SessionRuntime;
