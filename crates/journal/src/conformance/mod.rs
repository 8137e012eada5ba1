//! What every journal must do, as a suite that any implementation can be put through.
//!
//! ```
//! use std::sync::Arc;
//!
//! use conjure_journal::conformance::{self, Bed};
//! use conjure_journal::{Journal, MemoryJournal};
//! use futures_util::FutureExt as _;
//! use futures_util::future::BoxFuture;
//!
//! struct InMemory(MemoryJournal);
//!
//! impl Bed for InMemory {
//!     fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, conformance::Failure>> {
//!         std::future::ready(Ok(Arc::new(self.0.clone()) as Arc<dyn Journal>)).boxed()
//!     }
//! }
//!
//! # futures_util::FutureExt::now_or_never(async {
//! conformance::run(|| Ok(InMemory(MemoryJournal::new()))).await?;
//! # Ok::<(), String>(())
//! # }).unwrap().unwrap();
//! ```

mod bed;
mod counters;
mod events;
mod leases;
mod sessions;
mod snapshots;
mod weights;

pub use bed::{Bed, CASES, Case, Failure, Outcome, run};
