//! What one session is built from, and what can be read of it without starting it.

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
