//! Failures: killed actors, lost journals, takeovers, session factories that fail.

use conjure_actors::session::{Accepted, SessionError, SessionStatus};
use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{CallOutcome, EventKind};
use conjure_journal::{Journal, MemoryJournal};
use futures_util::future::join_all;

use crate::scenario::{Host, Scenario, answered, error_of, follow, key, lines_until_answer, options};
use crate::support::{FailingJournal, SECOND, TempDisk, memory, of};

/// How the tools of a session ended, by name.
async fn outcomes(host: &Host, session: &conjure_actors::session::Session) -> Vec<(String, CallOutcome)> {
    let name = |id: &str| id.split('-').next().unwrap_or_default().to_owned();
    let of = |kind: EventKind| match kind {
        EventKind::ToolFinished { result, outcome } => Some((name(result.tool_use_id.as_str()), outcome)),
        _ => None,
    };
    host.events(session).await.into_iter().filter_map(of).collect()
}

/// The actor is killed while its tools run, with a journal in memory and on disk.
#[tokio::test]
async fn a_killed_session_resumes_with_outcome_unknown_and_repeats_no_effect() {
    let disk = TempDisk::new();
    for open in [memory(), disk.sqlite()] {
        let host = Host::over(open, Scenario::default(), options("first")).await;
        let session = host.open().await;
        let mut turn = session.send("call door note").await.unwrap();
        host.scenario.reached(1).await;
        let mut queued = session.send("and then this").await.unwrap();
        while host.scenario.started.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        session.kill();
        host.scenario.open();
        assert_eq!(follow(&mut turn).await.1, answered());
        assert_eq!(follow(&mut queued).await.1, answered());
        let outcomes = outcomes(&host, &session).await;
        assert!(outcomes.contains(&("door".to_owned(), CallOutcome::Unknown)), "{outcomes:?}");
        assert_eq!(outcomes.len(), 2, "one result for each call: {outcomes:?}");
        host.shutdown().await;
    }
}

/// Killed during a model call: the model is called again, and the late response is dropped.
#[tokio::test]
async fn a_session_killed_while_the_model_speaks_asks_again() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut turn = session.send("door").await.unwrap();
    for number in 1..=3 {
        host.scenario.reached(number).await;
        session.kill();
        session.attach().await.unwrap();
    }
    host.scenario.reached(4).await;
    host.scenario.open();
    assert_eq!(follow(&mut turn).await.1, answered());
    let is_answer = |kind: &&EventKind| matches!(kind, EventKind::ModelAnswered { .. });
    assert_eq!(host.events(&session).await.iter().filter(is_answer).count(), 1);
    host.shutdown().await;
}

/// The process ends in the middle of a turn; the next process resumes the turn when a client attaches.
#[tokio::test]
async fn another_process_resumes_interrupted_turns() {
    let disk = TempDisk::new();
    let scenario = Scenario::default();
    let first = Host::over(disk.sqlite(), scenario.clone(), options("host")).await;
    let session = first.open().await;
    let key = key(&session);
    session.send("call door").await.unwrap();
    scenario.reached(1).await;
    // No time to stop in order.
    let _ = first.root.shutdown(crate::support::now()).await;
    drop((first, session));

    let second = Host::over(disk.sqlite(), scenario.clone(), options("host")).await;
    let session = second.session(&key);
    let mut listening = session.subscribe(0).await.unwrap();
    scenario.open();
    let lines = lines_until_answer(&mut listening).await;
    assert_eq!(lines.matches("agent.tool_result").count(), 1, "{lines}");
    assert_eq!(session.snapshot().await.unwrap().status, SessionStatus::Idle);
    second.shutdown().await;
}

/// The previous owner appends nothing after a takeover.
#[tokio::test(start_paused = true)]
async fn a_takeover_stops_the_old_owner() {
    let journal = MemoryJournal::new();
    let old = Host::over(of(journal.clone()), Scenario::default(), options("old")).await;
    let session = old.open().await;
    let mut turn = session.send("door").await.unwrap();
    old.scenario.reached(1).await;
    // While the lease is valid, no other owner can acquire it.
    let new = Host::over(of(journal.clone()), Scenario::default(), options("new")).await;
    let same = new.session(&key(&session));
    let lease_held = same.send("mine").await.unwrap_err();
    assert!(
        matches!(&lease_held, SessionError::TakenOver { reason } if reason.contains("`old`")),
        "{lease_held}"
    );

    let info = journal.session(&key(&session)).await.unwrap();
    journal.release_lease(&key(&session), info.epoch).await.unwrap();
    let own_turn = same.send("mine").await.unwrap();
    new.scenario.reached(1).await;
    old.scenario.open();
    let reported = error_of(&mut turn).await;
    assert!(reported.to_string().contains("taken over"), "{reported}");
    new.scenario.open();
    assert_eq!(own_turn.end().await, Ok(answered()));
    let late_error = session.send("still me?").await.unwrap_err();
    assert!(matches!(late_error, SessionError::TakenOver { .. }), "{late_error}");
    new.shutdown().await;
    old.shutdown().await;
}

