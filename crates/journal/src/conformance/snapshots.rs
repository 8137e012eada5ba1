//! Snapshots.

use std::time::Duration;

use super::fixture::{CaseResult, JournalFixture, ensure, ensure_eq, ensure_fails, notes, open_session};
use crate::error::{JournalError, JournalErrorKind};
use crate::key::Epoch;
use crate::lease::LeaseOwner;
use crate::session::Snapshot;

fn snapshot(seq: u64, body: &[u8]) -> Snapshot {
    Snapshot { seq, version: 4, body: body.to_vec() }
}

pub(crate) async fn a_snapshot_replaces_the_one_before(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    journal.append(&key, 0, Epoch::NONE, notes(["a", "b", "c"])).await?;
    // The last snapshot covers fewer events than the one before it, which is kept.
    for (seq, body, expected) in
        [(0, "0", "0"), (2, "2", "2"), (2, "two", "two"), (3, "3", "3"), (1, "1", "3")]
    {
        journal.save_snapshot(&key, Epoch::NONE, snapshot(seq, body.as_bytes())).await?;
        let found = journal.snapshot(&key).await?;
        ensure_eq(
            found.map(|found| (found.version, found.body)),
            Some((4, expected.into())),
            "the snapshot",
        )?;
    }
    ensure_eq(journal.session(&key).await?.snapshot, Some(3), "the reported snapshot")
}

pub(crate) async fn a_snapshot_needs_its_events_and_the_epoch(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    journal.append(&key, 0, Epoch::NONE, notes(["a"])).await?;
    let beyond = journal.save_snapshot(&key, Epoch::NONE, snapshot(2, b"x")).await;
    ensure_eq(
        beyond,
        Err(JournalError::Conflict { expected: 2, found: 1 }),
        "a snapshot of what is to come",
    )?;
    let lease = journal.acquire_lease(&key, &LeaseOwner::new("one")?, Duration::from_secs(60)).await?;
    let stale = journal.save_snapshot(&key, Epoch::NONE, snapshot(1, b"x")).await;
    ensure_fails(stale, JournalErrorKind::StaleEpoch, "a snapshot under another epoch")?;
    ensure_eq(journal.snapshot(&key).await?, None, "the snapshot")?;
    journal.save_snapshot(&key, lease.epoch, snapshot(1, b"y")).await?;
    ensure_eq(journal.snapshot(&key).await?, Some(snapshot(1, b"y")), "the snapshot")
}

pub(crate) async fn a_large_snapshot_is_read_as_it_was(fixture: &dyn JournalFixture) -> CaseResult {
    let (journal, key) = open_session(fixture).await?;
    for byte in [1, 2] {
        let large = snapshot(0, &vec![byte; 300_000]);
        journal.save_snapshot(&key, Epoch::NONE, large.clone()).await?;
        journal.sweep().await?;
        ensure(journal.snapshot(&key).await? == Some(large), "the large snapshot has changed")?;
    }
    Ok(())
}
