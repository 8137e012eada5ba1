//! Admission: tenants share the sandboxes and model calls of one machine by weight and limits.
//!
//! An [`AdmissionGate`] limits one such resource. While there is room, each request is admitted at once. Otherwise
//! requests are admitted by their tenants' [`Share`]s and not in the order of their arrival. So a tenant with a
//! thousand requests delays mainly itself. A pure state machine (`fair_scheduler`) decides the order. [`AdmittedModel`]
//! and [`AdmittedSource`] put a model and sandboxes behind a gate.

mod admission_gate;
mod fair_scheduler;

mod admitted_model;
mod admitted_source;

pub use admission_gate::{AdmissionGate, AdmissionLoad, Overloaded, Permit};
pub use admitted_model::AdmittedModel;
pub use admitted_source::AdmittedSource;
pub use fair_scheduler::Share;

pub(crate) use admitted_source::deadline_before;
