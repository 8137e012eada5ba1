//! Lists of sessions: who has them, and how little is read for that.

use conjure::artifact::Digest;
use conjure::config::ExecutorKind;
use conjure::journal::{LeaseOwner, SessionKey};
use conjure::session::{SessionBody, SessionContents, SessionStatus};
use conjure::{Runtime, SessionId};
use conjure_journal::{Journal as _, Snapshot, SqliteJournal, SqliteOptions};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant, until};

async fn listed(runtime: &Runtime, id: SessionId) -> (Option<LeaseOwner>, SessionContents) {
    let list = runtime.sessions(&tenant("acme"), None, 10).await.unwrap();
    let found = list.sessions.into_iter().find(|summary| summary.id == id).unwrap();
    match found.body {
        SessionBody::Ok(contents) => (found.lease_owner, *contents),
        other => panic!("{other:?}"),
    }
}

/// A host that is dead runs no turn, however long its lease would last.
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
    // As it is left by a host that is killed: nobody holds its mark.
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

#[tokio::test]
async fn what_was_read_once_is_not_read_again() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().metadata("user", "7")).await.unwrap();
    let key = SessionKey::new(tenant("acme"), session.id());
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let kept = async || journal.session(&key).await.unwrap().snapshot;
    // It is not worth it.
    ask(&session, "hello").await;
    listed(&runtime, session.id()).await;
    assert_eq!(kept().await, None);
    for number in 0..40 {
        ask(&session, &format!("this is {number}")).await;
    }
    let (_, first) = listed(&runtime, session.id()).await;
    assert_eq!((first.turns, first.last_text.as_str()), (41, "heard: this is 39"));
    let events = journal.session(&key).await.unwrap().events;
    assert_eq!(kept().await, Some(events));
    assert_eq!(listed(&runtime, session.id()).await.1, first);
    let alone = runtime.summary(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(alone.body, SessionBody::Ok(Box::new(first.clone())));
    ask(&session, "one more").await;
    let (_, next) = listed(&runtime, session.id()).await;
    assert_eq!((next.turns, next.last_text.as_str()), (42, "heard: one more"));
    assert_eq!((next.metadata["user"].as_str(), next.model.as_deref()), ("7", Some("echo")));
    assert_eq!(next.usage.total(), first.usage.total() + 2);

    // What is told is what was kept; what cannot be read of that is read anew.
    session.close().await.unwrap();
    until(async || journal.session(&key).await.unwrap().lease.is_none()).await;
    let info = journal.session(&key).await.unwrap();
    let snapshot = |body: &str| Snapshot { seq: info.events, version: 1, body: body.as_bytes().to_vec() };
    let told = r#"{"turns":42,"last_stop":null,"last_text":"from the snapshot","usage":{},"model":null,"metadata":{}}"#;
    for (body, says) in [(told, "from the snapshot"), ("no gist", "heard: one more")] {
        journal.save_snapshot(&key, info.epoch, snapshot(body)).await.unwrap();
        assert_eq!(listed(&runtime, session.id()).await.1.last_text, says);
    }
    // What it is for is another matter: a session that goes on has all of its record.
    assert_eq!(ask(&session, "and now?").await, "heard: and now?");
    runtime.shutdown(soon()).await.unwrap();
    journal.close().await;
}
