//! Turns and calls that are cancelled at any await, through the runtime, in real jails and containers: no session is
//! stuck, each call has one result, the next request is valid, no effect is repeated, no process stays.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use conjure::config::ExecutorKind;
use conjure::conversation::{Decision, TurnStop};
use conjure::session::SessionStatus;
use conjure::tool::ToolCall;
use conjure::{
    Clock as _, Runtime, RuntimeError, RuntimeOptions, Session, SessionError, SessionEvent, SessionEventKind,
    SystemClock, TurnEvent, TurnHandle, Update, approver_fn,
};
use serde_json::json;

use crate::processes::bearing;
use crate::runtime::fixture::{Fixture, follow, soon, spec, tenant};
use crate::runtime::programs::{SentRequests, asking, bash, forbidden, review};

/// How a turn is broken off.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Interruption {
    /// The user ends it.
    Interrupt,
    /// The session's actor is killed, and its supervisor starts it again.
    Kill,
    /// The host ends in order, and starts again.
    Restart,
}

async fn start(fixture: &Fixture, sent: &SentRequests) -> Runtime {
    let approver = approver_fn(|call: ToolCall| async move { review(&call) });
    let options = RuntimeOptions::from(fixture.config()).model("program", sent.model()).approver(approver);
    Runtime::spawn(options).await.unwrap()
}

fn effects(fixture: &Fixture, session: &Session) -> PathBuf {
    fixture.data().join(format!("tenants/acme/workspaces/{}/workspace/effects", session.id().stored_name()))
}

/// A turn of three model calls with tools of every kind, whose effects have this number.
fn command(number: usize, mark: &str) -> String {
    let first = [
        bash(&format!("echo a{number} >> effects; exec -a {mark} sleep 0.02")),
        json!(["view", {"path": ".", "description": "look around"}]),
        json!(["create_file", {"path": format!("made/{number}"), "file_text": "x", "description": "make it"}]),
    ];
    let second = [bash(&format!("echo b{number} >> effects")), forbidden()];
    json!([first, second]).to_string()
}

/// Follows a turn for `events` of its events. Returns why it ended, if it did.
async fn follow_for(turn: &mut TurnHandle, events: usize) -> Option<TurnStop> {
    for _ in 0..events {
        if let TurnEvent::Ended { stop, .. } = turn.next().await.unwrap().unwrap() {
            return Some(stop);
        }
    }
    None
}

async fn assert_answers(session: &Session, number: usize) {
    let message = format!("hello {number}");
    let (stop, text) = follow(&mut session.send(message.as_str()).await.unwrap()).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{number}: {stop}");
    assert_eq!(text, format!("heard: {message}"));
}

/// Interrupts a turn after 0, `step`, twice `step`, … events, until one ends first.
async fn run_all_interruptions(fixture: Fixture, way: Interruption, step: usize) {
    let everywhere = interrupt_everywhere(fixture, way, step);
    tokio::time::timeout(SystemClock.remaining(soon()), everywhere).await.expect("a session is stuck");
}

async fn interrupt_everywhere(fixture: Fixture, way: Interruption, step: usize) {
    let sent = SentRequests::default();
    let mut runtime = start(&fixture, &sent).await;
    let mut session = runtime.open(spec()).await.unwrap();
    let mark = format!("mark-of-{}", session.id());
    for event_count in (0..).step_by(step) {
        let mut turn = session.send(command(event_count, &mark)).await.unwrap();
        let ended = follow_for(&mut turn, event_count).await;
        match way {
            Interruption::Interrupt => session.interrupt().await.unwrap(),
            Interruption::Kill => session.kill(),
            Interruption::Restart => {
                runtime.shutdown(soon()).await.unwrap();
                runtime = start(&fixture, &sent).await;
                session = runtime.session(&tenant("acme"), session.id()).await.unwrap();
            }
        }
        let is_over = ended.is_some();
        let stop = match ended {
            Some(stop) => stop,
            None if way == Interruption::Restart => session.snapshot().await.unwrap().last_turn.unwrap().stop,
            None => match end_of(&mut turn).await {
                Ok(stop) => stop,
                // It was killed too often for its supervisor: the next message finds it.
                Err(SessionError::NotStarted { .. }) if way == Interruption::Kill => {
                    end_of_last(&session).await
                }
                Err(error) => panic!("{way:?} at {event_count}: {error}"),
            },
        };
        let is_right = match stop {
            TurnStop::Interrupted => way != Interruption::Kill && !is_over,
            TurnStop::Answered(_) => true,
            _ => false,
        };
        assert!(is_right, "{way:?} at {event_count}: {stop}");
        assert_eq!(bearing(&mark), [], "{way:?} at {event_count}");
        assert_answers(&session, event_count).await;
        if is_over {
            assert!(
                event_count > 20,
                "only {event_count} points to interrupt at, so the test proves nothing"
            );
            break;
        }
    }
    sent.check();
    check_record(&runtime, &session).await;
    let effects = std::fs::read_to_string(effects(&fixture, &session)).unwrap();
    let mut lines: Vec<&str> = effects.lines().collect();
    let count = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), count, "{effects}");
    assert!(lines.contains(&"a0") || count > 0, "{effects}");
    runtime.shutdown(soon()).await.unwrap();
    assert_eq!(bearing(&mark), []);
}

