//! Truncated, changed and foreign files: every damage is reported or harmless.

use std::fs;
use std::path::Path;

use conjure_journal::{
    AppendBatch, DamagedPart, Epoch, IndexName, Journal as _, JournalError, JournalErrorKind, NewEvent,
    NewRecord, RecordContent, RecordErrorKind, RecordKey, RecordKind, RecordQuery, RecordScope,
    RecordedEvent, Records as _, RowStatus, SessionKey, SessionRow, Snapshot, SqliteJournal, read_all,
};

use crate::support::{OnDisk, files, key, note, options};

/// How many events each session has.
const EVENTS: u64 = 12;

fn sessions() -> Vec<SessionKey> {
    [("acme", 1), ("acme", 2), ("globex", 1)].map(|(tenant, number)| key(tenant, number)).into()
}

/// A journal that was closed, and so is one file without a log.
async fn recorded() -> (OnDisk, Vec<Vec<RecordedEvent>>) {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let mut all = Vec::new();
    for key in sessions() {
        journal.create(&key).await.unwrap();
        for seq in 0..EVENTS {
            let body = vec![seq as u8; 100 + 97 * seq as usize];
            journal.append(&key, seq, Epoch::NONE, vec![NewEvent::new("note", 1, body)]).await.unwrap();
        }
        let snapshot = Snapshot { seq: 3, version: 1, body: vec![9; 700] };
        journal.save_snapshot(&key, Epoch::NONE, snapshot).await.unwrap();
        all.push(read_all(&journal, &key, 0).await.unwrap());
    }
    journal.close().await;
    assert_eq!(files(&fixture.dir(), "journal.sqlite"), 1, "the log is merged");
    (fixture, all)
}

/// Reads all of a journal. Everything is as it was recorded, or an error says what is wrong.
async fn assert_reported_or_intact(dir: &Path, all: &[Vec<RecordedEvent>]) -> usize {
    let journal = match SqliteJournal::open(dir, options()) {
        Ok(journal) => journal,
        Err(error) => {
            let kind = error.kind();
            assert!(matches!(kind, JournalErrorKind::Corrupt | JournalErrorKind::Newer), "{error:?}");
            return 1;
        }
    };
    let mut reported = 0;
    for (key, expected) in sessions().iter().zip(all) {
        match read_all(&journal, key, 0).await {
            Ok(events) => assert!(events == *expected, "{key}: damage was not told"),
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, JournalErrorKind::Corrupt | JournalErrorKind::NotFound), "{error:?}");
                reported += 1;
            }
        }
        match journal.snapshot(key).await {
            Ok(Some(snapshot)) => assert_eq!((snapshot.seq, snapshot.body), (3, vec![9; 700])),
            Ok(None) => reported += 1,
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, JournalErrorKind::Corrupt | JournalErrorKind::NotFound), "{error:?}");
                reported += 1;
            }
        }
    }
    journal.close().await;
    reported
}

#[tokio::test]
async fn a_truncated_database_is_an_error() {
    let (fixture, all) = recorded().await;
    let complete = fs::read(fixture.database()).unwrap();
    // An empty file is a new journal, and has no session.
    for length in
        [0, 1, 99, 100, 4_095, 4_096, 5_000, complete.len() / 2, complete.len() - 4_096, complete.len() - 1]
    {
        fs::write(fixture.database(), &complete[..length]).unwrap();
        assert!(assert_reported_or_intact(&fixture.dir(), &all).await > 0, "cut at {length}");
        for log in ["journal.sqlite-wal", "journal.sqlite-shm"] {
            let _ = fs::remove_file(fixture.dir().join(log));
        }
    }
    fs::write(fixture.database(), &complete).unwrap();
    assert_eq!(assert_reported_or_intact(&fixture.dir(), &all).await, 0);
}

/// SQLite does not check its pages; the rows' checksums do.
#[tokio::test]
async fn a_changed_byte_is_an_error_or_harmless() {
    let (fixture, all) = recorded().await;
    let complete = fs::read(fixture.database()).unwrap();
    let mut reported = 0;
    for position in (0..complete.len()).step_by(complete.len() / 150) {
        let mut damaged = complete.clone();
        damaged[position] ^= 0x21;
        fs::write(fixture.database(), &damaged).unwrap();
        reported += usize::from(assert_reported_or_intact(&fixture.dir(), &all).await > 0);
        for log in ["journal.sqlite-wal", "journal.sqlite-shm"] {
            let _ = fs::remove_file(fixture.dir().join(log));
        }
    }
    // Events are most of the file.
    assert!(reported > 20, "{reported} of 150 damages were told");
}

