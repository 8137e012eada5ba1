//! Runs programs, supervises them, and captures their output.

mod capture;
mod exit;
mod job;
mod output_stream;
mod shim;
mod shim_pool;
mod shim_protocol;
mod spill;

pub(crate) use job::{ExecEnv, ExecJob, WriteAccess};
pub(crate) use shim_pool::{MemoryFootprint, Shim, ShimPool};
pub(crate) use spill::SpillDir;
