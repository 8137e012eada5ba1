//! Changing the model of a session: between two turns, for good, and not while a turn runs.

use conjure_actors::session::{Session, SessionError, SessionStatus};
use conjure_base::{CallId, Clock as _, SystemClock};
use conjure_conversation::{Decision, EventKind, Rejection};
use conjure_journal::MemoryJournal;

use crate::scenario::{Host, Scenario, answered, follow, key, options, texts_of};
use crate::support::{FailingJournal, SECOND, TempDisk};

async fn ask(session: &Session, text: &str) -> String {
    let mut turn = session.send(text).await.unwrap();
    assert_eq!(follow(&mut turn).await.1, answered());
    session.snapshot().await.unwrap().last_text
}

async fn model(session: &Session) -> Option<String> {
    session.snapshot().await.unwrap().model
}

fn is_refused(changed: Result<(), SessionError>) -> bool {
    matches!(changed, Err(SessionError::Rejected(Rejection::TurnRunning)))
}

#[tokio::test]
async fn the_next_turn_has_the_new_model_and_a_revived_session_has_it_too() {
    let disk = TempDisk::new();
    let scenario = Scenario::default();
    let host = Host::over(disk.sqlite(), scenario.clone(), options("host")).await;
    let session = host.open().await;
    assert_eq!(ask(&session, "one").await, "heard: one");
    session.set_model("quick").await.unwrap();
    assert_eq!(model(&session).await.as_deref(), Some("quick"));
    assert_eq!(ask(&session, "two").await, "quick heard: two");
    let requests = scenario.requests.lock().unwrap().clone();
    assert_eq!(texts_of(&requests[1].messages), ["one", "heard: one", "two"], "it is the same conversation");
    // A change to the same model is not recorded.
    session.set_model("quick").await.unwrap();
    session.set_model("slow").await.unwrap();
    let changes = host.events(&session).await;
    let changes: Vec<_> =
        changes.iter().filter(|kind| matches!(kind, EventKind::ModelChanged { .. })).collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    // Put away and revived, and in another process.
    session.close().await.unwrap();
    assert_eq!(ask(&session, "three").await, "slow heard: three");
    let key = key(&session);
    host.shutdown().await;
    let host = Host::over(disk.sqlite(), scenario, options("host")).await;
    let session = host.session(&key);
    assert_eq!(ask(&session, "four").await, "slow heard: four");
    host.shutdown().await;
}

/// A history too long for the new model is summarised by the previous model.
#[tokio::test]
async fn a_history_that_is_too_long_for_the_new_model_is_compacted_first() {
    let host = Host::new().await;
    let session = host.open().await;
    let first = "one ".repeat(500);
    for text in [first.as_str(), "two", "three", "four", "a long one"] {
        ask(&session, text).await;
    }
    session.set_model("big").await.unwrap();
    assert_eq!(ask(&session, "and a long one").await, "big heard: and a long one");
    let compacted = |events: &[EventKind]| {
        events.iter().filter(|kind| matches!(kind, EventKind::Compacted { .. })).count()
    };
    assert_eq!(compacted(&host.events(&session).await), 0, "its context is not known");
    session.set_model("small").await.unwrap();
    assert_eq!(ask(&session, "six").await, "small heard: six");
    let events = host.events(&session).await;
    assert_eq!(compacted(&events), 1, "{events:?}");
    assert_eq!(
        *host.scenario.called.lock().unwrap(),
        ["big", "big", "small"],
        "the model before writes the summary"
    );
    let requests = host.scenario.requests.lock().unwrap().clone();
    assert!(!texts_of(&requests.last().unwrap().messages).contains(&first));
    host.shutdown().await;
}

#[tokio::test]
async fn a_turn_keeps_its_model() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut first = session.send("door").await.unwrap();
    assert!(is_refused(session.set_model("quick").await));
    host.scenario.reached(1).await;
    assert!(is_refused(session.set_model("quick").await));
    // The queued message gets a turn with the same model.
    let mut second = session.send("second").await.unwrap();
    host.scenario.open();
    for turn in [&mut first, &mut second] {
        assert_eq!(follow(turn).await.1, answered());
    }
    assert_eq!((model(&session).await, ask(&session, "third").await.as_str()), (None, "heard: third"));
    host.shutdown().await;
}

#[tokio::test]
async fn a_turn_waiting_for_approval_keeps_its_model() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut turn = session.send("call ask").await.unwrap();
    while !matches!(session.snapshot().await.unwrap().status, SessionStatus::AwaitingApproval(_)) {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        assert!(is_refused(session.set_model("quick").await));
        tokio::task::yield_now().await;
    }
    session.decide(CallId::new("ask-0-0"), Decision::Allow).await.unwrap();
    assert_eq!(follow(&mut turn).await.1, answered());
    session.set_model("quick").await.unwrap();
    assert_eq!(ask(&session, "and now").await, "quick heard: and now");
    host.shutdown().await;
}

/// A turn whose end was reported is never reported as running.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_turn_whose_end_was_reported_is_over() {
    let host = Host::new().await;
    let session = host.open().await;
    for number in 0..200 {
        let name = format!("model-{number}");
        session.set_model(name.as_str()).await.unwrap();
        let mut turn = session.send("hello").await.unwrap();
        let (lines, _) = follow(&mut turn).await;
        assert!(lines.iter().any(|line| line.contains(&format!("{name} heard: hello"))), "{lines:?}");
    }
    host.shutdown().await;
}

#[tokio::test]
async fn an_unavailable_model_changes_nothing() {
    let host = Host::new().await;
    let session = host.open().await;
    session.set_model("quick").await.unwrap();
    for (name, expected) in [("missing", "there is no model `missing`"), ("panic", "panicked")] {
        let refused = session.set_model(name).await.unwrap_err();
        let SessionError::ModelRefused { model, reason } = &refused else { panic!("{refused}") };
        assert!(model == name && reason.contains(expected), "{refused}");
    }
    // One that takes too long does not hold up the session.
    let with_short_deadline = session.clone().with_deadline(SystemClock.deadline(SECOND / 100));
    assert_eq!(with_short_deadline.set_model("door").await, Err(SessionError::DeadlinePassed));
    assert_eq!(ask(&session, "hello").await, "quick heard: hello");
    host.shutdown().await;
}

/// Where the journal does not say whether it recorded the change, the session has the model that its record names.
#[tokio::test(start_paused = true)]
async fn after_a_failure_of_the_journal_the_model_is_the_recorded_one() {
    for is_recorded in [false, true] {
        let failing_journal = FailingJournal::new(MemoryJournal::new());
        let host =
            Host::over(failing_journal.mended_when_opened(), Scenario::default(), options("first")).await;
        let session = host.open().await;
        session.set_model("quick").await.unwrap();
        if is_recorded {
            failing_journal.lose_the_answer_after(0);
        } else {
            failing_journal.lose_after(0);
        }
        let changed = session.set_model("slow").await;
        assert!(matches!(changed, Err(SessionError::Journal { .. })), "{changed:?}");
        failing_journal.mend();
        let answer = ask(&session, "hello").await;
        assert_eq!(answer, if is_recorded { "slow heard: hello" } else { "quick heard: hello" });
        host.shutdown().await;
    }
}
