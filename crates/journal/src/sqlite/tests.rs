//! Cases that the public API cannot provoke: the order of the queue, a thread that panics, migrations between formats, a file
//! that
//! is exchanged while it is opened.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use conjure_base::{SessionId, TenantId};
use rusqlite::{Connection, OpenFlags};

use super::{SqliteJournal, SqliteOptions};
use crate::error::{FoundInstead, JournalError, JournalErrorKind};
use crate::event::{NewEvent, PageLimit};
use crate::journal::{Journal as _, read_all};
use crate::key::{Epoch, SessionKey};
use crate::sqlite::database::open::{self, connect};
use crate::sqlite::database::schema::{STEPS, migrate};
use crate::sqlite::queue::call_queue::{BatchLimits, CallQueue, OnEmpty};
use crate::sqlite::queue::fair_queue::QueueLimits;
use crate::sqlite::queue::job::{Batching, queued_call};
use crate::tenant_weights::TenantWeights;

const BOUNDS: QueueLimits = QueueLimits { calls: 20, calls_per_tenant: 4, bytes: 100, bytes_per_tenant: 40 };

const ALL: BatchLimits = BatchLimits { calls: 9, bytes: 1_000 };

fn tenant(name: &str) -> Option<TenantId> {
    Some(TenantId::new(name).unwrap())
}

fn take(queue: &CallQueue<u32>, max: BatchLimits) -> Vec<u32> {
    queue.take(max, OnEmpty::Return).unwrap()
}

#[test]
fn tenants_take_turns_by_their_weights() {
    let queue = CallQueue::new(BOUNDS);
    let weights = TenantWeights::default();
    queue.set_weights(weights.clone());
    weights.set(&tenant("b").unwrap(), NonZeroU32::new(3));
    for number in 0..4 {
        queue.push(tenant("a"), 0, 10 + number).unwrap();
        queue.push(tenant("b"), 0, 20 + number).unwrap();
    }
    assert_eq!(take(&queue, ALL), [10, 20, 21, 22, 11, 23, 12, 13]);
    // Calls without a tenant have the default weight.
    weights.set_default(NonZeroU32::new(3).unwrap());
    weights.set(&tenant("b").unwrap(), NonZeroU32::new(1));
    assert_eq!(take(&queue, ALL), [], "no work is left, and no call is ahead");
    for number in 0..4 {
        queue.push(tenant("b"), 0, 20 + number).unwrap();
        queue.push(None, 0, 30 + number).unwrap();
    }
    assert_eq!(take(&queue, ALL), [20, 30, 31, 32, 21, 33, 22, 23]);
}

#[test]
fn a_batch_is_limited_in_bytes_except_for_a_single_call() {
    let queue = CallQueue::new(BOUNDS);
    let max = BatchLimits { calls: 2, bytes: 50 };
    queue.push(tenant("a"), 90, 0).unwrap();
    for (number, bytes) in [(1, 30), (2, 20), (3, 1)] {
        queue.push(tenant(&format!("b{number}")), bytes, number).unwrap();
    }
    assert_eq!(take(&queue, max), [0]);
    assert_eq!(take(&queue, max), [1, 2]);
    assert_eq!(take(&queue, max), [3]);
    for number in 0..3 {
        queue.push(tenant("a"), 0, number).unwrap();
    }
    assert_eq!(take(&queue, max), [0, 1]);
}

#[test]
fn overload_is_rejected_and_names_the_scope() {
    let queue = CallQueue::new(BOUNDS);
    for number in 0..4 {
        queue.push(tenant("a"), 10, number).unwrap();
    }
    let refused = queue.push(tenant("a"), 0, 4).unwrap_err();
    assert_eq!(refused, JournalError::Overloaded { tenant: Some("a".into()), waiting: 4, bytes: 40 });
    assert!(refused.is_retryable());
    queue.push(tenant("b"), 30, 5).unwrap();
    let refused = queue.push(tenant("b"), 11, 6).unwrap_err();
    assert_eq!(refused, JournalError::Overloaded { tenant: Some("b".into()), waiting: 1, bytes: 30 });
    let refused = queue.push(tenant("c"), 31, 6).unwrap_err();
    assert_eq!(refused, JournalError::Overloaded { tenant: None, waiting: 5, bytes: 70 });
    queue.push(tenant("c"), 30, 6).unwrap();
}

