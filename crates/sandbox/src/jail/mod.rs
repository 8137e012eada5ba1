//! The jail: the guest in its own namespaces. The library creates it without a daemon and without root.

mod connector;
mod dir_lock;
mod environment;
mod etc;
mod guard;
mod interpreters;
mod mounts;
mod ownership;
mod rootfs;
mod setup_hint;
mod user;

pub use connector::Jail;

// Shared with warm sandboxes.
pub(crate) use mounts::{ClaimContent, needs_only_content_dirs};

// Shared with containers: paths, owners, environment.
#[cfg(feature = "docker")]
pub(crate) use dir_lock::OwnershipLock;
#[cfg(feature = "docker")]
pub(crate) use environment::default_variables;
#[cfg(feature = "docker")]
pub(crate) use mounts::{
    CLOSED, ContentSource, JailMounts, RESERVED, SourceMode, layout as jail_layout, path_not_allowed,
    sandbox_target,
};
#[cfg(feature = "docker")]
pub(crate) use ownership::{OwnershipTransfer, run_chown};
#[cfg(feature = "docker")]
pub(crate) use rootfs::{DEVICES, HOSTNAME, OUTPUT, WORKSPACE, WRITABLE};
#[cfg(feature = "docker")]
pub(crate) use user::{HOME, JailUser, NAME, unused_uid};
