//! What one session is built from, and what can be read of it without starting it.

pub(super) mod input_error;
pub(super) mod inputs;
pub(super) mod select_skills;
pub(super) mod session_secrets;
pub(super) mod spec;
mod value_texts;

pub(super) mod artifact_services;
#[cfg(feature = "mcp")]
mod check_credential;
mod factory_queries;
mod fork_workspace;
pub(super) mod hosted_sessions;
mod known_session;
#[cfg(feature = "mcp")]
pub(super) mod mcp;
pub(super) mod network;
mod packaged_sources;
mod prepared_parts;
mod python_packages;
pub(super) mod python_requirement;
pub(super) mod session_factory;
mod session_inputs;
mod workbench_source;

pub(super) mod event_reader;
pub(super) mod session_reader;
