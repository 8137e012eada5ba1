//! What a runtime counts, by the `metrics` facade: a host installs whatever recorder it likes, and without one nothing is kept.
//!
//! [`names`] lists every metric with its unit and labels. A label has few values, whatever tenants and models come up with: the first
//! ones have a label of their own. State: which those are, in memory; after a crash they are given out anew.

pub mod names;

mod book;
mod labels;
mod level;
mod meter;
mod service;

pub(crate) use book::Book;
pub(crate) use level::Level;
pub(crate) use meter::{Counted, SandboxMeter};
pub use meter::{Meter, MeterOptions};
pub use service::ServiceFiles;
