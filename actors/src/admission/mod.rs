//! Who is next: what many tenants share of a host (sandboxes, calls of a model), each gets its share of.
//!
//! A [`Gate`] stands in front of one such thing. It is busy without being crowded: while there is room, whoever asks is
//! admitted at once; else those who wait are admitted in the order of their tenants' [`Share`]s, not in the order in which
//! they came, so that a tenant that asks a thousand times waits behind itself. The order is a pure machine
//! (`schedule`). [`AdmittedModel`] and [`AdmittedSource`] put a model and sandboxes behind one.

mod gate;
mod party;
mod schedule;
mod share;

mod model;
mod source;

pub use gate::{Gate, GateLoad, Overloaded, Permit};
pub use model::AdmittedModel;
pub use share::Share;
pub use source::AdmittedSource;
pub(crate) use source::turn_before;
