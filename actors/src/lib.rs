//! The supervised tree: what runs in a runtime, who watches over it, and what is started again when it fails.
//!
//! [`supervision`] is a library of its own: OTP's semantics (child specs, strategies, restart intensity, ordered
//! shutdown, monitors) on the actors of `ractor`, which this crate alone names.

mod unwind;

pub mod supervision;
