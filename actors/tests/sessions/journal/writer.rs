//! SQLite's writing thread, killed again and again under sessions that talk: it is opened again, and nothing that was acknowledged
//! is lost.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use conjure_actors::journal::OpenJournal;
use conjure_actors::runtime::{NewSession, SessionRuntime, TreeOptions};
use conjure_actors::session::{Session, SessionError};
use conjure_base::TenantId;
use conjure_journal::{Journal, LeaseOwner, SessionKey, SqliteJournal, read_all};
use futures_util::future::join_all;

use crate::scenario::{Scenario, key};
use crate::support::{PATIENCE, SECOND, patient, soon};

const SESSIONS: usize = 4;
/// Each loss within a minute is mended later than the one before.
const KILLS: usize = 7;

/// The journal that is open now, and how many were.
type Opened = Arc<Mutex<(Option<SqliteJournal>, usize)>>;

fn sqlite(dir: &Path, opened: &Opened) -> Arc<OpenJournal> {
    let (dir, opened) = (dir.to_owned(), Arc::clone(opened));
    Arc::new(move || {
        let (dir, opened) = (dir.clone(), Arc::clone(&opened));
        Box::pin(async move {
            let lost = opened.lock().unwrap().0.clone();
            if let Some(lost) = lost {
                lost.close().await;
            }
            let opening = tokio::task::spawn_blocking(move || {
                let last = opened.lock().unwrap().0.clone();
                let journal = match last {
                    Some(lost) => lost.reopen()?,
                    None => SqliteJournal::open(&dir, patient())?,
                };
                let mut now = opened.lock().unwrap();
                (now.0, now.1) = (Some(journal.clone()), now.1 + 1);
                Ok(Arc::new(journal) as Arc<dyn Journal>)
            });
            opening.await.unwrap()
        })
    })
}

/// Talks until it is over; what was acknowledged.
async fn send_messages(session: &Session, is_over: &AtomicBool) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0_u32.. {
        if is_over.load(Ordering::Acquire) {
            break;
        }
        let text = format!("call note words-{number}-of-it");
        match session.send(text.clone()).await {
            Ok(turn) => {
                acknowledged.push(text);
                turn.end().await.unwrap();
            }
            Err(error) => assert!(
                matches!(error, SessionError::Journal { .. } | SessionError::NotStarted { .. }),
                "{error:?}"
            ),
        }
        tokio::task::yield_now().await;
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_killed_under_load_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (opened, scenario) = (Opened::default(), Scenario::default());
    let open = sqlite(dir.path(), &opened);
    let mut options = TreeOptions::new(open, Arc::new(scenario.clone()), LeaseOwner::new("first").unwrap());
    options.sessions.deadline = SECOND * 300;
    options.journal_timeout = PATIENCE;
    let runtime = SessionRuntime::spawn(options).await.unwrap();
    let mut sessions = Vec::new();
    for name in ["acme", "globex"] {
        for _ in 0..SESSIONS {
            let spec = NewSession::new(TenantId::new(name).unwrap());
            sessions.push(runtime.open(spec).await.unwrap());
        }
    }
    let is_over = AtomicBool::new(false);
    let conversations = join_all(sessions.iter().map(|session| send_messages(session, &is_over)));
    let killing = async {
        for kills in 1..=KILLS {
            let journal = opened.lock().unwrap().0.clone().unwrap();
            journal.kill_writer_for_test();
            // The next append detects the failure and reopens the journal.
            while opened.lock().unwrap().1 <= kills {
                // Either outcome is possible.
                let _ = runtime.open(NewSession::new(TenantId::new("other").unwrap())).await;
            }
        }
        is_over.store(true, Ordering::Release);
    };
    let (acknowledged, ()) = tokio::join!(conversations, killing);
    assert_eq!(runtime.tree().find(&["journal"]).unwrap().actor.restarts, KILLS as u64);
    let keys: Vec<SessionKey> = sessions.iter().map(key).collect();
    runtime.shutdown(soon()).await.unwrap();
    drop((runtime, sessions));
    let last = opened.lock().unwrap().0.take().unwrap();
    last.close().await;

    let journal = SqliteJournal::open(dir.path(), patient()).unwrap();
    for (key, acknowledged) in keys.iter().zip(&acknowledged) {
        assert!(!acknowledged.is_empty());
        let events = read_all(&journal, key, 0).await.unwrap();
        let reported: Vec<String> =
            events.iter().map(|event| String::from_utf8_lossy(&event.body).into_owned()).collect();
        for text in acknowledged {
            let count = reported
                .iter()
                .filter(|event| event.contains("turn_started") && event.contains(text.as_str()))
                .count();
            assert_eq!(count, 1, "{text}: {reported:#?}");
        }
    }
    // Every request was valid, and no tool ran twice.
    scenario.check();
}
