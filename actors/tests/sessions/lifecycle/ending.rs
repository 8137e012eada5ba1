//! Whoever listens hears the end: of the runtime, of a session that is deleted, of one whose supervisors are killed; and continues
//! hearing where a session was only passivated.

use std::sync::Arc;

use conjure_actors::runtime::{NewSession, SessionRuntime, TreeError, TreeOptions};
use conjure_actors::session::{
    Session, SessionError, SessionStatus, Subscription, TurnEvent, TurnHandle, Update,
};
use conjure_base::TenantId;
use conjure_journal::{JournalError, LeaseOwner};

use crate::scenario::{Host, Scenario, answered, key, options};
use crate::support::{SECOND, memory, soon};

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

async fn runtime(scenario: &Scenario) -> SessionRuntime {
    let mut options =
        TreeOptions::new(memory(), Arc::new(scenario.clone()), LeaseOwner::new("first").unwrap());
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
async fn the_end_of_the_runtime_is_reported() {
    let scenario = Scenario::default();
    let runtime = runtime(&scenario).await;
    let idle = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut listening = idle.subscribe(0).await.unwrap();
    let busy = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut running = busy.send("door").await.unwrap();
    scenario.reached(1).await;
    let mut queued = busy.send("later").await.unwrap();
    let (mut late, mut behind) = (busy.subscribe(0).await.unwrap(), busy.subscribe(0).await.unwrap());
    hears(&mut late, "later").await;
    let hearing =
        async { tokio::join!(heard_all(&mut listening), followed(&mut running), followed(&mut queued)) };
    let (errors, stopped) = tokio::join!(hearing, runtime.shutdown(soon()));
    stopped.unwrap();
    // The turn that ran has its end, after which nothing is missing.
    assert_eq!(errors, (SessionError::ShuttingDown, None, Some(SessionError::ShuttingDown)));
    hears(&mut late, "interrupted").await;
    assert_eq!(heard_all(&mut late).await, SessionError::ShuttingDown);
    // Events that must be read from the journal are not available any more.
    assert_eq!(heard_all(&mut behind).await, SessionError::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_runtime_ends_subscriptions() {
    let scenario = Scenario::default();
    let runtime = runtime(&scenario).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut listening = session.subscribe(0).await.unwrap();
    drop(runtime);
    assert_eq!(heard_all(&mut listening).await, SessionError::ShuttingDown);
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_session_is_reported() {
    let runtime = runtime(&Scenario::default()).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    let mut listening = session.subscribe(0).await.unwrap();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    hears(&mut listening, "heard: hello").await;
    runtime.delete(&key(&session), soon()).await.unwrap();
    assert_eq!(heard_all(&mut listening).await, SessionError::NotFound { session: session.id() });
    runtime.shutdown(soon()).await.unwrap();
}

/// The deletion of idle sessions decides by a snapshot, and the session may be used at that moment.
#[tokio::test(start_paused = true)]
async fn a_session_used_in_the_meantime_is_not_deleted() {
    let runtime = runtime(&Scenario::default()).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    let key = key(&session);
    let journal = runtime.journal().journal().await.unwrap();
    let event_count = journal.session(&key).await.unwrap().events;
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let in_use = runtime.delete_unchanged(&key, event_count, soon()).await.unwrap_err();
    assert!(matches!(in_use, TreeError::Journal(JournalError::Conflict { .. })), "{in_use}");
    assert_eq!(session.send("once more").await.unwrap().end().await, Ok(answered()));
    let event_count = journal.session(&key).await.unwrap().events;
    runtime.delete_unchanged(&key, event_count, soon()).await.unwrap();
    let not_found = runtime.delete_unchanged(&key, event_count, soon()).await.unwrap_err();
    assert!(matches!(not_found, TreeError::NotFound { .. }), "{not_found}");
    runtime.shutdown(soon()).await.unwrap();
}

/// A subscription continues after the session was passivated without handles and revived by another handle.
#[tokio::test(start_paused = true)]
async fn a_subscription_survives_the_passivation_of_the_session() {
    let runtime = runtime(&Scenario::default()).await;
    let session = runtime.open(NewSession::new(tenant())).await.unwrap();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let mut listening = session.subscribe(0).await.unwrap();
    hears(&mut listening, "heard: hello").await;
    let id = session.id();
    drop(session);
    while runtime.health().live_sessions > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    let revived = runtime.session(&tenant(), id).await.unwrap();
    assert_eq!(revived.send("once more").await.unwrap().end().await, Ok(answered()));
    hears(&mut listening, "heard: once more").await;
    drop((listening, revived));
    while runtime.health().known_sessions > 0 {
        tokio::time::sleep(SECOND * 10).await;
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// The supervisors of a session are killed in the middle of its turn: nobody starts it again by itself, which is told; nor does
/// anybody wait for its end. The next message has it continue.
#[tokio::test(start_paused = true)]
async fn a_turn_whose_supervisors_are_killed_is_reported() {
    let host = Host::over(memory(), Scenario::default(), options("first")).await;
    let session = host.open().await;
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    let mut turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    let (events, ()) = tokio::join!(followed(&mut turn), async { host.kill_sessions() });
    assert!(matches!(events, Some(SessionError::NotStarted { .. })), "{events:?}");
    host.scenario.open();
    let mut listening = revived(&session).await;
    hears(&mut listening, "heard: door").await;
    assert_eq!(session.snapshot().await.unwrap().status, SessionStatus::Idle);
    host.shutdown().await;
}

/// The supervisor may be restarting.
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
