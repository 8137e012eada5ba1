//! The guest as a child process of the host, for kinds of sandbox without a daemon.

mod context_path;
mod environment;
mod guest_binary;
mod marked_temp_dir;
mod process;
mod start;

pub(crate) use context_path::{missing_dir, resolve_dir, unavailable, utf8_path};
pub(crate) use environment::safe_env;
#[cfg(feature = "docker")]
pub(crate) use guest_binary::bytes as program;
pub(crate) use process::GuestProcess;
#[cfg(feature = "jail")]
pub(crate) use start::run_chown_helper;
pub(crate) use start::{PrivateDir, SpawnedGuest, start};
