//! What a runtime counts, by the `metrics` facade: a host installs whatever recorder it likes, and without one nothing is kept.
//!
//! [`names`] lists every metric with its unit and labels. A label has few values, whatever tenants and models come up with: the first
//! ones have a label of their own. State: which those are, in memory; after a crash they are given out anew.

mod bounded_labels;
mod gauge_share;
mod runtime_metrics;
mod session_metrics;

pub mod names;

pub(crate) use gauge_share::GaugeShare;
pub(crate) use runtime_metrics::{GaugeGuard, SandboxMetrics};
pub(crate) use session_metrics::SessionMetrics;

pub use runtime_metrics::{MetricsOptions, RemoteDeletion, RuntimeMetrics};
