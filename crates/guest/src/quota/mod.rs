//! The quota of a directory, for file systems on which the kernel enforces none. The guest measures the directory often,
//! and ends programs when it is too large.
//!
//! A child process measures, because measuring may block. The times follow three rules:
//! - Measuring uses at most about a twentieth of one processor ([`schedule`]).
//! - The guest measures at once when the file system lost so much space that the quota may be exceeded. If it lost
//!   more than that, all programs are paused meanwhile.
//! - Otherwise it measures every tenth of a second.
//!
//! While the directory exceeds its quota, programs are started with a file size limit of zero. So they can remove
//! files but not write.

mod free_space;
mod measure;
mod measurement;
mod monitor;
mod mounts;
mod schedule;
mod usage;
mod write_budget;

pub(crate) use measure::usage_from_stat;
pub(crate) use monitor::{MonitorAction, QuotaMonitor};
pub(crate) use usage::{hard_limit_error, plus};
pub(crate) use write_budget::{WorkerWriteBudget, WriteBudget, estimate_usage, quota_error};