#[test]
fn a_closed_queue_drains_and_accepts_no_more() {
    let queue = CallQueue::new(BOUNDS);
    queue.push(tenant("a"), 0, 1).unwrap();
    queue.close();
    assert_eq!(queue.push(tenant("a"), 0, 2), Err(JournalError::Closed));
    assert_eq!(queue.take(ALL, OnEmpty::Wait), Some(vec![1]));
    assert_eq!(queue.take(ALL, OnEmpty::Wait), None);
    queue.fail_all(JournalError::Lost { part: "writer", reason: "test".into() });
    assert_eq!(queue.len(), 0);
    let error = queue.push(tenant("a"), 0, 2).unwrap_err();
    assert!(error.is_critical() && error.kind() == JournalErrorKind::ThreadEnded, "{error:?}");
}

/// The end of the writer fails waiting and later writes, and no reads.
#[tokio::test]
async fn a_panic_of_the_writer_fails_all_calls() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    let journal = open();
    let key = SessionKey::new(tenant("acme").unwrap(), SessionId::from_bits(1));
    journal.create(&key).await.unwrap();
    let note = |text: &str| vec![NewEvent::new("note", 1, text.as_bytes().to_vec())];
    journal.append(&key, 0, Epoch::NONE, note("a")).await.unwrap();

    // It panics only when the next call is waiting.
    let (waiting, until_one_waits) = std::sync::mpsc::channel::<()>();
    let panicking = journal.submit_write::<()>(None, 0, move |_| {
        let _ = until_one_waits.recv();
        panic!("on purpose")
    });
    let behind = journal.append(&key, 1, Epoch::NONE, note("b"));
    drop(waiting);
    assert!(panicking.await.unwrap_err().is_critical());
    let behind = behind.await.unwrap_err();
    assert_eq!(behind.kind(), JournalErrorKind::Lost);
    // Once the thread has ended, the reason is known.
    let mut writers = journal.inner.writers.clone();
    writers.wait_for(|alive| *alive == 0).await.unwrap();
    let later = journal.append(&key, 1, Epoch::NONE, note("b")).await.unwrap_err();
    assert_eq!(
        later.to_string(),
        "the journal's writer has ended: it panicked: on purpose; nothing was done, open the journal again"
    );
    assert_eq!(journal.session(&key).await.unwrap().events, 1);

    let reopened = open();
    assert_eq!(reopened.append(&key, 1, Epoch::NONE, note("b")).await, Ok(2));
    // A reader's end leaves the writer alone.
    for _ in 0..2 {
        let panicking = reopened.submit_read::<()>(None, |_| panic!("on purpose"));
        assert!(panicking.await.unwrap_err().is_critical());
    }
    assert_eq!(reopened.append(&key, 2, Epoch::NONE, note("c")).await, Ok(3));
    let mut readers = reopened.inner.readers.clone();
    readers.wait_for(|alive| *alive == 0).await.unwrap();
    let lost = reopened.read(&key, 0, PageLimit::default()).await.unwrap_err();
    assert_eq!(lost.kind(), JournalErrorKind::ThreadEnded);
}

