//! Setting up a jail, and living in it.
//!
//! ```text
//! host ──starts──► outer: reads the greeting, opens the host's folders, becomes nobody in particular,
//!                    │    makes the namespaces, and then only waits
//!                    └─forks─► inner: process 1 of the jail; builds the root, moves into it, gives up
//!                                all privileges, and is the guest
//! ```
//!
//! The outer process holds no descriptor and no privilege while it waits. Whoever of the two dies takes the other
//! with it, and the kernel kills what is left in the jail when its process 1 dies. Mounts, namespaces and folders in
//! memory are held by these processes alone: nothing outlives them, wherever the set-up stops.

mod build;
mod failure;
mod hand_over;
mod identity;
mod inner;
mod outer;
mod shares;
mod sources;

pub(crate) use hand_over::take_back;
pub(crate) use inner::Inside;
pub(crate) use outer::run;
