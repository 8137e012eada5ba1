//! What ends by time or by itself: leases that cannot be renewed, deadlines of handles, turns that continue without anybody.

use std::sync::Arc;
use std::time::Duration;

use conjure_actors::session::{Resume, SessionError};
use conjure_base::{Clock, Deadline, SystemClock, Timestamp};
use conjure_conversation::EventKind;
use conjure_journal::MemoryJournal;

use crate::scenario::{Host, Scenario, answered, error_of, key, options};
use crate::support::{FailingJournal, SECOND, memory, of};

/// By which leases in memory end when their owners think so, also while Tokio's time is paused.
#[derive(Debug)]
struct TokioTime(Deadline);

/// Later than the end of any test.
const FAR: Duration = Duration::from_secs(1_000_000);

impl TokioTime {
    fn new() -> Self {
        Self(SystemClock.deadline(FAR))
    }
}

impl Clock for TokioTime {
    fn timestamp(&self) -> Timestamp {
        let passed = FAR.saturating_sub(SystemClock.remaining(self.0));
        Timestamp::from_millis(u64::try_from(passed.as_millis()).unwrap())
    }
}

/// An owner that cannot renew its lease stops before a takeover is possible, and appends nothing after that.
#[tokio::test(start_paused = true)]
async fn an_unrenewable_lease_ends_the_session_before_a_takeover() {
    let inner = MemoryJournal::with_clock(Arc::new(TokioTime::new()));
    let failing_journal = FailingJournal::new(inner.clone());
    let with_lease = |owner: &str| {
        let mut options = options(owner);
        options.lease = SECOND * 30;
        options
    };
    let old = Host::over(of(failing_journal.clone()), Scenario::default(), with_lease("old")).await;
    let session = old.open().await;
    let mut turn = session.send("call door").await.unwrap();
    old.scenario.reached(1).await;
    failing_journal.fail_renewals();
    let reported = error_of(&mut turn).await;
    assert!(reported.to_string().contains("could not be renewed"), "{reported}");
    let recorded = old.events(&session).await;
    old.scenario.open();

    let new = Host::over(of(inner), Scenario::default(), with_lease("new")).await;
    let same = new.session(&key(&session));
    // As long as the lease holds it is refused; then it continues with what was under way.
    let mut refusals = 0;
    let sent = loop {
        match same.send("mine").await {
            Ok(turn) => break turn,
            Err(SessionError::TakenOver { reason }) => {
                assert!(reason.contains("`old`"), "{reason}");
                refusals += 1;
                tokio::time::sleep(SECOND / 10).await;
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert!(refusals > 0, "it stopped only when its lease was over");
    assert_eq!(sent.end().await, Ok(answered()));
    let events = new.events(&same).await;
    assert_eq!(events[..recorded.len()], recorded);
    let results = events.iter().filter(|kind| matches!(kind, EventKind::ToolFinished { .. })).count();
    assert_eq!(results, 1, "{events:#?}");
    assert_eq!(old.trees(), 0);
    new.shutdown().await;
    old.shutdown().await;
}

#[tokio::test]
async fn a_request_is_executed_although_its_caller_reached_the_deadline() {
    let host = Host::over(memory(), Scenario::default(), options("first")).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    // It waits for the turn's end.
    let with_short_deadline = session.clone().with_deadline(SystemClock.deadline(Duration::from_millis(10)));
    assert_eq!(with_short_deadline.close().await, Err(SessionError::DeadlinePassed));
    host.scenario.open();
    assert_eq!(turn.end().await, Ok(answered()));
    while host.trees() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(session.send("and again").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// The actor is killed while the session has no handle: the turn continues by itself if configured.
#[tokio::test]
async fn a_turn_continues_without_subscribers_if_configured() {
    let mut options = options("first");
    options.resume = Resume::AtStart;
    let host = Host::over(memory(), Scenario::default(), options).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    session.kill();
    drop(session);
    // The model is called again.
    host.scenario.reached(2).await;
    host.scenario.open();
    assert_eq!(turn.end().await, Ok(answered()));
    host.shutdown().await;
}
