//! Builds a session from its specification and the configuration.

pub(crate) mod artifact_services;
pub(super) mod factory_queries;
pub(super) mod fork_workspace;
pub(crate) mod hosted_sessions;
pub(crate) mod network;
pub(super) mod prepared_parts;
pub(crate) mod session_factory;
pub(super) mod workbench_source;
