//! The metrics of a runtime, through the `metrics` facade. The embedder installs a recorder; without one nothing is
//! kept.
//!
//! [`names`] lists all metrics with units and labels. The number of values of each label is limited: the first values
//! have their own series. State: these values, in memory.

mod bounded_labels;
mod gauge_share;
mod runtime_metrics;
mod session_metrics;

pub mod names;

pub(crate) use gauge_share::GaugeShare;
pub(crate) use runtime_metrics::{GaugeGuard, SandboxMetrics};
pub(crate) use session_metrics::SessionMetrics;

pub use runtime_metrics::{MetricsOptions, RemoteDeletion, RuntimeMetrics};
