//! Deletions also free the disk, even when the process ends in between.

use conjure_base::TenantId;
use conjure_journal::{Epoch, Journal as _, NewEvent, Snapshot, SweepReport};

use crate::support::{OnDisk, files, key};

fn count(fixture: &OnDisk, table: &str) -> i64 {
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

fn large(byte: u8) -> Vec<NewEvent> {
    vec![NewEvent::new("file", 1, vec![byte; 100_000])]
}

#[tokio::test]
async fn a_deleted_session_leaves_no_files() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let (deleted, stays) = (key("acme", 1), key("acme", 2));
    for key in [&deleted, &stays] {
        journal.create(key).await.unwrap();
        journal.append(key, 0, Epoch::NONE, large(1)).await.unwrap();
    }
    let secret = "a secret that must not stay";
    let many = (0..1_500).map(|_| NewEvent::new("note", 1, secret.as_bytes().to_vec())).collect();
    journal.append(&deleted, 1, Epoch::NONE, many).await.unwrap();
    journal.append(&deleted, 1_501, Epoch::NONE, large(2)).await.unwrap();
    journal
        .save_snapshot(&deleted, Epoch::NONE, Snapshot { seq: 1, version: 1, body: vec![3; 100_000] })
        .await
        .unwrap();
    assert_eq!((count(&fixture, "events"), files(&fixture.dir(), "/plain/")), (1_503, 3));
    journal.delete_session(&deleted).await.unwrap();
    // The sweep comes after what the deletion left.
    assert_eq!(journal.sweep().await, Ok(SweepReport::default()));
    assert_eq!((count(&fixture, "events"), files(&fixture.dir(), "/plain/")), (1, 1));
    for table in ["snapshots", "garbage_sessions", "garbage_blobs"] {
        assert_eq!(count(&fixture, table), 0, "{table}");
    }
    journal.close().await;
    let database = std::fs::read(fixture.database()).unwrap();
    assert!(!database.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "it is overwritten");
}

/// A deletion is one small transaction; what remains is noted in it, as a killed process would leave it.
#[tokio::test]
async fn garbage_of_deletions_is_removed_at_the_next_open() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let removed = key("acme", 1);
    journal.create(&removed).await.unwrap();
    journal.append(&removed, 0, Epoch::NONE, large(1)).await.unwrap();
    journal.close().await;
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    let deleted = "DELETE FROM sessions; INSERT INTO garbage_sessions VALUES (1); INSERT INTO garbage_blobs VALUES ('acme')";
    database.execute_batch(deleted).unwrap();
    drop(database);
    // The writer removes garbage before it waits for work; closing waits for the writer.
    let journal = fixture.journal();
    journal.sweep().await.unwrap();
    assert_eq!((count(&fixture, "events"), files(&fixture.dir(), "/plain/")), (0, 0));
    assert_eq!((count(&fixture, "garbage_sessions"), count(&fixture, "garbage_blobs")), (0, 0));
}

/// Bodies are looked through where a deletion left some, and only then: that takes as long as the tenant has many.
#[tokio::test]
async fn deleting_a_session_without_large_bodies_reads_none() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let (small, has_body) = (key("acme", 1), key("acme", 2));
    for key in [&small, &has_body] {
        journal.create(key).await.unwrap();
    }
    journal.append(&small, 0, Epoch::NONE, vec![NewEvent::new("note", 1, vec![1])]).await.unwrap();
    journal.append(&has_body, 0, Epoch::NONE, large(1)).await.unwrap();
    journal.close().await;
    // So that a look at the bodies would show.
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    database.execute_batch("UPDATE events SET blob = NULL, body = x'00' WHERE blob IS NOT NULL").unwrap();
    drop(database);
    let journal = fixture.journal();
    journal.delete_session(&small).await.unwrap();
    journal.close().await;
    assert_eq!((count(&fixture, "garbage_sessions"), files(&fixture.dir(), "/plain/")), (0, 1));
}

/// A body without an event is what a crash between the two leaves.
#[tokio::test]
async fn unreferenced_bodies_are_swept_per_tenant() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    for tenant in ["acme", "globex"] {
        let key = key(tenant, 1);
        journal.create(&key).await.unwrap();
        journal.append(&key, 0, Epoch::NONE, large(1)).await.unwrap();
    }
    let store = conjure_store::Store::open(&fixture.dir().join("blobs/acme")).unwrap();
    store.insert_bytes(&[7; 90_000], conjure_store::FileMode::Plain).unwrap();
    assert_eq!(journal.sweep().await, Ok(SweepReport { blobs: 1, bytes: 90_000 }));
    assert_eq!(journal.sweep().await, Ok(SweepReport::default()));
    assert_eq!(files(&fixture.dir(), "/plain/"), 2);
    // Deleting a tenant deletes only its own bodies.
    assert_eq!(journal.delete_tenant(&TenantId::new("acme").unwrap()).await, Ok(1));
    journal.sweep().await.unwrap();
    assert_eq!(files(&fixture.dir().join("blobs/acme"), "/plain/"), 0);
    assert_eq!(files(&fixture.dir().join("blobs/globex"), "/plain/"), 1);
}

/// The search takes time in proportion to a tenant's bodies; no call waits for it when nothing is to be removed.
#[tokio::test]
async fn a_sweep_without_garbage_does_not_wait_for_the_writer() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    journal.append(&key, 0, Epoch::NONE, large(1)).await.unwrap();
    let other = rusqlite::Connection::open(fixture.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(journal.sweep().await, Ok(SweepReport::default()));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(files(&fixture.dir(), "/plain/"), 1);
}
