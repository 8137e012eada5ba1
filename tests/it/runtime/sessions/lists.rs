//! Lists of sessions: their processes, and the content of their rows.

use conjure::artifact::Digest;
use conjure::config::ExecutorKind;
use conjure::conversation::{Event, EventKind};
use conjure::journal::{LeaseOwner, SessionKey};
use conjure::session::{SessionBody, SessionContents, SessionStatus};
use conjure::{Runtime, SessionId};
use conjure_journal::{Journal as _, NewEvent, SqliteJournal, SqliteOptions};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant, until};

async fn listed(runtime: &Runtime, id: SessionId) -> (Option<LeaseOwner>, SessionContents) {
    let list = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    let found = list.sessions.into_iter().find(|summary| summary.id == id).unwrap();
    match found.body {
        SessionBody::Ok(contents) => (found.lease_owner, *contents),
        other => panic!("{other:?}"),
    }
}

/// A dead host runs no turn, however long its lease is valid.
#[tokio::test]
async fn a_session_of_a_dead_process_is_not_listed_as_running() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let waiting = conjure::model_fn(|_| std::future::pending());
    let options =
        fixture.options().model("waiting", waiting).sessions(|sessions| sessions.owner = owner("killed"));
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().model("waiting")).await.unwrap();
    let _turn = session.send("hello").await.unwrap();
    let other = fixture.start().await;
    let (held_by, contents) = listed(&other, session.id()).await;
    assert_eq!(held_by, Some(owner("killed")));
    assert!(matches!(contents.status, SessionStatus::Running(_)), "{:?}", contents.status);
    // As a killed host leaves it: its process lock is free.
    let mark = fixture.data().join("processes").join(Digest::of_bytes(b"killed").to_hex());
    std::fs::write(mark, "").unwrap();
    let (held_by, contents) = listed(&other, session.id()).await;
    assert_eq!(held_by, None);
    assert!(matches!(contents.status, SessionStatus::Interrupted(_)), "{:?}", contents.status);
    runtime.shutdown(soon()).await.unwrap();
    other.shutdown(soon()).await.unwrap();
}

fn owner(name: &str) -> LeaseOwner {
    LeaseOwner::new(name).unwrap()
}

/// A list shows the rows that each append has written: it reads no events.
#[tokio::test]
async fn a_list_shows_the_stored_rows() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().metadata("user", "7").title("A greeting")).await.unwrap();
    let key = SessionKey::new(tenant("acme"), session.id());
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let (_, first) = listed(&runtime, session.id()).await;
    assert_eq!((first.status, first.turns, first.last_text.as_str()), (SessionStatus::Idle, 0, ""));
    ask(&session, "hello").await;
    let long = "x".repeat(2_000);
    ask(&session, &long).await;
    let (_, contents) = listed(&runtime, session.id()).await;
    assert_eq!((contents.turns, contents.queued), (2, 0));
    assert!(contents.last_text.starts_with("heard: xxx") && contents.last_text.len() < 600);
    assert_eq!((contents.metadata["user"].as_str(), contents.model.as_deref()), ("7", Some("echo")));
    assert_eq!((contents.title.as_deref(), contents.usage.total()), (Some("A greeting"), 4));
    let alone = runtime.summary(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(alone.body, SessionBody::Ok(Box::new(contents.clone())));

    // What an earlier version has recorded has no row. It is read, and its row is stored.
    session.close().await.unwrap();
    until(async || journal.session(&key).await.unwrap().lease.is_none()).await;
    let without_row = async || {
        let info = journal.session(&key).await.unwrap();
        // It changes nothing.
        let kind = EventKind::Unqueued { id: serde_json::from_value(99.into()).unwrap() };
        let event = serde_json::to_vec(&Event { at: info.updated, kind }).unwrap();
        let event = NewEvent::new("conversation", 1, event);
        journal.append(&key, info.events, info.epoch, vec![event]).await.unwrap();
        assert_eq!(journal.session(&key).await.unwrap().row, None);
    };
    without_row().await;
    assert_eq!(listed(&runtime, session.id()).await.1, contents);
    assert!(journal.session(&key).await.unwrap().row.is_some());
    // Or it is used, and the append stores it.
    without_row().await;
    assert_eq!(ask(&session, "and now?").await, "heard: and now?");
    assert!(journal.session(&key).await.unwrap().row.is_some());
    let (_, last) = listed(&runtime, session.id()).await;
    assert_eq!((last.turns, last.last_text.as_str()), (3, "heard: and now?"));
    runtime.shutdown(soon()).await.unwrap();
    journal.close().await;
}
