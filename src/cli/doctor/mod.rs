//! `conjure doctor`: reports what this machine offers, and how to add what is missing.

mod check;
mod command;

mod engine;
mod kernel;
mod sandbox;
mod skills;

pub(crate) use command::doctor;
pub(crate) use sandbox::start;
