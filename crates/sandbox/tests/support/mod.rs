//! What the tests of sandboxes have in common: a sandbox in a temporary workspace, a look at the machine's processes, and
//! [`conformance`], what every kind of sandbox must show.

#![expect(unused_imports, reason = "each test binary uses a part of it, and expects dead code where it does")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "it is a part of tests, which fail by panic"
)]

mod again;
mod bed;
pub(crate) mod conformance;
mod kind;
mod patience;
mod processes;
#[cfg(feature = "jail")]
pub(crate) mod warm_sandboxes;

pub(crate) use again::{Killed, again, again_copied, copied, told};
pub(crate) use bed::{Bed, bash, bash_in, opened, options, said, soon, text, until, until_nobody_goes_on};
pub(crate) use kind::{Kind, Workspace, host};
pub(crate) use patience::PatientClock;
pub(crate) use processes::{
    Process, bearing, control_groups, descendants, first_in_namespace, guest_above, is_alive, kill_nine,
    peak_memory, processes, signal, zombies_below,
};
