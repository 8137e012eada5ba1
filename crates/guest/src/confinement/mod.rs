//! Confinement: keeps commands from harming the guest, each other, and the machine.

mod apply;
mod cgroup_events;
mod landlock;
mod limits;
mod oom_score;
mod seccomp_bpf;
mod seccomp_rules;

pub(crate) use apply::{CommandConfinement, apply};
pub(crate) use cgroup_events::{CgroupEvents, EventCounts};
pub(crate) use limits::{limit_name as name_of_limit, program_limits as limits_of_program};
pub(crate) use oom_score::OomScore;
pub(crate) use seccomp_bpf::Instruction;
