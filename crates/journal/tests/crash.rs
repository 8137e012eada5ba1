//! The journal in SQLite when its process is killed, the disk is full, nothing can be written, or another process holds
//! it.
//!
//! Run without arguments it is the test; each part starts this program again with arguments, as the child that is killed,
//! that holds the database, or that sees a file system of its own (`unshare`, which ends with it).

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "this is a test without a harness")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use conjure_base::{SessionId, TenantId};
use conjure_journal::{
    AppendBatch, Direction, Epoch, IndexName, Journal as _, JournalErrorKind, LeaseOwner, NewEvent,
    NewRecord, ROW_BYTES, RecordContent, RecordKey, RecordKind, RecordOrder, RecordQuery, RecordWrite,
    RowStatus, SessionKey, SessionRow, Snapshot, SqliteJournal, SqliteOptions, read_all,
};
use test_support::{KillOnDrop, in_mount_namespace, this_program};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match arguments[..] {
        ["child-write", directory] => runtime.block_on(write_for_ever(Path::new(directory))),
        ["child-records", directory] => runtime.block_on(write_records_for_ever(Path::new(directory))),
        ["child-hold", directory] => hold_lock(Path::new(directory)),
        ["child-full", directory] => runtime.block_on(full_disk(Path::new(directory))),
        ["child-read-only", directory] => read_only(Path::new(directory)),
        _ => {
            for (name, test) in TESTS {
                test(&runtime);
                println!("test {name} ... ok");
            }
        }
    }
}

type Test = fn(&tokio::runtime::Runtime);

const TESTS: [(&str, Test); 5] = [
    ("acknowledged_events_outlive_a_killed_process", acknowledged_events_outlive_a_killed_process),
    ("records_outlive_a_killed_process_and_are_never_half_written", records_outlive_a_killed_process),
    ("a_journal_that_another_process_locks_is_an_error", a_journal_that_another_process_locks_is_an_error),
    ("a_full_disk_is_an_error_and_keeps_the_data", a_full_disk_is_an_error_and_keeps_the_data),
    ("a_read_only_journal_is_an_error", a_read_only_journal_is_an_error),
];

fn child(arguments: &[&str]) -> (KillOnDrop, BufReader<ChildStdout>) {
    let mut command = this_program();
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (KillOnDrop(child), stdout)
}

fn options() -> SqliteOptions {
    // Small enough that many bodies are large.
    SqliteOptions { blob_threshold: 1_000, busy_timeout: Duration::from_secs(60), ..SqliteOptions::default() }
}

fn key(number: u64) -> SessionKey {
    let tenant = TenantId::new(if number.is_multiple_of(2) { "even" } else { "odd" }).unwrap();
    SessionKey::new(tenant, SessionId::from_bits(number.into()))
}

/// How many sessions are written at a time.
const SESSIONS: u64 = 6;

/// How many events the append has that begins at `seq`.
const fn events_at(seq: u64) -> u64 {
    seq * 7 % 4 + 1
}

/// The event at this place: what was appended is known from where it is. Some bodies are large.
fn body(session: u64, seq: u64) -> Vec<u8> {
    let length = if seq % 5 == 3 { 3_000 } else { seq * 31 % 900 };
    let mut body = format!("{session} {seq} ").into_bytes();
    body.resize(body.len() + usize::try_from(length).unwrap(), b'x');
    body
}

/// The row of a session with this many events.
fn row(total: u64) -> SessionRow {
    let status = if total.is_multiple_of(2) { RowStatus::Idle } else { RowStatus::Running };
    SessionRow { status, version: 1, body: total.to_le_bytes().into() }
}

/// The child appends to all sessions concurrently, with leases and snapshots, and prints what was acknowledged.
async fn write_for_ever(directory: &Path) {
    let journal = SqliteJournal::open(directory, options()).unwrap();
    let sessions = (0..SESSIONS).map(|session| write_session(&journal, session));
    futures_util::future::join_all(sessions).await;
}