/// Put there behind the first look, and gone again before the next: what is open is looked at, not only the name. The log stays the
/// database's, which has everything in it.
#[tokio::test]
async fn a_temporary_copy_under_the_databases_name_gets_no_wal() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    let key = SessionKey::new(tenant("acme").unwrap(), SessionId::from_bits(1));
    journal.create(&key).await.unwrap();
    let note = |text: &str| vec![NewEvent::new("note", 1, text.as_bytes().to_vec())];
    journal.append(&key, 0, Epoch::NONE, note("a")).await.unwrap();

    let files = Arc::clone(&journal.inner.files);
    let (database, saved) = (files.database(), dir.path().join("kept"));
    fs::rename(database, &saved).unwrap();
    fs::copy(&saved, database).unwrap();
    let connection = connect(database, OpenFlags::empty()).unwrap();
    let another = JournalError::DatabaseMoved { path: database.to_owned(), found: FoundInstead::Another };
    assert_eq!(files.check_connection(&connection), Err(another.clone()));
    fs::rename(&saved, database).unwrap();
    assert_eq!(files.check_connection(&connection), Err(another));
    drop(connection);
    assert_eq!(files.check_wal(*files.read_wal()), Ok(()));
    assert_eq!(files.check_connection(&connect(database, OpenFlags::empty()).unwrap()), Ok(()));

    journal.append(&key, 1, Epoch::NONE, note("b")).await.unwrap();
    journal.close().await;
    let reopened = SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    assert_eq!(read_all(&reopened, &key, 0).await.unwrap().len(), 2);
}

/// A call that breaks its transaction fails alone: the others of its group are carried out.
#[tokio::test]
async fn a_failing_call_fails_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    let key = SessionKey::new(tenant("acme").unwrap(), SessionId::from_bits(1));
    journal.create(&key).await.unwrap();
    // While this is under way the others gather into one group.
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let mut gate = Some(gate);
    let first = journal.submit_write(None, 0, move |_| {
        // Carried out again if the others were in its group already.
        if let Some(gate) = gate.take() {
            gate.recv().unwrap();
        }
        Ok(())
    });
    let note = |text: &str| vec![NewEvent::new("note", 1, text.as_bytes().to_vec())];
    let before = journal.append(&key, 0, Epoch::NONE, note("a"));
    let broken = journal.submit_write::<()>(Some(&key.tenant), 0, |tx| {
        tx.connection.execute("DELETE FROM events", [])?;
        let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
        Err(rusqlite::Error::SqliteFailure(full, None).into())
    });
    let behind = journal.append(&key, 1, Epoch::NONE, note("b"));
    go.send(()).unwrap();
    first.await.unwrap();
    assert_eq!(before.await, Ok(1));
    assert_eq!(broken.await.unwrap_err().kind(), JournalErrorKind::DiskFull);
    assert_eq!(behind.await, Ok(2));
    let page = journal.read(&key, 0, PageLimit::default()).await.unwrap();
    assert_eq!(page.events.iter().map(|event| event.body[0]).collect::<Vec<_>>(), *b"ab");
}

/// Abandoned reads are skipped, and exclusive jobs are not batched.
#[test]
fn a_job_reports_its_batching_and_replies_to_its_caller() {
    let (alone, answer) = queued_call(Batching::Exclusive, |_| Ok(()));
    assert_eq!((alone.batching(), alone.is_abandoned()), (Batching::Exclusive, false));
    drop(answer);
    assert!(alone.is_abandoned());
}

