//! Running programs, their supervision and their output.

mod capture;
mod job;
mod line;
mod shim;
mod shims;
mod spill;
mod stream;

pub(crate) use job::{ExecJob, Surroundings, Writing};
pub(crate) use shims::{Burden, Shim, Shims};
pub(crate) use spill::SpillFolder;
