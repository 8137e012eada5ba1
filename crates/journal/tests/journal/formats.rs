//! Journals of other formats.

use std::fs;
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conjure_base::Timestamp;
use conjure_journal::{
    CounterIncrement, Direction, IndexName, IndexValue, Journal as _, JournalError, LeaseOwner, ROW_BYTES,
    RecordKey, RecordKind, RecordOrder, RecordQuery, RecordScope, Records as _, RowStatus, SessionQuery,
    Snapshot, SqliteJournal, SqliteOptions, read_all,
};

use crate::support::{OnDisk, key, note, options};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    // A store must not be writable by others, whatever mask of new files' modes the test has.
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// The database of format 1 was written once by `examples/write_golden.rs`. Every later version reads it.
#[tokio::test]
async fn a_journal_of_format_1_is_read_and_written() {
    let fixture = OnDisk::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/1"), &fixture.dir());
    let journal = fixture.journal();
    let first = key("acme", 0x0001_0203);
    let events = read_all(&journal, &first, 0).await.unwrap();
    let found: Vec<_> = events
        .iter()
        .map(|event| (event.seq, event.epoch.number(), event.kind.as_str(), event.version))
        .collect();
    assert_eq!(found, [(0, 0, "note", 1), (1, 0, "note", 1), (2, 1, "file", 3), (3, 1, "empty", 0)]);
    assert_eq!(events[0].body, "grün".as_bytes());
    assert_eq!(events[1].body, (0..=255).collect::<Vec<u8>>());
    assert_eq!(events[2].body, b"large ".repeat(1_000));
    assert_eq!(events[3].body, b"");
    let snapshot = Snapshot { seq: 2, version: 9, body: b"state".to_vec() };
    assert_eq!(journal.snapshot(&first).await.unwrap(), Some(snapshot));
    let info = journal.session(&first).await.unwrap();
    let lease = info.lease.unwrap();
    assert_eq!((lease.owner.as_str(), lease.epoch.number(), info.epoch), ("host-1", 1, lease.epoch));
    assert_eq!(lease.until, Timestamp::from_millis(i64::MAX.unsigned_abs()));
    let tenants = journal.tenants(None, 10).await.unwrap();
    assert_eq!(tenants.iter().map(conjure_base::TenantId::as_str).collect::<Vec<_>>(), ["acme", "globex"]);
    // And continues.
    assert_eq!(journal.append(&first, 4, lease.epoch, note("more")).await, Ok(5));
    assert_eq!(read_all(&journal, &key("globex", 7), 0).await.unwrap().len(), 0);
}

/// The same with counters, which a journal of format 1 gets when it is opened.
#[tokio::test]
async fn counters_of_format_2_are_read_and_those_of_format_1_start_at_zero() {
    for (format, [tokens, calls]) in [("1", [0, 0]), ("2", [1_234, 1]), ("3", [1_234, 1]), ("4", [1_234, 1])]
    {
        let fixture = OnDisk::new();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format), &fixture.dir());
        let journal = fixture.journal();
        let first = key("acme", 0x0001_0203);
        let names = || vec!["tokens".to_owned(), "calls".to_owned()];
        assert_eq!(journal.counters(&first.tenant, names()).await, Ok(vec![tokens, calls]));
        let lease = journal.session(&first).await.unwrap().lease.unwrap();
        let charges = vec![CounterIncrement::new("tokens", 6)];
        assert_eq!(journal.append_with_counters(&first, 4, lease.epoch, note("more"), charges).await, Ok(5));
        assert_eq!(journal.counters(&first.tenant, names()).await, Ok(vec![tokens + 6, calls]));
        journal.close().await;
        assert_eq!(fixture.journal().counters(&first.tenant, names()).await, Ok(vec![tokens + 6, calls]));
    }
}

/// Bodies recorded before the counter existed are counted when the journal is opened.
#[tokio::test]
async fn stored_bytes_are_the_same_in_every_format() {
    for format in ["1", "2", "3", "4"] {
        let fixture = OnDisk::new();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format), &fixture.dir());
        let journal = fixture.journal();
        let first = key("acme", 0x0001_0203);
        // A session, four events, a snapshot; one body lies in the tenant's store.
        let bytes = 6 * ROW_BYTES + 4 + 5 + 4 + 256 + 4 + 5 + 5;
        // A record.
        let bytes = bytes + if format == "4" { ROW_BYTES + 7 } else { 0 };
        assert_eq!(journal.stored_bytes(&first.tenant).await, Ok(bytes), "format {format}");
        assert_eq!(journal.stored_bytes(&key("globex", 7).tenant).await, Ok(ROW_BYTES));
        let lease = journal.session(&first).await.unwrap().lease.unwrap();
        journal.append(&first, 4, lease.epoch, note("more")).await.unwrap();
        assert_eq!(journal.stored_bytes(&first.tenant).await, Ok(bytes + ROW_BYTES + 8));
    }
}