/// A lost writer: the journal is opened again, and the turn continues over it.
#[tokio::test(start_paused = true)]
async fn a_journal_failure_during_a_turn_is_returned_and_the_turn_resumes() {
    let inner = MemoryJournal::new();
    let failing_journal = FailingJournal::new(inner);
    let host = Host::over(failing_journal.mended_when_opened(), Scenario::default(), options("first")).await;
    let session = host.open().await;
    for appends in 0..9 {
        failing_journal.lose_after(appends);
        // Acknowledged messages get their turn; others fail.
        match session.send("call note read").await {
            Ok(turn) => assert_eq!(turn.end().await, Ok(answered()), "{appends}"),
            Err(error) => assert!(matches!(error, SessionError::Journal { .. }), "{appends}: {error}"),
        }
    }
    failing_journal.mend();
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    let tree = host.root.tree();
    let restarts = tree.find(&["journal"]).unwrap().actor.restarts;
    assert_eq!(restarts, failing_journal.losses(), "each loss is mended once");
    assert!(restarts >= 6, "{restarts} losses; the test lost its grip");
    let actor = tree.find(&["sessions", &session.id().to_string()]).unwrap();
    assert_eq!(actor.actor.restarts, 0, "a failure of the journal is a value");
    host.shutdown().await;
}

