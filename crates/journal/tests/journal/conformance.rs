//! Every implementation passes the same suite.

use conjure_journal::SqliteOptions;
use conjure_journal::conformance;

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
async fn records_in_memory_conform() {
    conformance::run_records(|| Ok(InMemory::default())).await.unwrap();
}

#[tokio::test]
async fn records_in_sqlite_conform() {
    conformance::run_records(|| Ok(OnDisk::new())).await.unwrap();
}