/// Sessions that were last written in an earlier format have no row, and there are no records.
#[tokio::test]
async fn rows_and_records_of_a_journal_of_format_4_are_read_and_an_older_one_has_none() {
    for format in ["1", "2", "3", "4"] {
        let fixture = OnDisk::new();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format), &fixture.dir());
        let journal = fixture.journal();
        let agents = RecordQuery::new(key("acme", 0).tenant, RecordKind::from_static("agent"));
        let found = journal.query(agents.clone()).await.unwrap().records;
        let first = journal.session(&key("acme", 0x0001_0203)).await.unwrap();
        assert_eq!((first.row, first.events), (None, 4));
        if format != "4" {
            assert_eq!(found, []);
            continue;
        }
        let waiting = journal.session(&key("initech", 8)).await.unwrap().row.unwrap();
        assert_eq!((waiting.status, waiting.version), (RowStatus::AwaitingAction, 5));
        assert_eq!(waiting.body, b"row");
        let [agent] = &found[..] else { panic!("{found:?}") };
        assert_eq!((agent.version, agent.content.body.as_slice()), (2, b"agent 2".as_slice()));
        assert_eq!(agent.content.unique_name.as_deref(), Some("Grün"));
        let [status, due] = ["status", "due"].map(IndexName::from_static);
        assert_eq!(agent.index(&due), Some(&IndexValue::Number(-7)));
        let active =
            agents.with_filter(status, "active").with_order(RecordOrder::index(due), Direction::Ascending);
        assert_eq!(journal.query(active).await.unwrap().records, found);
        let key = RecordKey::new(RecordScope::System, RecordKind::from_static("key"), "sha256:00").unwrap();
        assert_eq!(journal.get(&key).await.unwrap().unwrap().content.body, b"acme");
    }
}

/// The order of the sessions is that of their times, also where a clock has jumped back in an earlier format.
#[tokio::test]
async fn a_migration_puts_the_times_of_sessions_in_their_order() {
    let fixture = OnDisk::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/3"), &fixture.dir());
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    for (number, created) in [(1, 500), (2, 300), (3, 700), (4, 600)] {
        let sql = "INSERT INTO sessions (tenant, session, events, epoch, lease_until, created, updated)
            VALUES ('jumps', cast(printf('%016d', ?) AS BLOB), 0, 0, 0, ?, 0)";
        database.execute(sql, [number, created]).unwrap();
    }
    drop(database);
    let journal = fixture.journal();
    let tenant = key("jumps", 0).tenant;
    let listed = journal.sessions(&tenant, None, 10).await.unwrap().sessions;
    let created: Vec<_> = listed.iter().map(|info| info.created.millis()).collect();
    assert_eq!(created, [700, 700, 500, 500]);
    let query = SessionQuery {
        created: (Bound::Included(Timestamp::from_millis(600)), Bound::Unbounded),
        ..SessionQuery::default()
    };
    let sessions = journal.query_sessions(&tenant, query).await.unwrap().sessions;
    assert_eq!(sessions, listed[..2]);
}

/// Its new format takes more room than it may have.
#[tokio::test]
async fn a_full_journal_of_format_2_is_opened() {
    let fixture = OnDisk::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/2"), &fixture.dir());
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    let sessions = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2000) \
        INSERT INTO sessions (tenant, session, events, epoch, lease_until, created, updated) \
        SELECT 'full', cast(printf('%016d', n) AS BLOB), 0, 0, 0, 0, 0 FROM n; VACUUM";
    database.execute_batch(sessions).unwrap();
    drop(database);
    let max_bytes = fs::metadata(fixture.database()).unwrap().len();
    let full = SqliteOptions { max_bytes: Some(max_bytes), ..options() };
    let journal = SqliteJournal::open(&fixture.dir(), full).unwrap();
    let full = key("full", 0).tenant;
    assert_eq!(journal.session_count(&full).await, Ok(2_000));
    assert_eq!(journal.stored_bytes(&full).await, Ok(2_000 * ROW_BYTES));
}

#[tokio::test]
async fn a_newer_format_is_rejected_and_unchanged() {
    let fixture = OnDisk::new();
    fixture.journal().close().await;
    let database = rusqlite::Connection::open(fixture.database()).unwrap();
    database.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(database);
    let before = fs::read(fixture.database()).unwrap();
    let error = SqliteJournal::open(&fixture.dir(), options()).unwrap_err();
    let path = fixture.database().canonicalize().unwrap();
    assert_eq!(error, JournalError::NewerFormat { path, found: 99, known: 4 });
    assert!(error.to_string().ends_with("use a newer version"), "{error}");
    assert_eq!(fs::read(fixture.database()).unwrap(), before);
}

#[test]
fn owner_names_are_displayable() {
    for text in ["", "a\nb", &"a".repeat(129)] {
        assert!(LeaseOwner::new(text).is_err(), "{text:?}");
    }
    assert_eq!(LeaseOwner::new("host-1 (pid 7)").unwrap().as_str(), "host-1 (pid 7)");
}
