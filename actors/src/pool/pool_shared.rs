//! The options of a pool, and the state that its handle and its actor share.

use std::num::NonZero;
use std::time::Duration;

use super::item::PoolItemFactory;
use super::ready_items::ReadyItems;
use crate::admission::{AdmissionGate, Share};
use crate::supervision::{Backoff, ChildId};

/// The options of a pool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many items the pool keeps ready. 0: none; starts still pass the gate.
    pub size: usize,
    /// The age at which a waiting item is replaced.
    pub max_age: Duration,
    /// The name of the gate for starts, in messages and metrics. Each pool of a process should have its own.
    pub start_gate_name: &'static str,
    /// How many starts may run at a time: refills and creations for sessions together.
    pub starts_at_once: usize,
    /// The share of each tenant at the gate.
    pub share: Share,
    /// How long the start of an item may take after its admission.
    pub start_timeout: Duration,
    /// The pauses after failures.
    pub backoff: Backoff,
}

impl PoolOptions {
    /// A pool of this size. Items are replaced after 30 minutes; as many start at a time as there are processors; a
    /// start may take a minute; the pause after a failure is up to a second, doubling up to a minute.
    #[must_use]
    pub fn with_size(size: usize) -> Self {
        Self {
            size,
            max_age: Duration::from_secs(30 * 60),
            start_gate_name: "the starts of sandboxes",
            starts_at_once: std::thread::available_parallelism().map_or(1, NonZero::get),
            share: Share::default(),
            start_timeout: Duration::from_secs(60),
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(60), Duration::from_secs(120)),
        }
    }
}

/// The state that the handle and the actor share.
pub(super) struct PoolShared<F: PoolItemFactory> {
    pub(super) name: ChildId,
    pub(super) source: F,
    pub(super) options: PoolOptions,
    pub(super) start_gate: AdmissionGate,
    pub(super) ready_items: ReadyItems<F::Item>,
}
