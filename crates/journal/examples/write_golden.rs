//! Writes `tests/golden/N`: a journal of the present format, for all later versions to read. Run once for each format, before
//! its release: `cargo run -p conjure-journal --all-features --example write_golden -- crates/journal/tests/golden/N`.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use conjure_journal::{
    AppendBatch, CounterIncrement, Epoch, IndexName, Journal as _, LeaseOwner, NewEvent, NewRecord,
    RecordContent, RecordKey, RecordKind, RecordScope, Records as _, RowStatus, SessionKey, SessionRow,
    Snapshot, SqliteJournal, SqliteOptions,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("name the directory to write")?;
    let options = SqliteOptions { blob_threshold: 1_000, ..SqliteOptions::default() };
    let journal = SqliteJournal::open(Path::new(&dir), options)?;
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
    let other = SessionKey::new(TenantId::new("globex")?, SessionId::from_bits(7));
    journal.create(&other).await?;
    let waiting = SessionKey::new(TenantId::new("initech")?, SessionId::from_bits(8));
    journal.create(&waiting).await?;
    let row = SessionRow { status: RowStatus::AwaitingAction, version: 5, body: b"row".to_vec() };
    let asked = AppendBatch::new(vec![NewEvent::new("note", 1, b"asked".to_vec())]).with_row(row);
    journal.append_batch(&waiting, 0, Epoch::NONE, asked).await?;
    let (agent, status) = (RecordKind::from_static("agent"), IndexName::from_static("status"));
    let content = RecordContent::new(*b"agent").with_unique_name("Grün").with_index(status, "active");
    let content = content.with_index(IndexName::from_static("due"), -7);
    let record = RecordKey::new(TenantId::new("acme")?, agent, "agent_1")?;
    journal.insert(NewRecord::new(record.clone(), content.clone())).await?;
    journal.replace(&record, 1, RecordContent { body: b"agent 2".to_vec(), ..content }).await?;
    let key = RecordKey::new(RecordScope::System, RecordKind::from_static("key"), "sha256:00")?;
    journal.insert(NewRecord::new(key, RecordContent::new(*b"acme"))).await?;
    journal.close().await;
    Ok(())
}
