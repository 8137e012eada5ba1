//! The decisions of a supervisor: a pure state machine without `ractor`, clock or randomness.
//!
//! [`Machine::step`] takes an input and the time, and returns effects. Time (the duration since the supervisor's start)
//! and random bits are values. The driver (`supervisor_actor.rs`; in tests a simulation) starts, stops and kills
//! actors, answers callers, and reports back. One rule implies all others: **a child is spawned only when nothing of
//! its last incarnation is left**. [`Input::Gone`] reports that.
//!
//! A crash of the supervisor loses this state; the next incarnation starts with the children of its spec.

mod child;
mod requests;
mod restart;
mod restart_limit;
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
