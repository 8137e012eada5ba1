//! A journal that has no room any more under sessions that work: what stops says so, what was acknowledged stays.

use std::sync::Arc;

use conjure_actors::journal::OpenJournal;
use conjure_actors::session::{SessionError, SessionStatus, Update};
use conjure_conversation::EventKind;
use conjure_journal::{Journal, SqliteJournal, SqliteOptions};
use futures_util::future::join_all;

use crate::scenario::{Host, Scenario, answered, key, options};
use crate::support::patient;

/// The journal in a directory, which takes no more than this.
fn size_limited_journal(dir: &std::path::Path, max_bytes: Option<u64>) -> Arc<OpenJournal> {
    let dir = dir.to_owned();
    Arc::new(move || {
        let dir = dir.clone();
        Box::pin(async move {
            let options = SqliteOptions { max_bytes, ..patient() };
            let open = tokio::task::spawn_blocking(move || SqliteJournal::open(&dir, options));
            open.await.unwrap().map(|journal| Arc::new(journal) as Arc<dyn Journal>)
        })
    })
}

#[tokio::test]
async fn a_full_disk_under_load_stops_appends_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = Scenario::default();
    let host =
        Host::over(size_limited_journal(dir.path(), Some(1 << 20)), scenario.clone(), options("first")).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(host.open().await);
    }
    // Each continues until it is refused; what it was promised is counted.
    let load = sessions.iter().map(|session| async {
        let mut acknowledged = Vec::new();
        for number in 0..10_000 {
            let text = format!("{number} {}", "x".repeat(5_000));
            match session.send(text.as_str()).await {
                Ok(turn) => acknowledged.push((turn.accepted().seq(), text)),
                Err(SessionError::Journal { reason }) => {
                    assert!(reason.contains("there is no space"), "{reason}");
                    return acknowledged;
                }
                // The turn before did not end, as its answer had no room, or is about to be tried again.
                Err(SessionError::Overloaded { .. }) => return acknowledged,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("there was room for everything");
    });
    let acknowledged = join_all(load).await;
    assert!(acknowledged.iter().any(|sent| !sent.is_empty()));
    // Operations without appends continue: snapshots, subscriptions, and everything in memory.
    for session in &sessions {
        session.snapshot().await.unwrap();
        let mut listener = session.subscribe(0).await.unwrap();
        assert!(matches!(listener.next().await, Ok(Update::Recorded(_) | Update::Lagged)));
    }
    // The actors are those of the beginning: a full disk is a value.
    for session in &sessions {
        let tree = host.root.tree();
        let actor = tree.find(&["sessions", &session.id().to_string()]).unwrap();
        assert_eq!(actor.actor.restarts, 0);
    }
    let keys: Vec<_> = sessions.iter().map(key).collect();
    drop(sessions);
    // Not all turns can be ended in the record now.
    let _ = host.root.shutdown(crate::support::soon()).await;

    // With room again, everything that was acknowledged is there, once, and continues.
    let host = Host::over(size_limited_journal(dir.path(), None), scenario.clone(), options("first")).await;
    for (key, acknowledged) in keys.iter().zip(acknowledged) {
        let session = host.session(key);
        let events = host.events(&session).await;
        for (seq, text) in acknowledged {
            let input = match &events[usize::try_from(seq).unwrap()] {
                EventKind::TurnStarted { input, .. } | EventKind::Queued { input, .. } => input,
                other => panic!("{other:?}"),
            };
            assert!(input[0].json().contains(&text));
        }
        session.attach().await.unwrap();
        let last = session.send("at last").await.unwrap();
        assert_eq!(last.end().await, Ok(answered()));
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.queue, []);
        assert!(matches!(snapshot.status, SessionStatus::Idle | SessionStatus::Running(_)));
    }
    host.shutdown().await;
}
