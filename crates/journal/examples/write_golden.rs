//! Writes `tests/golden/N`: a journal of the present format, for all later versions to read. Run once for each format, before
//! its release: `cargo run -p conjure-journal --all-features --example write_golden -- crates/journal/tests/golden/N`.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use conjure_journal::{
    CounterIncrement, Epoch, Journal as _, LeaseOwner, NewEvent, SessionKey, Snapshot, SqliteJournal,
    SqliteOptions,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name the folder to write")?;
    let options = SqliteOptions { blob_threshold: 1_000, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(Path::new(&folder), options)?;
    let first = SessionKey::new(TenantId::new("acme")?, SessionId::from_bits(0x0001_0203));
    journal.create(&first).await?;
    let notes = vec![
        NewEvent::new("note", 1, "grün".as_bytes().to_vec()),
        NewEvent::new("note", 1, (0..=255).collect()),
    ];
    journal.append(&first, 0, Epoch::NONE, notes).await?;
    let lease = journal.acquire_lease(&first, &LeaseOwner::new("host-1")?, Duration::MAX).await?;
    let others =
        vec![NewEvent::new("file", 3, b"large ".repeat(1_000)), NewEvent::new("empty", 0, Vec::new())];
    let increments = vec![CounterIncrement::new("tokens", 1_234), CounterIncrement::new("calls", 1)];
    journal.append_with_counters(&first, 2, lease.epoch, others, increments).await?;
    let snapshot = Snapshot { seq: 2, version: 9, body: b"state".to_vec() };
    journal.save_snapshot(&first, lease.epoch, snapshot).await?;
    journal.create(&SessionKey::new(TenantId::new("globex")?, SessionId::from_bits(7))).await?;
    journal.close().await;
    Ok(())
}
