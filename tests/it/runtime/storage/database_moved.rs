//! A journal whose files are removed while sessions run: events that a restart would lose are not acknowledged, the
//! error names the file, and the same runtime continues when the file is back.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure::config::ExecutorKind;
use conjure::conversation::TurnStop;
use conjure::journal::JournalErrorKind;
use conjure::{Clock as _, Runtime, RuntimeError, Session, SessionError, SessionSpec, SystemClock};
use futures_util::future::join_all;
use tokio::sync::Barrier;

use crate::runtime::fixture::{Fixture, ask, follow, soon, spec, tenant};

/// How many sessions of each of two tenants talk.
const SESSIONS: usize = 4;

/// Talks from before it begins until it is over, and once more then; what was acknowledged.
async fn send_messages(session: &Session, begins: &Barrier, is_over: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0_u32.. {
        let is_last = is_over.load(Ordering::Acquire);
        let text = format!("words number {number}");
        match session.send(text.clone()).await {
            Ok(turn) => {
                acknowledged.push(text);
                turn.end().await.unwrap();
                if number == 0 {
                    begins.wait().await;
                }
                if is_last {
                    break;
                }
            }
            Err(error) => {
                assert!(matches!(error, SessionError::Journal { .. }), "{error:?}");
                tokio::task::yield_now().await;
            }
        }
    }
    acknowledged
}

/// Both ways in say which file it is, and what helps.
async fn is_refused(runtime: &Runtime, quiet: &Session, database: &Path, found: &str) {
    let message =
        format!("{found} at `{}`, where the journal was opened; put the file back", database.display());
    let error = runtime.open(spec()).await.unwrap_err();
    let RuntimeError::Journal(journal) = &error else { panic!("{error}") };
    assert_eq!(journal.kind(), JournalErrorKind::DatabaseMoved);
    assert!(error.to_string().contains(&message), "{error}");
    // A retry at that moment may still return the earlier error.
    let deadline = soon();
    loop {
        let error = quiet.send("anybody?").await.unwrap_err();
        assert!(matches!(error, SessionError::Journal { .. }), "{error:?}");
        if error.to_string().contains(&message) {
            break;
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "it does not say `{message}`: {error}");
    }
}

async fn assert_continues(runtime: &Runtime, quiet: &Session) {
    // As above.
    let deadline = soon();
    let mut turn = loop {
        match quiet.send("and now?").await {
            Ok(turn) => break turn,
            Err(error) => assert!(matches!(error, SessionError::Journal { .. }), "{error:?}"),
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "it does not go on");
    };
    assert!(matches!(follow(&mut turn).await.0, TurnStop::Answered(_)));
    let other = runtime.open(spec()).await.unwrap();
    assert_eq!(ask(&other, "hello").await, "heard: hello");
    runtime.delete(&tenant("acme"), other.id()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_whose_files_are_removed_under_load_loses_no_acknowledged_event() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let dir = fixture.data().join("journal").canonicalize().unwrap();
    let (database, away) = (dir.join("journal.sqlite"), dir.with_file_name("journal-away"));
    let quiet = runtime.open(spec()).await.unwrap();
    let mut sessions = Vec::new();
    for name in ["acme", "globex"] {
        for _ in 0..SESSIONS {
            sessions.push(runtime.open(SessionSpec::new(tenant(name))).await.unwrap());
        }
    }
    let (begins, is_over) = (Barrier::new(sessions.len() + 1), AtomicBool::new(false));
    let conversations = join_all(sessions.iter().map(|session| send_messages(session, &begins, &is_over)));
    let taking = async {
        begins.wait().await;
        for _ in 0..2 {
            // The whole directory.
            fs::rename(&dir, &away).unwrap();
            is_refused(&runtime, &quiet, &database, "there is nothing").await;
            assert!(!dir.exists(), "nothing is made where it may come back");
            fs::rename(&away, &dir).unwrap();
            assert_continues(&runtime, &quiet).await;
            // The file, and another in its place.
            fs::rename(&database, dir.join("kept")).unwrap();
            is_refused(&runtime, &quiet, &database, "there is nothing").await;
            fs::copy(dir.join("kept"), &database).unwrap();
            is_refused(&runtime, &quiet, &database, "there is another file").await;
            fs::rename(dir.join("kept"), &database).unwrap();
            assert_continues(&runtime, &quiet).await;
            // The log, whose content those who have it open put into the database.
            fs::remove_file(dir.join("journal.sqlite-wal")).unwrap();
            assert_continues(&runtime, &quiet).await;
        }
        is_over.store(true, Ordering::Release);
    };
    let (acknowledged, ()) = tokio::join!(conversations, taking);
    let sessions = sessions.into_iter().map(|session| (session.tenant().clone(), session.id()));
    let sessions: Vec<_> = sessions.collect();
    runtime.shutdown(soon()).await.unwrap();
    drop((runtime, quiet));

    let runtime = fixture.start().await;
    for ((tenant, id), acknowledged) in sessions.into_iter().zip(acknowledged) {
        let events = runtime.events(&tenant, id, 0).await.unwrap();
        let events: Vec<String> = events.iter().map(|event| serde_json::to_string(event).unwrap()).collect();
        assert!(acknowledged.len() >= 2, "{acknowledged:?}");
        for text in acknowledged {
            let count = events
                .iter()
                .filter(|event| event.contains("\"user.message\"") && event.contains(&format!("\"{text}\"")))
                .count();
            assert_eq!(count, 1, "{text}: {events:#?}");
        }
        let session = runtime.session(&tenant, id).await.unwrap();
        assert!(ask(&session, "and after?").await.ends_with("and after?"));
    }
    runtime.shutdown(soon()).await.unwrap();
}
