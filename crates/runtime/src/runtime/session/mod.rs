//! Builds a session from its parts, and reads recorded sessions without starting them.

pub(crate) mod factory;
pub(crate) mod input;
pub(crate) mod python;
pub(crate) mod readers;
pub(super) mod select_skills;
pub(super) mod spec;

#[cfg(feature = "mcp")]
mod check_credential;
#[cfg(feature = "mcp")]
pub(super) mod mcp;
