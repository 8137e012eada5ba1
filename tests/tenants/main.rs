//! What tenants may have, what they spend, and how one is deleted, through a runtime as a host has it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod artifacts;
mod budgets;
mod counters;
mod deletion;
mod fixture;
mod journal;
mod policies;
mod quotas;
mod recovery;
#[path = "../it/support/turns.rs"]
mod turns;
mod warm_sandboxes;
