//! Control groups: what the kernel limits for all processes of a sandbox together.

mod cgroups;
mod group;
mod hierarchy;
#[cfg(feature = "docker")]
mod memory_kills;
mod owner;
#[cfg(test)]
mod tests;

pub use cgroups::{Cgroups, MissingController};
pub use group::Cgroup;
#[cfg(feature = "docker")]
pub(crate) use memory_kills::MemoryKills;
#[cfg(feature = "docker")]
pub(crate) use owner::Owner;
