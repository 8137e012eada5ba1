//! `conjure serve`.

#[cfg(feature = "serve")]
mod command;
#[cfg(not(feature = "serve"))]
mod not_built;
#[cfg(feature = "serve")]
mod reload;
#[cfg(feature = "serve")]
mod systemd;

#[cfg(feature = "serve")]
pub(crate) use command::serve;
#[cfg(not(feature = "serve"))]
pub(crate) use not_built::serve;
