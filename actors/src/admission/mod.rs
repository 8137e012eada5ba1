//! Admission: what many tenants share on one machine (sandboxes, model calls) is divided between them by shares.
//!
//! An [`AdmissionGate`] stands in front of one such thing. While there is room, each request is admitted at once.
//! Otherwise requests are admitted in the order of their tenants' [`Share`]s and not of their arrival, so a tenant with
//! a thousand requests waits behind itself. A pure state machine (`fair_scheduler`) decides the order.
//! [`AdmittedModel`] and [`AdmittedSource`] put a model and sandboxes behind a gate.

mod admission_gate;
mod fair_scheduler;

mod admitted_model;
mod admitted_source;

pub use admission_gate::{AdmissionGate, AdmissionLoad, Overloaded, Permit};
pub use admitted_model::AdmittedModel;
pub use admitted_source::AdmittedSource;
pub use fair_scheduler::Share;

pub(crate) use admitted_source::deadline_before;