/// Follows a turn to its end, or until nobody drives it on.
async fn end_of(turn: &mut TurnHandle) -> Result<TurnStop, SessionError> {
    loop {
        if let TurnEvent::Ended { stop, .. } = turn.next().await.unwrap()? {
            return Ok(stop);
        }
    }
}

/// Has a turn that was left driven on, and says why it ended.
async fn end_of_last(session: &Session) -> TurnStop {
    let mut listener = session.subscribe(session.snapshot().await.unwrap().events).await.unwrap();
    loop {
        let snapshot = session.snapshot().await.unwrap();
        if snapshot.status == SessionStatus::Idle {
            return snapshot.last_turn.unwrap().stop;
        }
        listener.next().await.unwrap();
    }
}

/// Each call has one result, which comes after it.
async fn check_record(runtime: &Runtime, session: &Session) {
    let mut results: BTreeMap<String, u32> = BTreeMap::new();
    for event in runtime.events(session.tenant(), session.id(), 0).await.unwrap() {
        match event.kind {
            SessionEventKind::AgentToolUse { call_id, .. } => {
                assert_eq!(results.insert(call_id.to_string(), 0), None, "{call_id}");
            }
            SessionEventKind::AgentToolResult { call_id, .. } => {
                *results.get_mut(call_id.as_str()).unwrap() += 1;
            }
            _ => {}
        }
    }
    assert!(!results.is_empty() && results.values().all(|count| *count == 1), "{results:?}");
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_turn_interrupted_at_any_await_leaves_a_usable_session() {
    run_all_interruptions(Fixture::new(ExecutorKind::Jail), Interruption::Interrupt, 1).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_turn_whose_session_is_killed_at_any_await_resumes() {
    run_all_interruptions(Fixture::new(ExecutorKind::Jail), Interruption::Kill, 1).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_turn_whose_process_stops_at_any_await_leaves_a_usable_session() {
    run_all_interruptions(Fixture::new(ExecutorKind::Jail), Interruption::Restart, 1).await;
}

/// Polls a future at most this many times, whenever it is woken, and drops it.
async fn poll_at_most<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut remaining = polls;
    std::future::poll_fn(|cx| {
        if remaining == 0 {
            return Poll::Ready(None);
        }
        remaining -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if remaining == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn requests_of_a_handle_may_be_dropped(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    assert_answers(&session, 0).await;
    let mut at_once = 0;
    for polls in 0.. {
        // The message is recorded or not, and gets its turn if it is.
        let is_sent = poll_at_most(polls, session.send(format!("said {polls}"))).await;
        let mut completed = is_sent.is_some();
        completed &= poll_at_most(polls, session.subscribe(0)).await.is_some();
        completed &= poll_at_most(polls, session.list_files()).await.is_some();
        let mark = format!("mark-of-{}-at-{polls}-polls", session.id());
        let endless = bash(&format!("exec -a {mark} sleep 1000"));
        let mut turn = session.send(json!([[endless]]).to_string()).await.unwrap();
        // It may wait for the turn of what was said before, which has no calls.
        let (mut listener, mut seen) = (session.subscribe(turn.accepted().seq()).await.unwrap(), 0);
        let is_called = |event: &SessionEvent| matches!(event.kind, SessionEventKind::AgentToolUse { .. });
        let is_told = AtomicBool::new(false);
        let requests = async {
            while !matches!(listener.next().await.unwrap(), Update::Recorded(event) if is_called(&event)) {}
            is_told.store(true, Ordering::Relaxed);
        };
        let following = async {
            while !is_told.load(Ordering::Relaxed) {
                // The stream of a turn loses nothing with a future that is dropped.
                match poll_at_most(polls, turn.next()).await.flatten() {
                    Some(Ok(TurnEvent::Update(Update::Recorded(event)))) if is_called(&event) => break,
                    event => seen += usize::from(event.is_some()),
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(requests, following);
        until_marked_process(&mark).await;
        match poll_at_most(polls, session.steer(format!("by the way {polls}"))).await {
            None => completed = false,
            Some(steered) => drop(steered.unwrap()),
        }
        completed &= poll_at_most(polls, session.interrupt()).await.is_some();
        session.interrupt().await.unwrap();
        let (stop, _) = follow(&mut turn).await;
        assert!(stop == TurnStop::Interrupted, "{polls}: {stop} after {seen} events");
        let mut turn = session.send(json!([[asking("echo asked >> effects")]]).to_string()).await.unwrap();
        let mut listener = session.subscribe(turn.accepted().seq()).await.unwrap();
        let approval = loop {
            if let Some(approval) = session.snapshot().await.unwrap().approvals.pop() {
                break approval;
            }
            listener.next().await.unwrap();
        };
        completed &=
            poll_at_most(polls, session.decide(approval.call.id.clone(), Decision::Allow)).await.is_some();
        match session.decide(approval.call.id, Decision::Allow).await {
            // It was taken before.
            Ok(()) | Err(SessionError::Rejected(_)) => {}
            Err(error) => panic!("{polls}: {error}"),
        }
        let (stop, _) = follow(&mut turn).await;
        assert!(matches!(stop, TurnStop::Answered(_)), "{polls}: {stop}");
        // Put away, it is revived.
        session.close().await.unwrap();
        completed &= poll_at_most(polls, runtime.session(&tenant("acme"), session.id())).await.is_some();
        assert_answers(&session, polls).await;
        at_once = polls;
        if completed {
            break;
        }
    }
    assert!(at_once > 1, "everything is done at once: the test has lost its grip");
    sent.check();
    check_record(&runtime, &session).await;
    let effects_log = std::fs::read_to_string(effects(&fixture, &session)).unwrap();
    assert_eq!(effects_log.lines().count(), at_once + 1, "each was done once");
    let events: Vec<String> = recorded_events(&runtime, &session).await;
    for polls in 0..=at_once {
        assert!(events.iter().filter(|text| **text == format!("said {polls}")).count() <= 1, "{events:?}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// The user's messages.
async fn recorded_events(runtime: &Runtime, session: &Session) -> Vec<String> {
    let events = runtime.events(session.tenant(), session.id(), 0).await.unwrap();
    let texts = events.into_iter().filter_map(|event| match event.kind {
        SessionEventKind::UserMessage { content, .. } => Some(conjure::Message::user(content).text()),
        _ => None,
    });
    texts.collect()
}

async fn a_dropped_deletion_can_be_repeated(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let acme = tenant("acme");
    for polls in 0.. {
        let session = runtime.open(spec()).await.unwrap();
        let mark = format!("mark-of-{}", session.id());
        let command = format!("exec -a {mark} sleep 1000");
        let turn = session.send(json!([[bash(&command)]]).to_string()).await.unwrap();
        while bearing(&mark).is_empty() {
            tokio::task::yield_now().await;
        }
        drop(turn);
        let deleted = poll_at_most(polls, runtime.delete(&acme, session.id())).await;
        let completed = deleted.is_some();
        match runtime.delete(&acme, session.id()).await {
            Ok(_) if !completed => {}
            Err(RuntimeError::NotFound { .. }) => {}
            other => panic!("{polls}: {other:?}"),
        }
        assert_eq!(bearing(&mark), [], "{polls}");
        let workspaces = std::fs::read_dir(fixture.data().join("tenants/acme/workspaces")).unwrap().count();
        assert_eq!((workspaces, runtime.session_ids(&acme).await.unwrap()), (0, Vec::new()), "{polls}");
        if completed {
            assert!(polls > 1, "it completed at once, so the test proves nothing");
            break;
        }
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// All events are delivered, however often the futures are dropped.
async fn subscriptions_may_be_dropped(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let mark = format!("mark-of-{}", session.id());
    for number in 0..4 {
        let mut turn = session.send(command(number, &mark)).await.unwrap();
        let from = turn.accepted().seq();
        let mut listener = session.subscribe(from).await.unwrap();
        let (mut of_turn, mut delivered, mut is_over) = (Vec::new(), Vec::new(), false);
        // Now and then there is time enough for an answer of the journal's.
        let mut polls = (1..8).cycle();
        loop {
            let polls = polls.next().unwrap();
            // Recorded events are delivered; otherwise the test would wait for an event that may never come.
            let has_more = listener.next_seq() < session.snapshot().await.unwrap().events;
            if has_more && let Some(Ok(Update::Recorded(event))) = poll_at_most(polls, listener.next()).await
            {
                delivered.push(event.id);
            }
            if is_over && !has_more {
                break;
            } else if is_over {
                continue;
            }
            match poll_at_most(8 - polls, turn.next()).await.flatten() {
                Some(Ok(TurnEvent::Update(Update::Recorded(event)))) => of_turn.push(event.id),
                Some(Ok(TurnEvent::Ended { .. })) => is_over = true,
                _ => {}
            }
        }
        let events = runtime.events(session.tenant(), session.id(), from).await.unwrap();
        // Its outputs are reported after the turn's end.
        let is_of_turn =
            |event: &&SessionEvent| !matches!(event.kind, SessionEventKind::SessionFilesProduced { .. });
        let told_of_turn: Vec<_> = events.iter().filter(is_of_turn).map(|event| event.id.clone()).collect();
        let events: Vec<_> = events.into_iter().map(|event| event.id).collect();
        assert!(events.len() > 8, "{events:?}");
        assert_eq!((&delivered, &of_turn), (&events, &told_of_turn), "{number}");
    }
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

async fn until_marked_process(mark: &str) {
    while bearing(mark).is_empty() {
        tokio::task::yield_now().await;
    }
}

/// None of its processes continues, and the next call is not delayed.
async fn a_call_that_is_dropped_leaves_nothing(fixture: Fixture) {
    let sent = SentRequests::default();
    let runtime = start(&fixture, &sent).await;
    let session = runtime.open(spec()).await.unwrap();
    let executor = session.executor().await.unwrap();
    let mark = format!("mark-of-{}", session.id());
    let run = |script: &str| {
        let command = conjure::sandbox::Command::bash(script);
        executor.run(command, conjure::sandbox::CallOptions::until(soon()))
    };
    let working = format!("for i in 1 2 3; do echo $i; (exec -a {mark} sleep 0.02); done");
    for polls in 0.. {
        let completed = poll_at_most(polls, run(&working)).await;
        // Also one that would run for ever.
        let background = format!("setsid bash -c 'exec -a {mark} sleep 1000' & wait");
        tokio::select! {
            biased;
            ended = run(&background) => panic!("{polls}: {ended:?}"),
            () = until_marked_process(&mark) => {}
        }
        let outcome = run("echo next").await.unwrap();
        assert_eq!(outcome.stdout.head, b"next\n", "{polls}");
        let deadline = soon();
        while !bearing(&mark).is_empty() {
            assert!(!SystemClock.remaining(deadline).is_zero(), "{polls}: it runs on");
            tokio::task::yield_now().await;
        }
        if completed.is_some() {
            assert!(polls > 1, "it completed at once, so the test proves nothing");
            break;
        }
    }
    assert_answers(&session, 0).await;
    sent.check();
    runtime.shutdown(soon()).await.unwrap();
}

#[cfg(not(engines))]
#[tokio::test]
async fn requests_of_a_handle_may_be_dropped_at_any_await() {
    requests_of_a_handle_may_be_dropped(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_deletion_dropped_at_any_await_can_be_repeated() {
    a_dropped_deletion_can_be_repeated(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn subscriptions_may_be_dropped_at_any_await() {
    subscriptions_may_be_dropped(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(not(engines))]
#[tokio::test]
async fn a_call_dropped_at_any_await_leaves_nothing() {
    a_call_that_is_dropped_leaves_nothing(Fixture::new(ExecutorKind::Jail)).await;
}

#[cfg(engines)]
mod containers {
    use super::*;
    use crate::image::test_image;

    #[tokio::test]
    async fn a_turn_interrupted_at_any_await_leaves_a_usable_session() {
        let Some(image) = test_image() else { return };
        run_all_interruptions(Fixture::in_containers(&image), Interruption::Interrupt, 1).await;
    }

    #[tokio::test]
    async fn a_turn_whose_session_is_killed_at_any_await_resumes() {
        let Some(image) = test_image() else { return };
        run_all_interruptions(Fixture::in_containers(&image), Interruption::Kill, 7).await;
    }

    #[tokio::test]
    async fn a_turn_whose_process_stops_at_any_await_leaves_a_usable_session() {
        let Some(image) = test_image() else { return };
        run_all_interruptions(Fixture::in_containers(&image), Interruption::Restart, 7).await;
    }

    #[tokio::test]
    async fn requests_of_a_handle_may_be_dropped_at_any_await() {
        let Some(image) = test_image() else { return };
        requests_of_a_handle_may_be_dropped(Fixture::in_containers(&image)).await;
    }

    #[tokio::test]
    async fn a_deletion_dropped_at_any_await_can_be_repeated() {
        let Some(image) = test_image() else { return };
        a_dropped_deletion_can_be_repeated(Fixture::in_containers(&image)).await;
    }

    #[tokio::test]
    async fn subscriptions_may_be_dropped_at_any_await() {
        let Some(image) = test_image() else { return };
        subscriptions_may_be_dropped(Fixture::in_containers(&image)).await;
    }

    #[tokio::test]
    async fn a_call_dropped_at_any_await_leaves_nothing() {
        let Some(image) = test_image() else { return };
        a_call_that_is_dropped_leaves_nothing(Fixture::in_containers(&image)).await;
    }
}
