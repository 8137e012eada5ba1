//! Files that are removed, moved or replaced while the journal is open: no acknowledged event is lost.

use std::fs;
use std::path::{Path, PathBuf};

use conjure_journal::{
    Epoch, FoundInstead, Journal as _, JournalError, JournalErrorKind, NewEvent, SqliteJournal, read_all,
};

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::support::{OnDisk, key, note, options};

fn log(fixture: &OnDisk) -> PathBuf {
    fixture.dir().join("journal.sqlite-wal")
}

/// A journal with one event.
async fn recorded(fixture: &OnDisk) -> SqliteJournal {
    let journal = fixture.journal();
    journal.create(&key("acme", 1)).await.unwrap();
    journal.append(&key("acme", 1), 0, Epoch::NONE, note("0")).await.unwrap();
    journal
}

async fn texts(journal: &SqliteJournal) -> Vec<String> {
    let events = read_all(journal, &key("acme", 1), 0).await.unwrap();
    events.iter().map(|event| String::from_utf8(event.body.clone()).unwrap()).collect()
}

/// Appends, and says what came of it.
async fn append(journal: &SqliteJournal, seq: u64) -> Result<u64, JournalError> {
    journal.append(&key("acme", 1), seq, Epoch::NONE, note(&seq.to_string())).await
}

fn database_moved(path: &Path, found: FoundInstead) -> JournalError {
    JournalError::DatabaseMoved { path: path.canonicalize().unwrap_or_else(|_| path.to_owned()), found }
}

#[tokio::test]
async fn a_moved_database_is_reported_and_works_when_it_is_back() {
    let fixture = OnDisk::new();
    let journal = recorded(&fixture).await;
    let away = fixture.dir().join("away");
    fs::rename(fixture.database(), &away).unwrap();
    let moved = database_moved(&fixture.database(), FoundInstead::Nothing);
    assert_eq!(append(&journal, 1).await, Err(moved.clone()));
    assert_eq!(read_all(&journal, &key("acme", 1), 0).await, Err(moved.clone()));
    assert!(!moved.is_critical() && !moved.is_retryable());
    let message = format!(
        "there is nothing at `{}`, where the journal was opened; put the file back, or restart with a new journal",
        fixture.database().display()
    );
    assert_eq!(moved.to_string(), message);
    // It is not recreated, not even by a reopened journal.
    assert_eq!(journal.reopen().unwrap_err(), moved);
    assert!(!fixture.database().exists());
    // A copy is another file, however like it is.
    fs::copy(&away, fixture.database()).unwrap();
    assert_eq!(append(&journal, 1).await, Err(database_moved(&fixture.database(), FoundInstead::Another)));
    fs::rename(&away, fixture.database()).unwrap();
    assert_eq!(append(&journal, 1).await, Ok(2));
    let reopened = journal.reopen().unwrap();
    assert_eq!(append(&reopened, 2).await, Ok(3));
    assert_eq!(texts(&journal).await, ["0", "1", "2"]);
}

#[tokio::test]
async fn a_moved_directory_is_reported_and_works_when_it_is_back() {
    let fixture = OnDisk::new();
    let journal = recorded(&fixture).await;
    let large = vec![NewEvent::new("file", 1, vec![7; 100_000])];
    journal.append(&key("acme", 1), 1, Epoch::NONE, large).await.unwrap();
    let away = fixture.dir().with_file_name("away");
    for seq in 2..5 {
        fs::rename(fixture.dir(), &away).unwrap();
        let moved = database_moved(&fixture.database(), FoundInstead::Nothing);
        assert_eq!(append(&journal, seq).await, Err(moved.clone()));
        // Its large bodies are not taken for missing ones.
        assert_eq!(read_all(&journal, &key("acme", 1), 0).await, Err(moved));
        assert!(!fixture.dir().exists(), "nothing is recreated while the files may come back");
        fs::rename(&away, fixture.dir()).unwrap();
        assert_eq!(append(&journal, seq).await, Ok(seq + 1));
    }
    drop(journal);
    let reopened = fixture.journal();
    assert_eq!(read_all(&reopened, &key("acme", 1), 0).await.unwrap().len(), 5);
}

/// The database alone is what a restart of the machine would find: everything is in it.
#[tokio::test]
async fn a_removed_wal_loses_nothing() {
    let fixture = OnDisk::new();
    let journal = recorded(&fixture).await;
    for seq in 1..10 {
        if seq % 3 != 0 {
            fs::remove_file(log(&fixture)).unwrap();
        }
        assert_eq!(append(&journal, seq).await, Ok(seq + 1));
        // Through connections that had the old one open, too.
        assert_eq!(texts(&journal).await.len() as u64, seq + 1);
    }
    let copy = OnDisk::new();
    fs::create_dir(copy.dir()).unwrap();
    fs::copy(fixture.database(), copy.database()).unwrap();
    fs::copy(log(&fixture), log(&copy)).unwrap();
    assert_eq!(texts(&copy.journal()).await.len(), 10);
    drop(journal);
    assert_eq!(texts(&fixture.journal()).await.len(), 10);
}

/// The restored WAL is older than the database, and must not be merged into it.
#[tokio::test]
async fn a_wal_restored_late_is_harmless() {
    let fixture = OnDisk::new();
    let journal = recorded(&fixture).await;
    let (away, copy) = (fixture.dir().join("away"), fixture.dir().join("copy"));
    fs::copy(log(&fixture), &copy).unwrap();
    fs::rename(log(&fixture), &away).unwrap();
    assert_eq!(append(&journal, 1).await, Ok(2));
    for (late, seq) in [(&away, 2), (&copy, 3)] {
        fs::rename(late, log(&fixture)).unwrap();
        assert_eq!(append(&journal, seq).await, Ok(seq + 1));
        assert_eq!(texts(&journal).await.len() as u64, seq + 1);
    }
    drop(journal);
    assert_eq!(texts(&fixture.journal()).await, ["0", "1", "2", "3"]);
}

