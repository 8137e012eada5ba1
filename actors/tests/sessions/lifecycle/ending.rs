//! Whoever listens hears the end: of the runtime, of a session that is deleted, of one whose supervisors are killed; and goes on
//! hearing where a session was only put away.

use std::sync::Arc;

use conjure_actors::runtime::{NewSession, SessionRuntime, TreeError, TreeOptions};
use conjure_actors::session::{
    Session, SessionError, SessionStatus, Subscription, TurnEvent, TurnHandle, Update,
};
use conjure_base::TenantId;
use conjure_journal::{JournalError, LeaseOwner};

use crate::support::{SECOND, memory, soon};
use crate::world::{Host, Stage, answered, key, options};

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

async fn runtime(stage: &Stage) -> SessionRuntime {
    let mut options = TreeOptions::new(memory(), Arc::new(stage.clone()), LeaseOwner::new("first").unwrap());
    options.sessions.deadline = SECOND * 300;
    options.sessions.idle_after = SECOND * 30;
    SessionRuntime::spawn(options).await.unwrap()
}

/// Why there are no more updates.
async fn heard_all(listening: &mut Subscription) -> SessionError {
    loop {
        if let Err(error) = listening.next().await {
            return error;
        }
    }
}

async fn followed(turn: &mut TurnHandle) -> Option<SessionError> {
    loop {
        match turn.next().await? {
            Err(error) => return Some(error),
            Ok(TurnEvent::Ended { .. }) => return None,
            Ok(_) => {}
        }
    }
}

async fn hears(listening: &mut Subscription, text: &str) {
    loop {
        if let Update::Recorded(event) = listening.next().await.unwrap()
            && event.to_line().contains(text)
        {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_runtime_is_heard() {
    let stage = Stage::default();
    let runtime = runtime(&stage).await;
    let idle = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut listening = idle.subscribe(0).await.unwrap();
    let busy = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut running = busy.send("door").await.unwrap();
    stage.reached(1).await;
    let mut queued = busy.send("later").await.unwrap();
    let (mut late, mut behind) = (busy.subscribe(0).await.unwrap(), busy.subscribe(0).await.unwrap());
    hears(&mut late, "later").await;
    let hearing =
        async { tokio::join!(heard_all(&mut listening), followed(&mut running), followed(&mut queued)) };
    let (heard, stopped) = tokio::join!(hearing, runtime.shutdown(soon()));
    stopped.unwrap();
    // The turn that ran has its end, after which nothing is missing.
    assert_eq!(heard, (SessionError::ShuttingDown, None, Some(SessionError::ShuttingDown)));
    hears(&mut late, "interrupted").await;
    assert_eq!(heard_all(&mut late).await, SessionError::ShuttingDown);
    // What would have to be read from the journal is not there any more.
    assert_eq!(heard_all(&mut behind).await, SessionError::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_dropped_ends_what_is_heard() {
    let stage = Stage::default();
    let runtime = runtime(&stage).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut listening = session.subscribe(0).await.unwrap();
    drop(runtime);
    assert_eq!(heard_all(&mut listening).await, SessionError::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_session_is_heard() {
    let runtime = runtime(&Stage::default()).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut listening = session.subscribe(0).await.unwrap();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    hears(&mut listening, "heard: hello").await;
    runtime.delete(&key(&session), soon()).await.unwrap();
    assert_eq!(heard_all(&mut listening).await, SessionError::NotFound { session: session.id() });
    runtime.shutdown(soon()).await.unwrap();
}

/// Who deletes what rested decides by what it has seen, and somebody may use the session just then.
#[tokio::test(start_paused = true)]
async fn a_session_that_was_used_meanwhile_is_not_deleted() {
    let runtime = runtime(&Stage::default()).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    let key = key(&session);
    let journal = runtime.journal().journal().await.unwrap();
    let seen = journal.session(&key).await.unwrap().events;
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let kept = runtime.delete_unchanged(&key, seen, soon()).await.unwrap_err();
    assert!(matches!(kept, TreeError::Journal(JournalError::Conflict { .. })), "{kept}");
    assert_eq!(session.send("once more").await.unwrap().end().await, Ok(answered()));
    let seen = journal.session(&key).await.unwrap().events;
    runtime.delete_unchanged(&key, seen, soon()).await.unwrap();
    let gone = runtime.delete_unchanged(&key, seen, soon()).await.unwrap_err();
    assert!(matches!(gone, TreeError::NotFound { .. }), "{gone}");
    runtime.shutdown(soon()).await.unwrap();
}

/// A listener hears what comes after the session was put away and held by nobody, and revived by another handle.
#[tokio::test(start_paused = true)]
async fn a_listener_alone_goes_on_hearing_after_the_session_was_put_away() {
    let runtime = runtime(&Stage::default()).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let mut listening = session.subscribe(0).await.unwrap();
    hears(&mut listening, "heard: hello").await;
    let id = session.id();
    drop(session);
    while runtime.health().live_sessions > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    let again = runtime.session(&tenant(), id).await.unwrap();
    assert_eq!(again.send("once more").await.unwrap().end().await, Ok(answered()));
    hears(&mut listening, "heard: once more").await;
    drop((listening, again));
    while runtime.health().known_sessions > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// The supervisors of a session are killed in the midst of its turn: nobody starts it again by itself, which is told; nor does
/// anybody wait for its end. The next message has it go on.
#[tokio::test(start_paused = true)]
async fn a_turn_whose_supervisors_are_killed_is_told_so() {
    let host = Host::over(memory(), Stage::default(), options("first")).await;
    let session = host.open().await;
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let mut turn = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    let (heard, ()) = tokio::join!(followed(&mut turn), async { host.kill_sessions() });
    assert!(matches!(heard, Some(SessionError::NotStarted { .. })), "{heard:?}");
    host.stage.open();
    let mut listening = revived(&session).await;
    hears(&mut listening, "heard: door").await;
    assert_eq!(session.snapshot().await.unwrap().status, SessionStatus::Idle);
    host.shutdown().await;
}

/// The supervisor may be between two lives.
async fn revived(session: &Session) -> Subscription {
    loop {
        match session.subscribe(0).await {
            Ok(listening) => return listening,
            Err(SessionError::NotStarted { .. } | SessionError::ShuttingDown) => {
                tokio::time::sleep(SECOND).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
