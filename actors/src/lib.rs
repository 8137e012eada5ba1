//! The supervised tree: what runs in a runtime, who watches over it, and what is started again when it fails.
//!
//! A [`session`] is a conversation that is durable: its events are in the [`journal`], it has one owner at a time, and whoever
//! holds its handle speaks to whichever incarnation runs.
//!
//! A [`runtime`] is what a host embeds: the root of the tree, its tenants, and their sessions.
//!
//! [`supervision`] is a library of its own: OTP's semantics (child specs, strategies, restart intensity, ordered
//! shutdown, monitors) on the actors of `ractor`, which this crate alone names. [`executors`] is the sandbox of a session,
//! watched and replaced; [`artifacts`] is what a session is given, by name; [`catalogs`] keeps the catalogs of skills as their folders are; [`admission`] is who is next where
//! tenants share what a host has; [`tenants`] is what each of them may have, and what it has spent; [`metrics`] is what all of
//! that is counted by.

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
