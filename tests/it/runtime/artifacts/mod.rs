//! What sessions are given and what they make: artifacts, inputs and outputs.

mod attached;
mod expired;
mod inputs;
mod killed;
mod outputs;
