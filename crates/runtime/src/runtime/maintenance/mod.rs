//! The maintenance tasks of a runtime, which its janitor runs from time to time.
//!
//! They sweep what dead processes left, recover interrupted operations, and remove what is unused or older than it is kept.
//! State: none that lasts. Each run inspects what is there; a run that was interrupted is repeated at the next time.

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
