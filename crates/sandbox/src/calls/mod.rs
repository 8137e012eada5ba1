//! Calls into a sandbox: commands, files, and the executor's trait.

pub(crate) mod call_options;
pub(crate) mod command;
pub(crate) mod executor;
pub(crate) mod files;
pub(crate) mod guest_ops;
pub(crate) mod process;
