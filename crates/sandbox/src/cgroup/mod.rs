//! Control groups: kernel limits for all processes of a sandbox together.

mod cgroup_state;
mod cgroups;
mod group;
mod hierarchy;
#[cfg(feature = "docker")]
mod oom_kills;
mod owner_process;
#[cfg(test)]
mod tests;

pub use cgroup_state::MissingController;
pub use cgroups::Cgroups;
pub use group::Cgroup;
#[cfg(feature = "docker")]
pub(crate) use oom_kills::OomKillCounter;
#[cfg(feature = "docker")]
pub(crate) use owner_process::OwnerProcess;
