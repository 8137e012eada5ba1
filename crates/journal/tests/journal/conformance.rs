//! Every implementation passes the one suite.

use std::sync::Arc;

use conjure_journal::conformance::{self, CaseError, JournalFixture};
use conjure_journal::{Journal, SqliteOptions, UpcastingJournal, Upcasts};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::support::{InMemory, OnDisk, options};

#[tokio::test]
async fn the_journal_in_memory_conforms() {
    conformance::run(|| Ok(InMemory::default())).await.unwrap();
}

#[tokio::test]
async fn the_journal_in_sqlite_conforms() {
    conformance::run(|| Ok(OnDisk::new())).await.unwrap();
}

/// Every body but the empty one is large.
#[tokio::test]
async fn the_journal_in_sqlite_conforms_with_all_bodies_in_the_store() {
    let options = SqliteOptions { blob_threshold: 0, batch: 1, readers: 1, ..options() };
    conformance::run(|| Ok(OnDisk::with(options.clone()))).await.unwrap();
}

#[tokio::test]
async fn a_journal_read_through_upcasts_conforms() {
    conformance::run(|| Ok(Upcast(InMemory::default()))).await.unwrap();
}

#[tokio::test]
async fn records_in_memory_conform() {
    conformance::run_records(|| Ok(InMemory::default())).await.unwrap();
}

#[tokio::test]
async fn records_in_sqlite_conform() {
    conformance::run_records(|| Ok(OnDisk::new())).await.unwrap();
}

/// A journal of kinds that are all known.
struct Upcast(InMemory);

impl JournalFixture for Upcast {
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Journal>, CaseError>> {
        async {
            let longest = "k".repeat(conjure_journal::MAX_KIND_BYTES);
            let kinds = ["note", "file", "empty", "every byte", "Ünïcödé 🧶", &longest];
            let newest = |kind| match kind {
                "note" => 1,
                "file" => 3,
                "empty" => 0,
                "every byte" => u32::MAX,
                "Ünïcödé 🧶" => 7,
                _ => 1,
            };
            let upcasts =
                kinds.into_iter().fold(Upcasts::new(), |upcasts, kind| upcasts.with_kind(kind, newest(kind)));
            let journal = UpcastingJournal::new(self.0.open().await?, upcasts);
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        }
        .boxed()
    }
}
