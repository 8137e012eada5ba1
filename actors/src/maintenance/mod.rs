//! What is done again and again in the background: the janitor does each of its [`MaintenanceTask`]s in its own time, one run of each at a
//! time, and tells what came of it.
//!
//! A chore that fails, panics or takes too long is told, and done again in its time; it disturbs no other, and costs the janitor
//! nothing. State: when each is due, and what the last run came to. In a crash of the actor a run that is under way ends; its
//! successor begins as at a start.

mod actor;
mod scheduler;
mod task;

pub use scheduler::{MaintenanceScheduler, TaskError};
pub use task::{LastRun, MaintenanceTask, TaskStatus};

pub(crate) use scheduler::maintenance;
