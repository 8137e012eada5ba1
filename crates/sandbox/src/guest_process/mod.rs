//! The guest as a child process of the host: what the kinds of sandbox that need no daemon have in common.

mod environment;
mod folders;
mod process;
mod program;
mod start;

pub(crate) use environment::safe;
pub(crate) use folders::{absent, folder, text, unavailable};
pub(crate) use process::GuestProcess;
#[cfg(feature = "docker")]
pub(crate) use program::bytes as program;
#[cfg(feature = "jail")]
pub(crate) use start::own;
pub(crate) use start::{Private, Started, start};
