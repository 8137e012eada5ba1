//! What the tests of sandboxes have in common: a sandbox in a temporary workspace, a look at the machine's processes, and
//! [`conformance`], what every kind of sandbox must show.

#![expect(unused_imports, reason = "each test binary uses a part of it, and expects dead code where it does")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "this is test code, which fails by panic"
)]

pub(crate) mod conformance;
mod fixture;
mod kind;
mod patient_clock;
mod processes;
mod rerun;
#[cfg(feature = "jail")]
pub(crate) mod warm_sandboxes;

pub(crate) use fixture::{
    Fixture, bash, bash_in, opened, options, output_of, soon, text, until_no_process_runs,
};
pub(crate) use kind::{Kind, Workspace, host};
pub(crate) use patient_clock::PatientClock;
pub(crate) use processes::{
    Process, bearing, control_groups, descendants, first_in_namespace, guest_of_process, is_alive,
    peak_memory, processes, sigkill, signal, zombies_below,
};
pub(crate) use rerun::{copied, rerun, rerun_copy, test_parameters};
pub(crate) use test_support::until;
