//! Running programs, their supervision and their output.

mod capture;
mod job;
mod shim;
mod spill;
mod stream;

pub(crate) use job::{ExecJob, Surroundings, Writing};
pub(crate) use spill::SpillFolder;
