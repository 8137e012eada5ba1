//! Maintenance: background tasks that run periodically. The scheduler runs each [`MaintenanceTask`] at its own
//! interval, one run of each at a time, and reports the results.
//!
//! A task that fails, panics or takes too long is reported and runs again after its interval. It affects no other task.
//! State: when each task is due, and the result of its last run. After a crash of the actor, running tasks end, and the
//! next incarnation starts as at first.

mod actor;
mod scheduler;
mod task;

pub use scheduler::{MaintenanceScheduler, TaskError};
pub use task::{LastRun, MaintenanceTask, TaskStatus};

pub(crate) use scheduler::maintenance;
