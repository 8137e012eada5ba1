//! What a supervisor decides: a pure machine, without ractor, without a clock, without randomness.
//!
//! [`Machine::step`] takes what happened, when, and returns what is to be done. The time since the supervisor's start and
//! the random bits of a backoff arrive as values. Whoever drives it (`supervisor.rs`; in tests a simulated world)
//! starts, stops and kills actors, answers callers, and reports back. The rule that everything else follows from: **a
//! child is spawned only when nothing of its last incarnation is left**, which is what [`Input::Gone`] says.
//!
//! In a crash of the supervisor all of it is lost; the next incarnation begins with the children of its spec.

mod child;
mod intensity;
mod requests;
mod restart;
mod step;
mod strategy;
mod types;

#[cfg(test)]
mod tests;

pub(crate) use step::Machine;
pub(crate) use types::{
    ChildKey, ChildPolicy, ChildStatus, ChildrenKind, Effect, Generation, Input, RequestId, RequestReply,
    StopCause, SupervisorPolicy, Uptime,
};
