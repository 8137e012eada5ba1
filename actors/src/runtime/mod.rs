//! The session runtime: the root of the tree, its tenants, and the known sessions.
//!
//! [`SessionRuntime::spawn`] starts the journal's actor, the catalog registry and the tenants' supervisors. The
//! embedder opens sessions and finds them again by their ids, in this process or after a restart. Each tenant has its
//! own supervisor, so failures of its sessions do not affect other tenants.

mod error;
mod options;

mod session_runtime;

mod session_index;
mod tenant_supervisors;

pub use error::TreeError;
pub use options::{Health, NewSession, TreeOptions, TurnAdmission};
pub use session_runtime::SessionRuntime;
