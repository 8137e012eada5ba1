//! The pure state machine: it decides which events follow from a command, and which step comes next.
//!
//! [`decide`] reads the state and never changes it. The events that it returns belong together and are recorded together.
//! This module has no clock, no randomness and no I/O.

mod checks;
pub(crate) mod command;
mod decide;
mod external_answers;
mod model_change;
mod profile;
mod queue_commands;
mod recovery;
mod response;
mod tool_calls;

pub use decide::{Step, decide, next};
pub(crate) use response::skipped_results;
