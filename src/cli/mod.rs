//! The command line. It uses only the public API of the library, like any embedder.
//!
//! The result goes to standard output, and progress and errors to standard error. No state is kept between runs.

mod main;

mod args;
mod cli_error;
mod command_runtime;
mod destination;
#[cfg(feature = "anthropic")]
mod hosted_client;
mod signals;
mod terminal;

#[cfg(feature = "acp")]
mod acp;
mod approvals;
mod chat;
mod doctor;
#[cfg(feature = "docker")]
mod image;
#[cfg(feature = "serve")]
mod keys;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "model-http")]
mod models;
mod run;
#[cfg(feature = "serve")]
mod serve;
mod sessions;
mod skills;

pub(crate) use main::main;
