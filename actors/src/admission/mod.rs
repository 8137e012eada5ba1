//! Who is next: what many tenants share of a host (sandboxes, calls of a model), each gets its share of.
//!
//! A [`AdmissionGate`] stands in front of one such thing. It is busy without being crowded: while there is room, whoever asks is
//! admitted at once; else those who wait are admitted in the order of their tenants' [`Share`]s, not in the order in which
//! they came, so that a tenant that asks a thousand times waits behind itself. The order is a pure machine
//! (`scheduler`). [`AdmittedModel`] and [`AdmittedSource`] put a model and sandboxes behind one.

mod admission_gate;
mod fair_scheduler;

mod admitted_model;
mod admitted_source;

pub use admission_gate::{AdmissionGate, AdmissionLoad, Overloaded, Permit};
pub use admitted_model::AdmittedModel;
pub use admitted_source::AdmittedSource;
pub use fair_scheduler::Share;

pub(crate) use admitted_source::deadline_before;