#[test]
fn an_older_database_runs_the_missing_migrations() {
    let path = Path::new("/test");
    let mut connection = Connection::open_in_memory().unwrap();
    let later =
        [STEPS[0], "ALTER TABLE sessions ADD COLUMN title TEXT", "CREATE TABLE more (x INTEGER) STRICT"];
    migrate(&mut connection, path, &later[..1]).unwrap();
    migrate(&mut connection, path, &later).unwrap();
    migrate(&mut connection, path, &later).unwrap();
    let has_title = "SELECT count(*) FROM pragma_table_info('sessions') WHERE name = 'title'";
    assert_eq!(connection.query_row(has_title, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    // And one that does not know the later format refuses.
    let error = migrate(&mut connection, path, &later[..2]).unwrap_err();
    assert_eq!(error, JournalError::NewerFormat { path: path.to_owned(), found: 3, known: 2 });
    // A step that fails changes nothing, not even the number.
    let broken =
        [later[0], later[1], later[2], "CREATE TABLE most (x INTEGER) STRICT; CREATE TABLE more (y ANY)"];
    assert!(migrate(&mut connection, path, &broken).is_err());
    migrate(&mut connection, path, &later).unwrap();
}

#[tokio::test]
async fn dropping_the_last_clone_ends_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    let (mut writers, mut readers) = (journal.inner.writers.clone(), journal.inner.readers.clone());
    assert_eq!((*writers.borrow(), *readers.borrow()), (1, 2));
    let key = SessionKey::new(tenant("acme").unwrap(), SessionId::from_bits(1));
    let clone = journal.clone();
    drop(journal);
    // Submitted calls are executed although all handles are dropped.
    let created = clone.create(&key);
    let inner = Arc::downgrade(&clone.inner);
    drop(clone);
    assert!(inner.upgrade().is_none());
    created.await.unwrap();
    for alive in [&mut writers, &mut readers] {
        // An error means that the threads are gone with the other end.
        let _ = alive.wait_for(|alive| *alive == 0).await;
    }
    assert!(!dir.path().join("journal.sqlite-wal").exists(), "the log is merged");
}

/// No writer has the log open any more. Readers do, and the last one to close it merges it.
#[tokio::test]
async fn a_wal_removed_while_the_writer_ends_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    let key = SessionKey::new(TenantId::new("acme").unwrap(), SessionId::from_bits(1));
    let note = |text: &str| vec![NewEvent::new("note", 1, text.as_bytes().to_vec())];
    journal.create(&key).await.unwrap();
    journal.append(&key, 0, Epoch::NONE, note("0")).await.unwrap();
    let log = dir.path().join("journal.sqlite-wal");
    let panicking = journal.submit_write::<()>(None, 0, move |_| {
        fs::remove_file(&log).unwrap();
        std::panic::resume_unwind(Box::new("it was killed"))
    });
    assert!(panicking.await.unwrap_err().is_critical());
    journal.close().await;
    let second = journal.reopen().unwrap();
    assert_eq!(second.append(&key, 1, Epoch::NONE, note("1")).await, Ok(2));
    second.close().await;
    let reopened = SqliteJournal::open(dir.path(), SqliteOptions::default()).unwrap();
    assert_eq!(read_all(&reopened, &key, 0).await.unwrap().len(), 2);
}

/// A reader that rested, and is the last to close the database after the writer died: by the index of the new log it would merge what
/// lies in the old one, and then remove the new one.
#[tokio::test]
async fn an_older_wal_is_not_merged_when_the_writer_ends() {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteOptions::default();
    let journal = SqliteJournal::open(dir.path(), options.clone()).unwrap();
    let key = SessionKey::new(TenantId::new("acme").unwrap(), SessionId::from_bits(1));
    let note = |text: &str| vec![NewEvent::new("note", 1, text.as_bytes().to_vec())];
    journal.create(&key).await.unwrap();
    for seq in 0..9 {
        journal.append(&key, seq, Epoch::NONE, note("old")).await.unwrap();
    }
    let files = Arc::clone(&journal.inner.files);
    let old = *files.read_wal();
    let resting = open::open_reader(&files, old, &options).unwrap();
    // It is merged, and what lies in it stays there.
    let passing = connect(files.database(), OpenFlags::empty()).unwrap();
    let merge = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
    let [is_busy, there, merged]: [i64; 3] =
        passing.query_row("PRAGMA wal_checkpoint(FULL)", [], merge).unwrap();
    assert!(is_busy == 0 && there > 0 && there == merged, "{there} and {merged}");
    drop(passing);
    journal.close().await;

    fs::rename(dir.path().join("journal.sqlite-wal"), dir.path().join("away")).unwrap();
    let second = journal.reopen().unwrap();
    assert_ne!(*files.read_wal(), old);
    assert_eq!(second.append(&key, 9, Epoch::NONE, note("new")).await, Ok(10));
    second.kill_writer_for_test();
    second.close().await;
    drop(resting);
    let reopened = SqliteJournal::open(dir.path(), options).unwrap();
    let events = read_all(&reopened, &key, 0).await.unwrap();
    assert_eq!(events.iter().map(|event| event.body.len()).collect::<Vec<_>>(), [3; 10]);
    assert_eq!(events[9].body, b"new");
    assert_eq!(reopened.append(&key, 10, Epoch::NONE, note("last")).await, Ok(11));
}
