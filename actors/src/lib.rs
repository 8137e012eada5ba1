//! The supervised tree: the actors of a runtime, who supervises them, and what is restarted when one fails.
//!
//! A [`session`] is a durable conversation. Its events are in the [`journal`], it has one owner at a time, and its
//! handle reaches whichever incarnation runs.
//!
//! A [`runtime`] is the root of the tree, its tenants and their sessions.
//!
//! The other modules:
//!
//! - [`supervision`] has OTP's semantics (child specs, strategies, restart intensity, ordered shutdown, monitors) on the actors of
//!   `ractor`, and knows nothing of sessions.
//! - [`executors`] supervises a session's sandbox, and [`pool`] keeps warm sandboxes ready.
//! - [`artifacts`] has the artifacts of a session.
//! - [`catalogs`] follows directories of skills.
//! - [`admission`] divides shared resources between tenants.
//! - [`tenants`] has their limits and their spending.
//! - [`maintenance`] runs periodic background tasks.
//! - [`metrics`] names what is counted.

pub mod admission;
pub mod artifacts;
pub mod catalogs;
pub mod executors;
pub mod journal;
pub mod maintenance;
pub mod metrics;
pub mod pool;
pub mod runtime;
pub mod session;
pub mod supervision;
pub mod tenants;
