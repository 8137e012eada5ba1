//! Artifacts, inputs and outputs of sessions.

mod attached;
mod expired;
mod inputs;
mod killed;
mod outputs;
