//! The types of the API against what the official SDK sends and serialises, and against what nobody should send.

mod fuzz;
mod golden;
mod refusals;