async fn write_session(journal: &SqliteJournal, session: u64) {
    let key = key(session);
    // Killed ones may have created it, and hold the lease.
    let created = journal.create(&key).await.map_err(|error| error.kind());
    assert!(matches!(created, Ok(()) | Err(JournalErrorKind::Exists)), "{created:?}");
    let owner = LeaseOwner::new("writer").unwrap();
    let lease = journal.acquire_lease(&key, &owner, Duration::from_secs(3_600)).await.unwrap();
    let mut seq = journal.session(&key).await.unwrap().events;
    loop {
        let places = seq..seq + events_at(seq);
        let events = places.map(|seq| NewEvent::new("note", 1, body(session, seq))).collect();
        let batch = AppendBatch::new(events).with_row(row(seq + events_at(seq)));
        seq = journal.append_batch(&key, seq, lease.epoch, batch).await.unwrap();
        println!("{session} {seq}");
        if seq % 3 == 0 {
            let snapshot = Snapshot { seq, version: 1, body: body(session, seq) };
            journal.save_snapshot(&key, lease.epoch, snapshot).await.unwrap();
        }
    }
}

fn acknowledged_events_outlive_a_killed_process(runtime: &tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("journal");
    let mut reported = BTreeMap::new();
    let mut was_ahead = 0;
    // Until one was killed between an append and its acknowledgement, which is when most can go wrong.
    for round in 0.. {
        if round >= 12 && was_ahead > 0 {
            break;
        }
        assert!(round < 200, "no child was killed between an append and its acknowledgement");
        let (mut child, mut stdout) = child(&["child-write", directory.to_str().unwrap()]);
        // Each is killed after another number of appends, wherever it is then; the first ones while they begin.
        let mut line = String::new();
        for _ in 0..round % 12 * 9 {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the child failed");
            record_line(&mut reported, &line);
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        // The output of the killed process. The last line may be incomplete.
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        rest.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .for_each(|line| record_line(&mut reported, line));
        was_ahead += runtime.block_on(check(&directory, &reported));
    }
    let total: u64 = reported.values().sum();
    assert!(total > 300, "{total} events");
    assert!(
        was_ahead > 0,
        "no child was killed between an append and its acknowledgement: the test shows less"
    );
}

fn record_line(reported: &mut BTreeMap<u64, u64>, line: &str) {
    let (session, total) = line.trim().split_once(' ').unwrap();
    reported.insert(session.parse().unwrap(), total.parse().unwrap());
}

/// Each session holds what was acknowledged, and at most one append more, whole. In how many there is one more.
async fn check(directory: &Path, reported: &BTreeMap<u64, u64>) -> u64 {
    let journal = SqliteJournal::open(directory, options()).unwrap();
    let mut ahead = 0;
    for (session, total) in reported {
        let events = read_all(&journal, &key(*session), 0).await.unwrap();
        for (event, seq) in events.iter().zip(0..) {
            assert_eq!((event.seq, &event.body), (seq, &body(*session, seq)), "session {session}");
        }
        let found = events.len() as u64;
        let expected = (found > 0).then(|| row(found));
        assert_eq!(journal.session(&key(*session)).await.unwrap().row, expected, "session {session}");
        let one_more = total + events_at(*total);
        assert!(found == *total || found == one_more, "session {session}: {found}, acknowledged {total}");
        ahead += u64::from(found == one_more);
        if let Some(snapshot) = journal.snapshot(&key(*session)).await.unwrap() {
            assert_eq!(snapshot.body, body(*session, snapshot.seq));
        }
    }
    check_bytes(&journal).await;
    journal.sweep().await.unwrap();
    journal.close().await;
    ahead
}

/// The counters of each tenant match its data after each kill.
async fn check_bytes(journal: &SqliteJournal) {
    let mut found: BTreeMap<TenantId, u64> = BTreeMap::new();
    let inline_size =
        |body: &[u8]| if body.len() <= options().blob_threshold { body.len() as u64 } else { 0 };
    for key in (0..SESSIONS).map(key) {
        let Ok(events) = read_all(journal, &key, 0).await else { continue };
        let rows = events.iter().map(|event| ROW_BYTES + event.kind.len() as u64 + inline_size(&event.body));
        let snapshot = journal.snapshot(&key).await.unwrap();
        let snapshot = snapshot.map_or(0, |snapshot| ROW_BYTES + inline_size(&snapshot.body));
        *found.entry(key.tenant).or_default() += ROW_BYTES + rows.sum::<u64>() + snapshot;
    }
    for (tenant, bytes) in found {
        assert_eq!(journal.stored_bytes(&tenant).await, Ok(bytes), "{tenant}");
    }
}

/// The two records that the child writes together.
fn pair() -> [RecordKey; 2] {
    let tenant = TenantId::new("acme").unwrap();
    ["one", "other"].map(|id| RecordKey::new(&tenant, KIND, id).unwrap())
}

const KIND: RecordKind = RecordKind::from_static("pair");
const INDEX: IndexName = IndexName::from_static("count");

/// The content of the pair in this version.
fn pair_content(version: u64) -> RecordContent {
    let count = i64::try_from(version).unwrap();
    RecordContent::new(body(7, version)).with_index(INDEX, count)
}

/// The child replaces both records together, and prints the acknowledged version.
async fn write_records_for_ever(directory: &Path) {
    let records = SqliteJournal::open(directory, options()).unwrap().records();
    let mut version = records.get(&pair()[0]).await.unwrap().map_or(0, |record| record.version);
    loop {
        let write = |key: RecordKey| match version {
            0 => RecordWrite::Insert(NewRecord::new(key, pair_content(1))),
            expected_version => {
                RecordWrite::Replace { key, expected_version, content: pair_content(version + 1) }
            }
        };
        records.transact(pair().map(write).into()).await.unwrap();
        version += 1;
        println!("{version}");
    }
}

fn records_outlive_a_killed_process(runtime: &tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("journal");
    let mut reported = 0;
    for round in 0..8 {
        let (mut child, mut stdout) = child(&["child-records", directory.to_str().unwrap()]);
        let mut line = String::new();
        for _ in 0..round * 5 {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the child failed");
            reported = line.trim().parse().unwrap();
        }
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        // The last line may be cut.
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let last = rest.split_inclusive('\n').rfind(|line| line.ends_with('\n'));
        reported = last.map_or(reported, |line| line.trim().parse().unwrap());
        runtime.block_on(check_records(&directory, reported));
    }
    assert!(reported > 100, "{reported} versions");
}

/// Both have the version that was acknowledged, or both the next one, and are found by it.
async fn check_records(directory: &Path, reported: u64) {
    let journal = SqliteJournal::open(directory, options()).unwrap();
    let records = journal.records();
    let [one, other] = pair();
    let found = [records.get(&one).await.unwrap(), records.get(&other).await.unwrap()];
    let version = found[0].as_ref().map_or(0, |record| record.version);
    assert!(version == reported || version == reported + 1, "{version}, acknowledged {reported}");
    for record in found.into_iter().flatten() {
        assert_eq!((record.version, &record.content), (version, &pair_content(version)));
    }
    let tenant = TenantId::new("acme").unwrap();
    let all = RecordQuery::new(tenant, KIND);
    let by_index = all.clone().with_filter(INDEX, i64::try_from(version).unwrap());
    let expected = if version == 0 { 0 } else { 2 };
    for query in [all.clone(), by_index, all.with_order(RecordOrder::index(INDEX), Direction::Ascending)] {
        assert_eq!(records.query(query).await.unwrap().records.len(), expected);
    }
    journal.close().await;
}

/// The child: holds the database for writing until it is killed.
fn hold_lock(directory: &Path) {
    let database = rusqlite::Connection::open(directory.join("journal.sqlite")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    println!("held");
    let _ = std::io::stdin().read(&mut [0]);
}

fn a_journal_that_another_process_locks_is_an_error(runtime: &tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("journal");
    let patient = SqliteJournal::open(&directory, options()).unwrap();
    runtime.block_on(patient.create(&key(1))).unwrap();
    let (mut child, mut stdout) = child(&["child-hold", directory.to_str().unwrap()]);
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let options = SqliteOptions { busy_timeout: Duration::from_millis(1), ..options() };
    let journal = SqliteJournal::open(&directory, options).unwrap();
    let append = || vec![NewEvent::new("note", 1, body(1, 0))];
    let error = runtime.block_on(journal.append(&key(1), 0, Epoch::NONE, append())).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (JournalErrorKind::Locked, true));
    assert_eq!(runtime.block_on(journal.session(&key(1))).unwrap().events, 0);
    // A call with a longer deadline succeeds when the holder dies.
    let waiting = patient.append(&key(1), 0, Epoch::NONE, append());
    child.0.stdin.take().unwrap().flush().unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert_eq!(runtime.block_on(waiting), Ok(1));
}

fn a_full_disk_is_an_error_and_keeps_the_data(_: &tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().unwrap();
    in_mount_namespace("mount -t tmpfs -o size=3m,mode=700 tmpfs \"$1\"", "child-full", dir.path());
}

async fn full_disk(path: &Path) {
    let directory = path.join("journal");
    let options = SqliteOptions { blob_threshold: 100_000, ..options() };
    let journal = SqliteJournal::open(&directory, options.clone()).unwrap();
    journal.create(&key(1)).await.unwrap();
    // By rows, by large bodies, and by both until nothing fits any more.
    let mut total = 0;
    for size in [400_000, 30_000, 110_000, 3_000, 10] {
        let error = loop {
            let event = NewEvent::new("note", 1, vec![b'x'; size]);
            match journal.append(&key(1), total, Epoch::NONE, vec![event]).await {
                Ok(now) => total = now,
                Err(error) => break error,
            }
            // The content of large bodies is the same, so only rows fill the disk in the end.
            assert!(total < 100_000, "the disk is never full");
            if size > 100_000 {
                break journal.append(&key(1), total, Epoch::NONE, oversized_append()).await.unwrap_err();
            }
        };
        assert_eq!(error.kind(), JournalErrorKind::DiskFull, "{error:?}");
        assert_eq!(read_all(&journal, &key(1), 0).await.unwrap().len() as u64, total);
    }
    journal.close().await;
    // Room is made, and it continues.
    std::fs::remove_dir_all(directory.join("blobs/odd/plain")).unwrap();
    let reopened = SqliteJournal::open(&directory, options).unwrap();
    assert_eq!(reopened.session(&key(1)).await.unwrap().events, total);
    let event = NewEvent::new("note", 1, vec![b'x'; 3_000]);
    assert_eq!(reopened.append(&key(1), total, Epoch::NONE, vec![event]).await, Ok(total + 1));
}

/// A large body of four megabytes.
fn oversized_append() -> Vec<NewEvent> {
    vec![NewEvent::new("file", 1, (0_u32..1 << 20).flat_map(u32::to_le_bytes).collect())]
}

fn a_read_only_journal_is_an_error(runtime: &tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("journal");
    let journal = SqliteJournal::open(&directory, options()).unwrap();
    runtime.block_on(journal.create(&key(1))).unwrap();
    runtime.block_on(journal.close());
    let prepare = "mount --bind \"$1\" \"$1\"; mount -o remount,bind,ro \"$1\"";
    in_mount_namespace(prepare, "child-read-only", &directory);
    let journal = SqliteJournal::open(&directory, options()).unwrap();
    assert_eq!(runtime.block_on(journal.session(&key(1))).unwrap().events, 0);
}

fn read_only(directory: &Path) {
    for directory in [directory, &directory.join("new")] {
        let error = SqliteJournal::open(directory, options()).unwrap_err();
        assert_eq!(error.kind(), JournalErrorKind::ReadOnly, "{error:?}");
        assert!(error.to_string().contains("cannot be written"), "{error}");
    }
}
