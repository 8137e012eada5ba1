//! The conformance suites, which every implementation of a journal ([`run`]) and of records ([`run_records`]) must pass.
//!
//! ```
//! use std::sync::Arc;
//!
//! use conjure_journal::conformance::{self, JournalFixture};
//! use conjure_journal::{Journal, MemoryJournal};
//! use futures_util::FutureExt as _;
//! use futures_util::future::BoxFuture;
//!
//! struct InMemory(MemoryJournal);
//!
//! impl JournalFixture for InMemory {
//!     fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, conformance::CaseError>> {
//!         std::future::ready(Ok(Arc::new(self.0.clone()) as Arc<dyn Journal>)).boxed()
//!     }
//! }
//!
//! # futures_util::FutureExt::now_or_never(async {
//! conformance::run(|| Ok(InMemory(MemoryJournal::new()))).await?;
//! # Ok::<(), String>(())
//! # }).unwrap().unwrap();
//! ```

mod counters;
mod events;
mod fixture;
mod leases;
mod record_queries;
mod records;
mod records_cases;
mod records_fixture;
mod rows;
mod sessions;
mod snapshots;
mod weights;

pub use fixture::{CASES, Case, CaseError, CaseResult, JournalFixture, run};
pub use records_cases::{RECORDS_CASES, RecordsCase, run_records};
pub use records_fixture::{RecordsFixture, RecordsUnderTest};