/// A change within a body is reported with its position, and the other events are readable.
#[tokio::test]
async fn a_damaged_event_is_named_and_others_are_read() {
    let (fixture, all) = recorded().await;
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    let damage = "UPDATE events SET body = zeroblob(length(body)) WHERE session = 2 AND seq = 5";
    assert_eq!(database.execute(damage, []).unwrap(), 1);
    let journal = fixture.journal();
    let damaged = key("acme", 2);
    let error = read_all(&journal, &damaged, 0).await.unwrap_err();
    let damaged_part = DamagedPart::Event { session: damaged.clone(), seq: 5 };
    assert_eq!(
        error,
        JournalError::Corrupt { place: damaged_part, reason: "its checksum does not fit".into() }
    );
    assert!(error.to_string().starts_with("the event 5 of the session acme/sesn_"), "{error}");
    assert_eq!(read_all(&journal, &damaged, 6).await.unwrap(), all[1][6..]);
    assert_eq!(read_all(&journal, &key("acme", 1), 0).await.unwrap(), all[0]);
    // Those that are missing, in between and at the end, and one too many.
    for (damage, seq) in [
        ("DELETE FROM events WHERE session = 3 AND seq = 4", 4),
        ("DELETE FROM events WHERE session = 3 AND seq >= 9", 9),
        ("DELETE FROM events WHERE session = 3", 0),
        ("UPDATE sessions SET events = 7 WHERE id = 1", 7),
    ] {
        assert!(database.execute(damage, []).unwrap() > 0);
        let session = if seq == 7 { key("acme", 1) } else { key("globex", 1) };
        let error = read_all(&journal, &session, 0).await.unwrap_err();
        let JournalError::Corrupt { place: damaged_part, .. } = error else { panic!("{error:?}") };
        assert_eq!(damaged_part, DamagedPart::Event { session, seq });
    }
}

/// The log is cut at any place: each session has its first events, without a hole, and continues from there.
#[tokio::test]
async fn a_truncated_wal_keeps_complete_appends() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    for append in 0..20 {
        let events: Vec<NewEvent> = (0..3).flat_map(|_| note(&"x".repeat(300 + append))).collect();
        journal.append(&key, 3 * append as u64, Epoch::NONE, events).await.unwrap();
    }
    let read = |name: &str| fs::read(fixture.dir().join(name)).unwrap();
    let (database, log) = (read("journal.sqlite"), read("journal.sqlite-wal"));
    assert!(log.len() > 100_000, "everything is in the log: {}", log.len());
    let mut received = Vec::new();
    for part in 0..=40 {
        let copy = OnDisk::new();
        fs::create_dir(copy.dir()).unwrap();
        fs::write(copy.database(), &database).unwrap();
        fs::write(copy.dir().join("journal.sqlite-wal"), &log[..log.len() * part / 40]).unwrap();
        let journal = copy.journal();
        let events = match read_all(&journal, &key, 0).await {
            Ok(events) => events.len() as u64,
            Err(error) => {
                assert_eq!(error.kind(), JournalErrorKind::NotFound, "{error:?}");
                journal.create(&key).await.unwrap();
                0
            }
        };
        assert_eq!(events % 3, 0, "an append was cut");
        journal.append(&key, events, Epoch::NONE, note("more")).await.unwrap();
        received.push(events);
    }
    assert_eq!(received.last(), Some(&60));
    assert!(received.is_sorted() && received[0] == 0 && received.contains(&30), "{received:?}");
}

