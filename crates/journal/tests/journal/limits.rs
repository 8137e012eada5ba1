//! Limits: queued calls, large bodies, and a full database.

use std::time::Duration;

use conjure_journal::{
    Epoch, Journal as _, JournalErrorKind, MemoryJournal, NewEvent, SessionKey, SqliteOptions, read_all,
};
use futures_util::future::join_all;

use crate::support::{OnDisk, key, note, options};

/// While another connection holds the database, calls wait. Calls beyond the queue are rejected at once, and never executed.
#[tokio::test]
async fn overload_fails_at_once_without_affecting_other_tenants() {
    let fixture = OnDisk::with(SqliteOptions { queue: 40, queue_per_tenant: 10, batch: 1, ..options() });
    let journal = fixture.journal();
    let keys: Vec<SessionKey> = (0..30).map(|number| key("acme", number)).collect();
    let other = key("globex", 0);
    for key in keys.iter().chain([&other]) {
        journal.create(key).await.unwrap();
    }
    let holder = rusqlite::Connection::open(fixture.database()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let appends: Vec<_> = keys.iter().map(|key| journal.append(key, 0, Epoch::NONE, note("a"))).collect();
    let of_other = journal.append(&other, 0, Epoch::NONE, note("a"));
    holder.execute_batch("ROLLBACK").unwrap();
    let results = join_all(appends).await;
    assert_eq!(of_other.await, Ok(1));
    let mut refused = 0;
    for (key, result) in keys.iter().zip(results) {
        let events = journal.session(key).await.unwrap().events;
        match result {
            Ok(total) => assert_eq!((total, events), (1, 1)),
            Err(error) => {
                assert_eq!(error.kind(), JournalErrorKind::Overloaded);
                assert!(error.is_retryable() && error.retry_after().is_some(), "{error}");
                assert!(error.is_retryable() && error.to_string().contains("tenant `acme`"), "{error}");
                assert_eq!(events, 0);
                refused += 1;
            }
        }
    }
    // Ten waited, and one more when the writer had taken the first.
    assert!((19..=20).contains(&refused), "{refused}");
}

#[tokio::test]
async fn a_database_that_is_locked_for_too_long_is_an_error() {
    let fixture = OnDisk::with(SqliteOptions { busy_timeout: Duration::from_millis(1), ..options() });
    let journal = fixture.journal();
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    let holder = rusqlite::Connection::open(fixture.database()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = journal.append(&key, 0, Epoch::NONE, note("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (JournalErrorKind::Locked, true));
    assert!(error.to_string().contains("locked by another process"), "{error}");
    // Reading continues.
    assert_eq!(journal.session(&key).await.unwrap().events, 0);
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(journal.append(&key, 0, Epoch::NONE, note("a")).await, Ok(1));
}

/// An oversized body fails alone, and deletions free space.
#[tokio::test]
async fn a_full_database_is_an_error_and_keeps_its_data() {
    let fixture = OnDisk::with(SqliteOptions { max_bytes: Some(1 << 20), ..options() });
    let journal = fixture.journal();
    let (first, second) = (key("acme", 1), key("globex", 1));
    journal.create(&first).await.unwrap();
    journal.create(&second).await.unwrap();
    let large = || vec![NewEvent::new("note", 1, vec![5; 40_000])];
    let mut total = 0;
    let error = loop {
        match journal.append(&first, total, Epoch::NONE, large()).await {
            Ok(now) => total = now,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), JournalErrorKind::DiskFull);
    assert!(!error.is_retryable() && error.to_string().contains("free some"), "{error}");
    assert!((15..26).contains(&total), "{total}");
    assert_eq!(read_all(&journal, &first, 0).await.unwrap().len() as u64, total);
    // In one group: what still fits is done.
    let results = join_all([
        journal.append(&first, total, Epoch::NONE, large()),
        journal.append(&second, 0, Epoch::NONE, note("small")),
    ])
    .await;
    assert_eq!(results[0].as_ref().unwrap_err().kind(), JournalErrorKind::DiskFull);
    assert_eq!(results[1], Ok(1));
    journal.delete_session(&first).await.unwrap();
    journal.sweep().await.unwrap();
    assert_eq!(journal.append(&second, 1, Epoch::NONE, large()).await, Ok(2));
    assert_eq!(read_all(&journal, &second, 0).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let fixture = OnDisk::with(SqliteOptions { max_body: 1_000, ..options() });
    let journal = fixture.journal();
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    let of = |size| vec![note("a").remove(0), NewEvent::new("note", 1, vec![0; size])];
    let error = journal.append(&key, 0, Epoch::NONE, of(1_001)).await.unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Invalid);
    assert_eq!(error.to_string(), "the body has 1001 bytes, more than 1000");
    assert_eq!(journal.append(&key, 0, Epoch::NONE, of(1_000)).await, Ok(2));
}

#[tokio::test]
async fn a_closed_journal_finishes_accepted_calls_only() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    let appends: Vec<_> = (0..50).map(|seq| journal.append(&key, seq, Epoch::NONE, note("a"))).collect();
    let closed = journal.close();
    let error = journal.append(&key, 50, Epoch::NONE, note("b")).await.unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Closed);
    closed.await;
    for append in appends {
        append.await.unwrap();
    }
    journal.close().await;
    let events = read_all(&fixture.journal(), &key, 0).await.unwrap();
    assert_eq!(events.len(), 50);
}

/// Leases in memory end by the clock that was given.
#[tokio::test]
async fn a_lease_ends_by_the_journals_clock() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use conjure_base::{Clock, Timestamp};
    use conjure_journal::LeaseOwner;

    #[derive(Debug, Default)]
    struct ManualClock(AtomicU64);

    impl Clock for ManualClock {
        fn timestamp(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    let clock = Arc::new(ManualClock::default());
    let journal = MemoryJournal::with_clock(Arc::<ManualClock>::clone(&clock));
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    let (one, other) = (LeaseOwner::new("one").unwrap(), LeaseOwner::new("other").unwrap());
    let lease = journal.acquire_lease(&key, &one, Duration::from_millis(100)).await.unwrap();
    assert_eq!(lease.until, Timestamp::from_millis(100));
    clock.0.store(99, Ordering::Relaxed);
    let lease_held = journal.acquire_lease(&key, &other, Duration::from_millis(100)).await.unwrap_err();
    assert_eq!(lease_held.to_string(), "the session is leased by `one` until 1970-01-01T00:00:00.100Z");
    clock.0.store(100, Ordering::Relaxed);
    journal.acquire_lease(&key, &other, Duration::from_millis(100)).await.unwrap();
}