/// An append without an acknowledgement is detected, reported, and continued.
#[tokio::test(start_paused = true)]
async fn an_unacknowledged_append_is_detected_and_continued() {
    let failing_journal = FailingJournal::new(MemoryJournal::new());
    let host = Host::over(failing_journal.mended_when_opened(), Scenario::default(), options("first")).await;
    let session = host.open().await;
    let mut listening = session.subscribe(0).await.unwrap();
    for appends in 0..9 {
        failing_journal.lose_the_answer_after(appends);
        let sent = session.send(format!("number {appends}")).await;
        if appends == 0 {
            // It is not known; its turn is there all the same, whether or not anybody says more.
            assert!(matches!(sent, Err(SessionError::Journal { .. })), "{sent:?}");
        } else if let Ok(turn) = sent {
            let ended = tokio::time::timeout(SECOND * 600, turn.end()).await;
            assert_eq!(ended, Ok(Ok(answered())), "{appends}");
        }
        let mut lines = String::new();
        while !lines.contains(&format!("heard: number {appends}")) {
            let update = tokio::time::timeout(SECOND * 600, listening.next()).await;
            if let conjure_actors::session::Update::Recorded(event) = update.unwrap().unwrap() {
                lines.push_str(&event.to_line());
            }
        }
    }
    failing_journal.mend();
    assert!(failing_journal.losses() >= 3, "the test lost its grip");
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// A briefly busy journal only causes a delay; one that stays busy is reported.
#[tokio::test(start_paused = true)]
async fn a_busy_journal_is_asked_again() {
    let failing_journal = FailingJournal::new(MemoryJournal::new());
    let host = Host::over(of(failing_journal.clone()), Scenario::default(), options("first")).await;
    let session = host.open().await;
    let turn = session.send("call door").await.unwrap();
    host.scenario.reached(1).await;
    // The tool's result is at hand.
    failing_journal.refuse(12);
    host.scenario.open();
    assert_eq!(turn.end().await, Ok(answered()));
    assert_eq!(outcomes(&host, &session).await, [("door".to_owned(), CallOutcome::Finished)]);

    failing_journal.refuse(u64::MAX);
    let refused = session.send("hello").await.unwrap_err();
    assert!(matches!(&refused, SessionError::Journal { reason } if reason.contains("wait")), "{refused}");
    failing_journal.refuse(0);
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// Requests behind an unrecordable message get the same error; when the actor is killed, they are sent again.
#[tokio::test(start_paused = true)]
async fn requests_behind_a_failing_journal_fail_or_are_retried() {
    let failing_journal = FailingJournal::new(MemoryJournal::new());
    let host = Host::over(of(failing_journal.clone()), Scenario::default(), options("first")).await;
    let session = host.open().await;
    session.attach().await.unwrap();
    failing_journal.refuse(u64::MAX);
    for refused in join_all([session.send("one"), session.send("two")]).await {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, SessionError::Journal { .. }), "{refused}");
    }
    let (lost, sent, ()) = tokio::join!(biased; session.send("three"), session.send("four"), async {
        tokio::time::sleep(SECOND).await;
        session.kill();
        failing_journal.refuse(0);
    });
    assert!(matches!(lost, Err(SessionError::Lost)), "{lost:?}");
    assert_eq!(sent.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// Waiters of work that the journal fails get the error at once, even while the journal is unavailable.
#[tokio::test(start_paused = true)]
async fn waiters_of_work_that_the_journal_fails_get_the_error() {
    let failing_journal = FailingJournal::new(MemoryJournal::new());
    let host = Host::over(of(failing_journal.clone()), Scenario::default(), options("first")).await;
    let session = host.open().await;
    let waiting = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    let queued = session.send("later").await.unwrap();
    let Accepted::Queued { id, .. } = queued.accepted() else { panic!("{queued:?}") };
    failing_journal.set_away(true);
    // The first is the work; none of the others is a part of it.
    let reported = tokio::join!(biased; session.steer("and"), session.unqueue(id), session.close());
    for reported in [reported.0.map(drop), reported.1, reported.2] {
        assert!(
            matches!(&reported, Err(SessionError::Journal { reason }) if reason.contains("there is nothing")),
            "{reported:?}"
        );
    }
    failing_journal.set_away(false);
    host.scenario.open();
    assert_eq!((waiting.end().await, queued.end().await), (Ok(answered()), Ok(answered())));
    session.close().await.unwrap();
    host.shutdown().await;
}

/// However many say something in the meantime: what the journal failed is tried again after one second, two more, and so on up to two
/// minutes.
#[tokio::test(start_paused = true)]
async fn rejected_requests_cause_no_further_attempts() {
    let failing_journal = FailingJournal::new(MemoryJournal::new());
    let host = Host::over(of(failing_journal.clone()), Scenario::default(), options("first")).await;
    let session = host.open().await;
    let turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    failing_journal.set_away(true);
    for _ in 0..100 {
        let refused = session.send("hello").await.unwrap_err();
        assert!(matches!(refused, SessionError::Journal { .. }), "{refused}");
    }
    let missed = failing_journal.missed();
    tokio::time::sleep(SECOND * 600).await;
    // At 1, 3, 7, 15, 31, 63, 127, 247, 367 and 487.
    assert_eq!(failing_journal.missed() - missed, 10);
    failing_journal.set_away(false);
    host.scenario.open();
    assert_eq!(turn.end().await, Ok(answered()));
    // From then on it is as if nothing had been.
    let turn = session.send("call note").await.unwrap();
    failing_journal.set_away(true);
    tokio::time::sleep(SECOND / 2).await;
    failing_journal.set_away(false);
    assert_eq!(tokio::time::timeout(SECOND, turn.end()).await, Ok(Ok(answered())));
    host.shutdown().await;
}

/// Concurrent messages to a session that cannot start cause one attempt, and each gets the error.
#[tokio::test(start_paused = true)]
async fn a_burst_is_one_attempt_to_start() {
    let host = Host::new().await;
    let session = host.open().await;
    host.scenario.broken.lock().unwrap().0 = 1;
    *host.scenario.slow.lock().unwrap() = SECOND;
    let all = join_all((0..20).map(|number| session.send(format!("{number}")))).await;
    for refused in all {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, SessionError::NotStarted { reason } if reason.contains("no model")),
            "{refused}"
        );
    }
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// An interrupt is not acknowledged before the end of the turn is recorded.
#[tokio::test(start_paused = true)]
async fn an_interruption_that_cannot_be_recorded_is_not_acknowledged() {
    let failing_journal = FailingJournal::new(MemoryJournal::new());
    let host = Host::over(failing_journal.mended_when_opened(), Scenario::default(), options("first")).await;
    let session = host.open().await;
    let _turn = session.send("call door").await.unwrap();
    host.scenario.reached(1).await;
    failing_journal.lose_after(0);
    let refused = session.interrupt().await;
    assert!(matches!(refused, Err(SessionError::Journal { .. })), "{refused:?}");
    host.scenario.open();
    // Said again, it is so.
    session.interrupt().await.unwrap();
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// The first caller does not wait any more: the start completes, and the next caller finds it.
#[tokio::test(start_paused = true)]
async fn a_start_without_waiters_is_reused() {
    let host = Host::new().await;
    let session = host.open().await;
    *host.scenario.slow.lock().unwrap() = SECOND * 2;
    let soon = SystemClock.deadline(SECOND);
    let error = session.clone().with_deadline(soon).send("hello").await.unwrap_err();
    assert!(matches!(error, SessionError::DeadlinePassed), "{error}");
    // Nor is anybody held up by one who was dropped.
    let dropped = tokio::time::timeout(SECOND / 2, session.send("hello")).await;
    assert!(dropped.is_err());
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    assert_eq!(host.trees(), 1);
    host.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_start_reports_why_and_is_quarantined() {
    let host = Host::new().await;
    let session = host.open().await;
    host.scenario.broken.lock().unwrap().0 = 4;
    for _ in 0..4 {
        let error = session.send("hello").await.unwrap_err();
        assert!(
            matches!(&error, SessionError::NotStarted { reason } if reason.contains("no model")),
            "{error}"
        );
    }
    let error = session.send("hello").await.unwrap_err();
    let SessionError::Quarantined { failures: 4, last } = &error else { panic!("{error}") };
    assert!(last.contains("there is no model"), "{last}");
    session.clear_quarantine();
    assert_eq!(session.send("hello").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}