#[tokio::test]
async fn a_missing_or_changed_large_body_is_an_error() {
    let fixture = OnDisk::new();
    let journal = fixture.journal();
    let key = key("acme", 1);
    journal.create(&key).await.unwrap();
    let large = |byte| vec![NewEvent::new("file", 1, vec![byte; 100_000])];
    journal.append(&key, 0, Epoch::NONE, large(1)).await.unwrap();
    journal.append(&key, 1, Epoch::NONE, large(2)).await.unwrap();
    let contents = fixture.dir().join("blobs/acme/plain");
    assert_eq!(files(&contents, ""), 2);
    let mut bodies = Vec::new();
    for dir in fs::read_dir(&contents).unwrap() {
        bodies.extend(fs::read_dir(dir.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    for body in &bodies {
        let complete = fs::read(body).unwrap();
        fs::remove_file(body).unwrap();
        let missing = read_all(&journal, &key, 0).await.unwrap_err();
        fs::write(body, &complete[1..]).unwrap();
        let cut = read_all(&journal, &key, 0).await.unwrap_err();
        for (error, reason) in [(missing, "its body is missing"), (cut, "its body has another digest")] {
            let seq = u64::from(complete[0] - 1);
            let damaged_part = DamagedPart::Event { session: key.clone(), seq };
            assert_eq!(error, JournalError::Corrupt { place: damaged_part, reason: reason.into() });
        }
        fs::remove_file(body).unwrap();
        fs::write(body, &complete).unwrap();
    }
    assert_eq!(read_all(&journal, &key, 0).await.unwrap().len(), 2);
}

#[test]
fn other_files_are_rejected_and_unchanged() {
    let fixture = OnDisk::new();
    let refused = || SqliteJournal::open(&fixture.dir(), options()).unwrap_err();
    fs::create_dir(fixture.dir()).unwrap();
    let text = "These are notes and no database. ".repeat(100);
    fs::write(fixture.database(), &text).unwrap();
    let error = refused();
    assert!(matches!(error, JournalError::NotAJournal { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(fixture.database()).unwrap(), text);

    fs::remove_file(fixture.database()).unwrap();
    let other = rusqlite::Connection::open(fixture.database()).unwrap();
    other.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    let error = refused();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(other.query_row("SELECT x FROM mine", [], |row| row.get::<_, i64>(0)), Ok(1));
    drop(other);

    for log in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{log}", fixture.database().display()));
    }
    fs::create_dir(fixture.database()).unwrap();
    assert_eq!(refused().kind(), JournalErrorKind::Io);
    // A file where the directory should be.
    let file = fixture.dir().join("file");
    fs::write(&file, "").unwrap();
    let error = SqliteJournal::open(&file, options()).unwrap_err();
    assert_eq!(error.kind(), JournalErrorKind::Io, "{error:?}");
}

/// A record returns the written content, or an error for its damage. The other records are intact.
#[tokio::test]
async fn a_damaged_record_is_an_error() {
    let kind = RecordKind::from_static("agent");
    let index = IndexName::from_static("index");
    let scope = RecordScope::from(key("acme", 1).tenant);
    let record = |id: &str| RecordKey::new(scope.clone(), kind.clone(), id).unwrap();
    let changes = [
        "version = 2",
        "name = 'other'",
        "indexes = 'index=n2\n'",
        "indexes = 'no index'",
        "body = x'00'",
        "created = created + 1",
        "updated = updated + 1",
        "checksum = checksum + 1",
    ];
    for change in changes {
        let fixture = OnDisk::new();
        let journal = fixture.journal();
        for id in ["a", "b"] {
            let content = RecordContent::new(*b"body").with_unique_name(id).with_index(index.clone(), 1);
            journal.insert(NewRecord::new(record(id), content)).await.unwrap();
        }
        let database = rusqlite::Connection::open(fixture.database()).unwrap();
        database.execute(&format!("UPDATE records SET {change} WHERE id = 'a'"), []).unwrap();
        let error = journal.get(&record("a")).await.unwrap_err();
        assert_eq!(error.kind(), RecordErrorKind::Corrupt, "{change}: {error}");
        let query = RecordQuery::new(scope.clone(), kind.clone()).with_filter(index.clone(), 1);
        let error = journal.query(query).await.unwrap_err();
        assert_eq!(error.kind(), RecordErrorKind::Corrupt, "{change}: {error}");
        assert!(journal.get(&record("b")).await.unwrap().is_some(), "{change}");
        journal.close().await;
    }
}

/// The row of a session repeats its events, so a damaged row is skipped.
#[tokio::test]
async fn a_damaged_session_row_is_skipped() {
    for change in ["status = 0", "status = 9", "row_version = 2", "row = x'00'", "row_checksum = 1"] {
        let fixture = OnDisk::new();
        let journal = fixture.journal();
        let key = key("acme", 1);
        journal.create(&key).await.unwrap();
        let row = SessionRow { status: RowStatus::Running, version: 1, body: b"row".to_vec() };
        let batch = AppendBatch::new(note("a")).with_row(row.clone());
        journal.append_batch(&key, 0, Epoch::NONE, batch).await.unwrap();
        assert_eq!(journal.session(&key).await.unwrap().row, Some(row));
        let database = rusqlite::Connection::open(fixture.database()).unwrap();
        database.execute(&format!("UPDATE sessions SET {change}"), []).unwrap();
        assert_eq!(journal.session(&key).await.unwrap().row, None, "{change}");
        assert_eq!(journal.sessions(&key.tenant, None, 10).await.unwrap().sessions[0].row, None, "{change}");
        assert_eq!(read_all(&journal, &key, 0).await.unwrap().len(), 1);
        journal.close().await;
    }
}
