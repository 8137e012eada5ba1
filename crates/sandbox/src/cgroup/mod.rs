//! Control groups: what the kernel limits for all processes of a sandbox together.

mod cgroups;
mod group;
mod hierarchy;
mod owner;
#[cfg(test)]
mod tests;

pub use cgroups::{Cgroups, MissingController};
pub use group::Cgroup;
#[cfg(feature = "docker")]
pub(crate) use owner::Owner;
