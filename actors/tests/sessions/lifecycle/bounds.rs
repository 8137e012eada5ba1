//! What ends by time or by itself: leases that cannot be renewed, deadlines of handles, turns that go on without anybody.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::session::{Resume, SessionError};
use conjure_base::{Clock, Deadline, SystemClock, Timestamp};
use conjure_conversation::EventKind;
use conjure_journal::MemoryJournal;

use crate::support::{Faulty, SECOND, memory, of};
use crate::world::{Host, Stage, answered, key, options};

/// By which leases in memory end when their owners think so, also while Tokio's time is paused.
#[derive(Debug)]
struct TokioTime(Deadline);

/// Further than any test goes.
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

    fn deadline(&self, after: Duration) -> Deadline {
        SystemClock.deadline(after)
    }

    fn remaining(&self, deadline: Deadline) -> Duration {
        SystemClock.remaining(deadline)
    }

    fn sleep_until(&self, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        SystemClock.sleep_until(deadline)
    }
}

/// Whoever cannot renew its lease stops before another may take it, and writes nothing after that.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_ends_the_session_before_another_takes_over() {
    let inner = MemoryJournal::with_clock(Arc::new(TokioTime::new()));
    let faulty = Faulty::new(inner.clone());
    let with_lease = |owner: &str| {
        let mut options = options(owner);
        options.lease = SECOND * 30;
        options
    };
    let old = Host::over(of(faulty.clone()), Stage::default(), with_lease("old")).await;
    let session = old.open().await;
    let mut turn = session.send("call door").await.unwrap();
    old.stage.reached(1).await;
    faulty.fail_renewals();
    let reported = loop {
        match turn.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(reported.to_string().contains("could not be renewed"), "{reported}");
    let recorded = old.events(&session).await;
    old.stage.open();

    let new = Host::over(of(inner), Stage::default(), with_lease("new")).await;
    let same = new.session(&key(&session));
    // As long as the lease holds it is refused; then it goes on with what was under way.
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
async fn a_handle_waits_no_longer_than_its_deadline_and_what_it_asked_for_still_happens() {
    let host = Host::over(memory(), Stage::default(), options("first")).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    // It waits for the turn's end.
    let hasty = session.clone().with_deadline(SystemClock.deadline(Duration::from_millis(10)));
    assert_eq!(hasty.close().await, Err(SessionError::DeadlinePassed));
    host.stage.open();
    assert_eq!(turn.end().await, Ok(answered()));
    while host.trees() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(session.send("and again").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// The actor is killed when nobody holds the session: it goes on by itself where the host wants that.
#[tokio::test]
async fn a_turn_goes_on_without_anybody_where_the_host_wants_that() {
    let mut options = options("first");
    options.resume = Resume::AtStart;
    let host = Host::over(memory(), Stage::default(), options).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.stage.reached(1).await;
    session.kill();
    drop(session);
    // The model is asked again.
    host.stage.reached(2).await;
    host.stage.open();
    assert_eq!(turn.end().await, Ok(answered()));
    host.shutdown().await;
}
