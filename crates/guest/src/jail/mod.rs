//! Sets up a jail and runs the guest in it.
//!
//! ```text
//! host ──starts──► parent: reads the handshake, opens the host's directories, changes the user,
//!                    │    creates the namespaces, and then only waits
//!                    └─forks─► init: process 1 of the jail; builds the root, enters it, drops
//!                                all privileges, and runs the guest
//! ```
//!
//! The parent holds no descriptor and no privilege while it waits. When one of the two processes dies, the kernel
//! kills the other. When process 1 dies, the kernel kills all processes of the jail. Only these processes hold the
//! mounts, namespaces and in-memory directories, so nothing outlives them, even when the set-up stops halfway.

mod chown_tree;
mod identity;
mod init;
mod mount_sources;
mod parent;
mod rootfs;
mod setup_error;
mod user_limits;

pub(crate) use chown_tree::chown_back;
pub(crate) use init::InitEnv;
pub(crate) use parent::run;
