//! The driver: it asks the state machine for the next step, carries it out and records it, until the turn ends.
//!
//! The driver starts no tasks and keeps no state of its own. Dropping its future at any await drops the model call and
//! the tools with it. What it has recorded is enough to continue. The driver records the intent before each effect, and the
//! outcome of each call as soon as the call ends.

pub(crate) mod batch_cancellation;
mod compaction;
pub(crate) mod conversation;
pub(crate) mod inbox;
mod model_call;
mod pre_call_hook;
pub(crate) mod run_loop;
pub(crate) mod tool_batch;
mod tool_calls;
mod turn;

pub use turn::{DriveError, PreCallHook, TurnOptions, TurnOutcome, TurnServices, run_turn};
