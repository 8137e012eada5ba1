//! The types of the API against what the official SDK sends and serialises, and against what nobody should send.

#![expect(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod fuzz;
mod golden;
mod refusals;
