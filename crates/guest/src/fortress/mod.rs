//! The guest as a fortress: what keeps commands from harming it, each other, and what is around them.

mod bpf;
mod close;
mod landlock;
mod limits;
mod oom_score;
mod pressure;
mod syscalls;

pub(crate) use bpf::Instruction;
pub(crate) use close::{CommandWalls, close};
pub(crate) use limits::{name as name_of_limit, of_program as limits_of_program};
pub(crate) use oom_score::OomScore;
pub(crate) use pressure::{Mark, Pressure};
