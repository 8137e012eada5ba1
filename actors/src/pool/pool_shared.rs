//! Options of a pool, and the state that its handle and its actor share.

use std::num::NonZero;
use std::time::Duration;

use super::item::PoolItemFactory;
use super::ready_items::ReadyItems;
use crate::admission::{AdmissionGate, Share};
use crate::supervision::{Backoff, ChildId};

/// How a pool is kept.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PoolOptions {
    /// How many spares are ready when nobody takes any. 0: none ever; all that is started still passes the gate.
    pub size: usize,
    /// When a spare that waits is too old, and replaced.
    pub max_age: Duration,
    /// What the gate of the starts is called, in messages and metrics: each pool of a process should have another.
    pub start_gate_name: &'static str,
    /// How many are started at a time, spares and what is made because there was none together.
    pub starts_at_once: usize,
    /// What each tenant may have of those starts; so many may wait for one.
    pub share: Share,
    /// How long the start of a spare may take, from its turn on.
    pub start_timeout: Duration,
    /// How long it is waited after a failure.
    pub backoff: Backoff,
}

impl PoolOptions {
    /// A pool of this size. A spare may be 30 minutes old; as many are started at a time as there are processors; each has a
    /// minute for it; after a failure it is waited up to a second, doubling up to a minute.
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

/// What the handle and the actor share.
pub(super) struct PoolShared<M: PoolItemFactory> {
    pub(super) name: ChildId,
    pub(super) source: M,
    pub(super) options: PoolOptions,
    pub(super) start_gate: AdmissionGate,
    pub(super) ready_items: ReadyItems<M::Item>,
}
