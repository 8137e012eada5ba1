//! `conjure acp`.

#[cfg(feature = "acp")]
mod command;
#[cfg(not(feature = "acp"))]
mod not_built;

#[cfg(feature = "acp")]
pub(crate) use command::acp;
#[cfg(not(feature = "acp"))]
pub(crate) use not_built::acp;
