//! More than a session takes: each message that is refused is told so at once, none is lost, what was accepted is done.

use conjure_actors::session::{SessionError, Update};
use conjure_conversation::{EventKind, QUEUE_LIMIT, QueueId};
use conjure_sandbox::SandboxErrorKind;
use futures_util::future::join_all;

use crate::lifecycle::passivation::SandboxFixture;
use crate::scenario::{Host, Scenario, answered, options};
use crate::support::{SECOND, memory};

/// More at once than any of a session's queues has room for.
const MANY: usize = 200;

/// How many were refused; each of the others is as it must be.
fn refused<T: std::fmt::Debug>(
    results: Vec<Result<T, SessionError>>,
    accepted: impl Fn(Result<T, SessionError>),
) -> usize {
    let mut refused = 0;
    for result in results {
        match result {
            Err(error @ SessionError::Overloaded { .. }) => {
                assert!(error.is_retryable());
                refused += 1;
            }
            other => accepted(other),
        }
    }
    refused
}

/// The mailbox of the session's actor. The test's single thread sends before the actor runs.
#[tokio::test]
async fn a_full_mailbox_rejects_new_messages_and_serves_accepted_ones() {
    let mut few = options("first");
    few.queue = 8;
    let host = Host::over(memory(), Scenario::default(), few).await;
    let session = host.open().await;
    session.attach().await.unwrap();
    for _ in 0..3 {
        let snapshots = join_all((0..MANY).map(|_| session.snapshot())).await;
        let refused = refused(snapshots, |snapshot| drop(snapshot.unwrap()));
        assert!((MANY - 9..MANY).contains(&refused), "{refused}");
    }
    let sent = join_all((0..MANY).map(|number| session.send(format!("number {number}")))).await;
    let turns: Vec<_> = sent
        .into_iter()
        .filter_map(|sent| match sent {
            Ok(turn) => Some(turn),
            Err(SessionError::Overloaded { .. }) => None,
            Err(error) => panic!("{error}"),
        })
        .collect();
    assert!((1..=9).contains(&turns.len()), "{}", turns.len());
    let accepted = turns.len();
    for turn in turns {
        assert_eq!(turn.end().await, Ok(answered()));
    }
    let is_turn_start = |kind: &&EventKind| matches!(kind, EventKind::TurnStarted { .. });
    assert_eq!(
        host.events(&session).await.iter().filter(is_turn_start).count(),
        accepted,
        "what was refused is not done"
    );
    host.shutdown().await;
}

/// The inbox of a running turn, and the durable queue behind it.
#[tokio::test]
async fn a_full_inbox_rejects_new_messages_and_queued_ones_get_a_turn() {
    let host = Host::new().await;
    let session = host.open().await;
    let first = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    let mut turns = Vec::new();
    let (mut overloaded, mut full) = (0, 0);
    for round in 0..3 {
        for sent in join_all((0..MANY).map(|number| session.send(format!("{round} {number}")))).await {
            match sent {
                Ok(turn) => turns.push(turn),
                Err(SessionError::Overloaded { limit: Some(QUEUE_LIMIT), .. }) => full += 1,
                Err(SessionError::Overloaded { .. }) => overloaded += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(turns.len(), QUEUE_LIMIT);
    assert!(full > 0, "{overloaded} {full}");
    assert_eq!(turns.len() + overloaded + full, 3 * MANY);
    let queued = |kind: &&EventKind| matches!(kind, EventKind::Queued { .. });
    assert_eq!(host.events(&session).await.iter().filter(queued).count(), turns.len());
    host.scenario.open();
    assert_eq!(first.end().await, Ok(answered()));
    for turn in turns {
        assert_eq!(turn.end().await, Ok(answered()));
    }
    host.shutdown().await;
}

/// Requests that wait for the end of a turn.
#[tokio::test]
async fn a_full_stash_rejects_new_requests_and_answers_waiting_ones() {
    let host = Host::new().await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    let decide = || session.unqueue(QueueId::default());
    let (decided, ()) = tokio::join!(join_all((0..MANY).map(|_| decide())), async {
        // All earlier requests precede this one.
        session.snapshot().await.unwrap();
        host.scenario.open();
    });
    let refused =
        refused(decided, |decided| assert!(matches!(decided, Err(SessionError::Rejected(_))), "{decided:?}"));
    assert_eq!(refused, MANY - 64);
    assert_eq!(turn.end().await, Ok(answered()));
    host.shutdown().await;
}

#[tokio::test]
async fn concurrent_listings_are_bounded_and_answered() {
    let fixture = SandboxFixture::new(SECOND).await;
    let session = fixture.session().await;
    let before = *fixture.dock.calls.borrow();
    fixture.dock.may_answer.send_replace(false);
    let (listed, ()) = tokio::join!(join_all((0..MANY).map(|_| session.list_files())), async {
        fixture.dock.calls.subscribe().wait_for(|calls| *calls >= before + 64).await.unwrap();
        session.snapshot().await.unwrap();
        fixture.dock.may_answer.send_replace(true);
    });
    let refused = refused(listed, |listed| {
        assert!(
            matches!(listed, Err(SessionError::Files { kind: SandboxErrorKind::Unsupported, .. })),
            "{listed:?}"
        );
    });
    assert_eq!(refused, MANY - 64);
    fixture.dock.may_go.send_replace(true);
    fixture.host.shutdown().await;
}

/// Listeners that do not read hold nothing but their place: the ring stays as small as it is, and each finds all that is recorded.
#[tokio::test]
async fn listeners_that_do_not_read_miss_nothing() {
    let mut small = options("first");
    small.ring = (16, 1 << 16);
    let host = Host::over(memory(), Scenario::default(), small).await;
    let session = host.open().await;
    let mut listeners = Vec::new();
    for _ in 0..MANY / 4 {
        listeners.push(session.subscribe(0).await.unwrap());
    }
    for number in 0..20 {
        assert_eq!(session.send(format!("number {number}")).await.unwrap().end().await, Ok(answered()));
    }
    let end = session.snapshot().await.unwrap().events;
    let mut first = None;
    for mut listener in listeners {
        let (mut text, mut has_lagged) = (String::new(), false);
        while listener.next_seq() < end {
            match listener.next().await.unwrap() {
                Update::Recorded(event) => text.push_str(&event.to_line()),
                Update::Lagged => has_lagged = true,
                _ => {}
            }
        }
        assert!(has_lagged);
        assert_eq!(text.matches("agent.message").count(), 20);
        assert_eq!(*first.get_or_insert_with(|| text.clone()), text);
    }
    host.shutdown().await;
}
