//! Turns: their order, their limits, their cancellation, and models that misbehave.

mod basics;
mod cancellation;
mod compaction;
mod limits;
mod models;
