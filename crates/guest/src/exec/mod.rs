//! Running programs, their supervision and their output.

mod capture;
mod job;
mod oom;
mod shim;
mod spill;
mod stream;

pub(crate) use job::{ExecJob, Surroundings};
pub(crate) use oom::OomCounter;
pub(crate) use spill::SpillFolder;
