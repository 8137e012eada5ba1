//! Checks a skill's manifest against the given inputs and the machine.
//!
//! Rules are checked in the order of the manifest's specification. The report lists everything that is missing,
//! not only the first problem. A [`Probe`] answers questions about the machine: it is the view of a sandbox. No
//! state is kept.

mod inputs;
mod probe;
mod report;
mod rules;

pub use inputs::{InputProblem, Inputs};
pub use probe::{CommandProbe, Network, Probe, ProbeError, ProbeFuture, VersionQuery};
pub use report::{PreflightFinding, PreflightReport, PreflightRule, RuleOutcome, RuleReport};
pub use rules::Preflight;

#[cfg(test)]
mod tests;
