//! A drill: a host that works is killed by SIGKILL at random moments and started again on the same data directory, many times
//! over; what it had acknowledged is compared with what is recorded, and what it left with what should be there.
//!
//! The same program is both sides: started with [`HOST`] as its first argument it is the host ([`host`]), else it is the
//! one who kills ([`driver`]). The test has a short form, the benchmark `crash` the long one.

mod log_lines;
mod random;

mod fixture;
mod host;
mod player;
mod visitor;

mod checks;
mod driver;
mod process;

use std::error::Error;

pub(crate) use driver::{Plan, drill};
pub(crate) use fixture::Sandboxes;
pub(crate) use host::be_the_host;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The first argument of a program that is the host.
pub(crate) const HOST: &str = "be-the-host-that-is-killed";
