//! The machine against a simulation in any order of events, and against a simple model of what it should come to.

mod cases;
mod model;
mod properties;
mod simulation;
