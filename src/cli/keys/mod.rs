//! `conjure keys …`: the keys of the server's clients.

#[cfg(feature = "serve")]
mod command;
#[cfg(not(feature = "serve"))]
mod not_built;

#[cfg(feature = "serve")]
pub(crate) use command::keys;
#[cfg(not(feature = "serve"))]
pub(crate) use not_built::keys;