/// Two processes have it open, and continue with the same new log.
#[tokio::test]
async fn a_removed_wal_is_repaired_by_every_process() {
    let fixture = OnDisk::new();
    let (one, two) = (recorded(&fixture).await, fixture.journal());
    assert_eq!(append(&two, 1).await, Ok(2));
    fs::remove_file(log(&fixture)).unwrap();
    for (seq, journal) in (2..).zip([&one, &two, &one, &two]) {
        // Both may be at it at the same time.
        while let Err(error) = append(journal, seq).await {
            assert!(error.is_retryable(), "{error:?}");
        }
    }
    assert_eq!((texts(&one).await, texts(&two).await.len()), (texts(&fixture.journal()).await, 6));
}

/// The number of acknowledged and failed appends.
#[derive(Debug, Clone, Copy, Default)]
struct AppendCounts {
    acknowledged: u64,
    refused: u64,
}

/// Moves the directory away and back this many times, and removes the log now and then.
fn move_repeatedly(dir: &Path, away: &Path, times: u64) {
    for time in 0..times {
        fs::rename(dir, away).unwrap();
        fs::rename(away, dir).unwrap();
        if time.is_multiple_of(16) {
            let _ = fs::remove_file(dir.join("journal.sqlite-wal"));
        }
    }
}

/// Moves them about for a shorter or longer while, again and again. Between, it leaves the directory in its place until something is
/// acknowledged, or away until something is refused: how fast the machine is decides how many appends meet a move, and not
/// whether they get anywhere. Ends once nobody appends any more, while the writer has not seen the last moves.
fn remove_and_restore(dir: &Path, away: &Path, mut counts: watch::Receiver<AppendCounts>) {
    let runtime = Handle::current();
    for burst in 0_u64.. {
        move_repeatedly(dir, away, 1 << (burst % 9));
        let before = *counts.borrow_and_update();
        let resumes = if burst.is_multiple_of(8) {
            fs::rename(dir, away).unwrap();
            let refused = runtime.block_on(counts.wait_for(|now| now.refused > before.refused)).is_ok();
            fs::rename(away, dir).unwrap();
            refused
        } else {
            runtime.block_on(counts.wait_for(|now| now.acknowledged > before.acknowledged)).is_ok()
        };
        if !resumes {
            return move_repeatedly(dir, away, 1 + burst % 16);
        }
    }
}

/// Appends in the meantime, from this number on, until there were some of each. Gives the number of events that there must be.
async fn append_disturbed(mut journal: SqliteJournal, mut seq: u64, fixture: &OnDisk) -> u64 {
    let (hear, counts) = watch::channel(AppendCounts::default());
    let (dir, away) = (fixture.dir(), fixture.dir().with_file_name("away"));
    let disturbing = tokio::task::spawn_blocking(move || remove_and_restore(&dir, &away, counts));
    while hear.borrow().acknowledged < 50 || hear.borrow().refused < 5 {
        match append(&journal, seq).await {
            Ok(next) => {
                seq = next;
                hear.send_modify(|counts| counts.acknowledged += 1);
            }
            Err(error) => {
                // A failing call may find the file restored when it checks. A writer that finds no log, and has none open,
                // ends.
                let is_known = matches!(
                    error.kind(),
                    JournalErrorKind::DatabaseMoved
                        | JournalErrorKind::Conflict
                        | JournalErrorKind::ReadOnly
                        | JournalErrorKind::Io
                        | JournalErrorKind::Lost
                );
                assert!(is_known, "{error:?}");
                hear.send_modify(|counts| counts.refused += 1);
                if error.is_critical() {
                    journal.close().await;
                    journal = loop {
                        match journal.reopen() {
                            Ok(again) => break again,
                            Err(_) => hear.send_modify(|counts| counts.refused += 1),
                        }
                    };
                }
                // It may have been recorded without an answer.
                if let JournalError::Conflict { found, .. } = error {
                    assert_eq!(found, seq + 1);
                    seq = found;
                }
            }
        }
    }
    drop(hear);
    disturbing.await.unwrap();
    journal.close().await;
    seq
}

/// The writer acknowledges nothing that is only in an unlinked file: after a restart all acknowledged events are present.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_events_survive_file_removals() {
    let fixture = OnDisk::new();
    let mut journal = recorded(&fixture).await;
    let mut seq = 1;
    for _ in 0..12 {
        seq = append_disturbed(journal, seq, &fixture).await;
        journal = SqliteJournal::open(&fixture.dir(), options()).unwrap();
        // The last one may have been recorded without an answer.
        let found = texts(&journal).await;
        assert!(found.len() as u64 == seq || found.len() as u64 == seq + 1, "{} of {seq}", found.len());
        seq = found.len() as u64;
        assert_eq!(found, (0..seq).map(|seq| seq.to_string()).collect::<Vec<_>>());
    }
}

/// The only error is the loss of the files, and acknowledged events are present after reopening.
#[tokio::test]
async fn a_journal_is_reopened_after_its_writer_was_killed() {
    let fixture = OnDisk::new();
    let mut journal = recorded(&fixture).await;
    let mut seq = 1;
    for _ in 0..20 {
        assert_eq!(append(&journal, seq).await, Ok(seq + 1));
        journal.kill_writer_for_test();
        let lost = append(&journal, seq + 1).await.unwrap_err();
        assert!(lost.is_critical(), "{lost:?}");
        journal = journal.reopen().unwrap();
        seq += 1;
        assert_eq!(texts(&journal).await.len() as u64, seq);
    }
}
