//! Whether a skill can run here: its manifest held against the inputs that are given and the machine that is there.
//!
//! The rules are looked at in the order of the manifest's specification, and everything that is missing is told, not the
//! first thing. What the machine has is asked through a [`Probe`]: the view of a sandbox, which is also that of the host
//! where the sandbox is the host. Nothing is kept: a crash loses nothing.

mod inputs;
mod probe;
mod report;
mod rules;

pub use inputs::{InputProblem, Inputs};
pub use probe::{AskVersion, CommandFound, Network, Probe, ProbeError, ProbeFuture};
pub use report::{Outcome, PreflightFinding, PreflightReport, PreflightRule, RuleReport};
pub use rules::Preflight;

#[cfg(test)]
mod tests;
