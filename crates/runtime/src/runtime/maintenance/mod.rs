//! The maintenance tasks of a runtime. Its janitor runs them periodically.
//!
//! They sweep what dead processes left, recover interrupted operations, and remove what is unused or has expired.
//!
//! State: nothing that outlives the process. Each run inspects what exists, so the next run repeats an interrupted one.

mod clock_check;
mod context;

mod dead_processes;
mod delete_old_sessions;
mod delete_service_files;
mod expire_artifacts;
mod tasks;

pub(super) use context::MaintenanceContext;
pub(super) use delete_service_files::NAME as SERVICE_FILES;
pub(super) use tasks::maintenance_tasks;
