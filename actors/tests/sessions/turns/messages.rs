//! Sending, queueing, steering and interrupting, and sessions that are put away.

use std::time::Duration;

use conjure_actors::session::{Accepted, SessionError, SessionStatus, TurnEvent, TurnHandle, Update};
use conjure_base::Redactor;
use conjure_conversation::{CallOutcome, EventKind, Limit, Limits, ModelEvent, Rejection, TurnStop};

use crate::scenario::{Host, Scenario, answered, awaited_approval, follow, options, texts_of};
use crate::support::{SECOND, TempDisk};

#[tokio::test]
async fn a_message_starts_a_turn_that_streams_events_until_its_end() {
    let disk = TempDisk::new();
    for open in [None, Some(disk.sqlite())] {
        let host = match open {
            None => Host::new().await,
            Some(open) => Host::over(open, Scenario::default(), options("first")).await,
        };
        let session = host.open().await;
        let mut turn = session.send("call note read").await.unwrap();
        assert!(matches!(turn.accepted(), Accepted::Started { seq: 0, .. }), "{:?}", turn.accepted());
        let (lines, stop) = follow(&mut turn).await;
        assert_eq!(stop, answered());
        let log = lines.join("\n");
        for part in ["user.message", "agent.tool_use", "note done", "read done", "status_idle"] {
            assert!(log.contains(part), "{log}");
        }
        assert!(turn.next().await.is_none());
        let snapshot = session.snapshot().await.unwrap();
        assert_eq!(snapshot.status, SessionStatus::Idle);
        assert_eq!(snapshot.usage.input_tokens, 2);
        assert_eq!(snapshot.events, host.events(&session).await.len() as u64);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn messages_sent_during_a_turn_get_their_turns_in_order() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut first = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    let mut second = session.send("second").await.unwrap();
    let mut third = session.send("third").await.unwrap();
    let fourth = session.send("fourth").await.unwrap();
    let Accepted::Queued { id, .. } = fourth.accepted() else { panic!("{:?}", fourth.accepted()) };
    assert_eq!(session.snapshot().await.unwrap().queue.len(), 3);
    let (taken_back, ()) = tokio::join!(session.unqueue(id), async { host.scenario.open() });
    for turn in [&mut first, &mut second, &mut third] {
        assert_eq!(follow(turn).await.1, answered());
    }
    // It was taken back before its turn, or had it: one of the two, and both know.
    match taken_back {
        Ok(()) => assert_eq!(fourth.end().await, Err(SessionError::NotRunning)),
        Err(error) => {
            assert!(matches!(error, SessionError::Rejected(Rejection::NotQueued { .. })), "{error}");
            assert_eq!(fourth.end().await, Ok(answered()));
        }
    }
    let requests = host.scenario.requests.lock().unwrap().clone();
    let text = texts_of(&requests[2].messages);
    assert_eq!(text, ["door", "heard: door", "second", "heard: second", "third"]);
    host.shutdown().await;
}

#[tokio::test]
async fn messages_queued_behind_a_turn_with_unknown_effects_wait_for_a_request() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut first = session.send("lost").await.unwrap();
    host.scenario.reached(1).await;
    let mut second = session.send("second").await.unwrap();
    host.scenario.open();
    assert!(matches!(follow(&mut first).await.1, TurnStop::ModelFailed(_)));
    // Looked at again, it still waits.
    session.attach().await.unwrap();
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.queue.len(), snapshot.status), (1, SessionStatus::Idle));
    assert_eq!(host.scenario.requests.lock().unwrap().len(), 1);
    // After a new message both get their turns in order, and the model is told.
    let mut third = session.send("third").await.unwrap();
    for turn in [&mut second, &mut third] {
        assert_eq!(follow(turn).await.1, answered());
    }
    let requests = host.scenario.requests.lock().unwrap().clone();
    let text = texts_of(&requests[1].messages);
    assert!(text[0].contains("Check before you repeat it") && text[0].ends_with("second"), "{text:?}");
    assert_eq!(requests.len(), 3);
    host.shutdown().await;
}

#[tokio::test]
async fn steering_messages_follow_the_results_in_order_and_need_a_running_turn() {
    let host = Host::new().await;
    let session = host.open().await;
    assert_eq!(session.steer("nobody hears").await, Err(SessionError::NotRunning));
    let mut turn = session.send("call door note").await.unwrap();
    host.scenario.reached(1).await;
    let one = session.steer("be brief").await.unwrap();
    let two = session.steer("and kind").await.unwrap();
    assert!(one < two);
    let empty = session.steer(" ").await;
    assert_eq!(empty, Err(SessionError::Rejected(Rejection::EmptyInput)));
    host.scenario.open();
    assert_eq!(follow(&mut turn).await.1, answered());
    let requests = host.scenario.requests.lock().unwrap().clone();
    let last = requests[1].messages.last().unwrap();
    let json: Vec<&str> = last.content.iter().map(|block| block.json()).collect();
    assert_eq!(json.len(), 4);
    assert!(json[0].contains("door done") && json[1].contains("note done"), "{json:?}");
    assert!(json[2].contains("be brief") && json[3].contains("and kind"), "{json:?}");
    assert_eq!(session.steer("too late").await, Err(SessionError::NotRunning));
    host.shutdown().await;
}

#[tokio::test]
async fn an_interrupt_returns_when_the_turn_has_ended_and_keeps_the_queue() {
    let host = Host::new().await;
    let session = host.open().await;
    session.interrupt().await.unwrap();
    let mut turn = session.send("call slow").await.unwrap();
    while host.scenario.started.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut next = session.send("next").await.unwrap();
    session.interrupt().await.unwrap();
    let stopped =
        |kind: &EventKind| matches!(kind, EventKind::TurnFinished { stop: TurnStop::Interrupted, .. });
    assert!(host.events(&session).await.iter().any(stopped));
    assert_eq!(follow(&mut turn).await.1, TurnStop::Interrupted);
    assert_eq!(follow(&mut next).await.1, answered());
    host.shutdown().await;
}

/// The limits are those of the turn. Its time is one of them.
#[tokio::test(start_paused = true)]
async fn a_turn_ends_at_its_limits() {
    let host = Host::new().await;
    let session = host.open().await;
    let limits = Limits { wall_clock: Some(SECOND * 5), ..Limits::default() };
    let turn = session.send_with_limits("door", Some(limits)).await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Limit(Limit::WallClock)));
    let limits = Limits { model_calls: 1, ..Limits::default() };
    let turn = host.open().await.send_with_limits("call note", Some(limits)).await.unwrap();
    assert_eq!(turn.end().await, Ok(TurnStop::Limit(Limit::ModelCalls)));
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    host.shutdown().await;
}

/// Whatever waits, for the turn that runs, behind others, or for a person: its turn has the limits that it was sent with.
#[tokio::test(start_paused = true)]
async fn limits_of_queued_messages_are_enforced() {
    let host = Host::new().await;
    let session = host.open().await;
    let running = session.send("call door").await.unwrap();
    host.scenario.reached(1).await;
    let within = |model_calls| Some(Limits { model_calls, ..Limits::default() });
    let bounded = session.send_with_limits("call note", within(1)).await.unwrap();
    let free = session.send("call note").await.unwrap();
    host.scenario.open();
    assert_eq!(running.end().await, Ok(answered()));
    assert_eq!(bounded.end().await, Ok(TurnStop::Limit(Limit::ModelCalls)));
    assert_eq!(free.end().await, Ok(answered()));
    // And while an approval is pending.
    let _asked = session.send("call ask").await.unwrap();
    awaited_approval(&session).await;
    let bounded = session.send_with_limits("nothing", within(0)).await.unwrap();
    session.kill();
    session.interrupt().await.unwrap();
    assert_eq!(bounded.end().await, Ok(TurnStop::Limit(Limit::ModelCalls)));
    host.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_only_a_row_until_the_next_message() {
    let mut idle = options("first");
    idle.idle_after = SECOND * 60;
    let host = Host::over(crate::support::memory(), Scenario::default(), idle).await;
    let session = host.open().await;
    assert_eq!(session.send("one").await.unwrap().end().await, Ok(answered()));
    assert_eq!(host.trees(), 1);
    while host.trees() > 0 {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert!(
        host.access
            .journal()
            .await
            .unwrap()
            .session(&crate::scenario::key(&session))
            .await
            .unwrap()
            .lease
            .is_none()
    );
    assert_eq!(session.send("two").await.unwrap().end().await, Ok(answered()));
    let requests = host.scenario.requests.lock().unwrap().clone();
    assert_eq!(texts_of(&requests[1].messages), ["one", "heard: one", "two"]);

    // A turn that runs is not idle, however long it takes.
    let turn = session.send("door").await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(host.trees(), 1);
    host.scenario.open();
    assert_eq!(turn.end().await, Ok(answered()));
    session.close().await.unwrap();
    while host.trees() > 0 {
        tokio::task::yield_now().await;
    }
    host.shutdown().await;
}

/// All texts that are shown before the turn ends.
async fn previews(turn: &mut TurnHandle) -> String {
    let mut texts = String::new();
    while let Some(event) = turn.next().await {
        if let TurnEvent::Update(Update::Preview(ModelEvent::TextDelta { text, .. })) = event.unwrap() {
            texts.push_str(&text);
        }
    }
    texts
}

#[tokio::test]
async fn outgoing_text_is_redacted_even_across_chunks() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut turn = session.send("secret").await.unwrap();
    assert_eq!(previews(&mut turn).await, "it is [REDACTED:KEY], hm");
    let (lines, _) = follow(&mut session.send("my key is s3cr3t-value!").await.unwrap()).await;
    let log = lines.join("\n");
    assert!(log.contains("my key is [REDACTED:KEY]!") && log.contains("heard: my key is [REDACTED"), "{log}");
    assert!(!log.contains("s3cr3t-value"));
    host.shutdown().await;
}

/// A late subscriber gets the current response from its beginning, and no previews of finished ones.
#[tokio::test]
async fn previews_belong_to_the_running_call() {
    let host = Host::new().await;
    let session = host.open().await;
    assert_eq!(previews(&mut session.send("secret").await.unwrap()).await, "it is [REDACTED:KEY], hm");
    assert_eq!(previews(&mut session.send("one").await.unwrap()).await, "hm");
    let mut turn = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    // Something is recorded in the middle of it.
    let _queued = session.send("next").await.unwrap();
    let mut late = session.subscribe(session.snapshot().await.unwrap().events).await.unwrap();
    let output =
        |update| matches!(&update, Update::Preview(ModelEvent::TextDelta { text, .. }) if text == "hm");
    while !output(late.next().await.unwrap()) {}
    host.scenario.open();
    assert_eq!(previews(&mut turn).await, "hm");
    host.shutdown().await;
}

/// What is said to be secret later is told to nobody, also not to those who listen already, nor by the next incarnation.
#[tokio::test]
async fn a_secret_added_later_is_redacted_for_existing_subscribers() {
    let host = Host::new().await;
    let session = host.open().await;
    let mut turn = session.send("call door").await.unwrap();
    let mut listening = session.subscribe(0).await.unwrap();
    host.scenario.reached(1).await;
    session.add_secrets(&Redactor::new([("LATER", "l4ter-value")]));
    session.steer("it is l4ter-value, not s3cr3t-value").await.unwrap();
    host.scenario.open();
    let (mut lines, _) = follow(&mut turn).await;
    session.kill();
    let (more, _) = follow(&mut session.send("again l4ter-value").await.unwrap()).await;
    lines.extend(more);
    let last = session.snapshot().await.unwrap().last_text;
    let end = session.snapshot().await.unwrap().events;
    while listening.next_seq() < end {
        if let Update::Recorded(event) = listening.next().await.unwrap() {
            lines.push(event.to_line());
        }
    }
    let log = format!("{}\n{last}", lines.join("\n"));
    assert!(!log.contains("l4ter-value") && !log.contains("s3cr3t-value"), "{log}");
    assert!(log.contains("it is [REDACTED:LATER], not [REDACTED:KEY]"), "{log}");
    assert_eq!(last, "heard: again [REDACTED:LATER]");
    host.shutdown().await;
}

/// Too much waits: a value, at once, and nothing is lost.
#[tokio::test]
async fn a_full_queue_is_returned_as_a_value() {
    let host = Host::new().await;
    let session = host.open().await;
    let first = session.send("door").await.unwrap();
    host.scenario.reached(1).await;
    let mut turns = Vec::new();
    for number in 0..conjure_conversation::QUEUE_LIMIT {
        turns.push(session.send(format!("number {number}")).await.unwrap());
    }
    let limit = conjure_conversation::QUEUE_LIMIT;
    let full = session.send("one too many").await.unwrap_err();
    let SessionError::Overloaded { limit: Some(reported), retry_after, .. } = full else { panic!("{full}") };
    assert_eq!(reported, limit);
    assert!(retry_after > Duration::ZERO && full.is_retryable(), "{full}");
    host.scenario.open();
    assert_eq!(first.end().await, Ok(answered()));
    for turn in turns {
        assert_eq!(turn.end().await, Ok(answered()));
    }
    host.shutdown().await;
}

/// Siblings of a tool that panics keep their results, in call order.
#[tokio::test]
async fn panics_of_tools_and_models_are_contained() {
    let host = Host::new().await;
    let session = host.open().await;
    assert_eq!(session.send("call note panic read").await.unwrap().end().await, Ok(answered()));
    let finished: Vec<(String, bool)> = host
        .events(&session)
        .await
        .into_iter()
        .filter_map(|kind| match kind {
            EventKind::ToolFinished { result, outcome: CallOutcome::Finished } => {
                Some((result.tool_use_id.to_string(), result.is_error))
            }
            _ => None,
        })
        .collect();
    assert_eq!(finished.len(), 3);
    assert!(finished.iter().all(|(id, is_error)| *is_error == id.starts_with("panic")), "{finished:?}");
    let stop = session.send("panic").await.unwrap().end().await.unwrap();
    assert!(matches!(stop, TurnStop::ModelFailed(_)), "{stop:?}");
    assert_eq!(session.send("fine").await.unwrap().end().await, Ok(answered()));
    // The message did not reach the actor.
    let tree = host.root.tree();
    let actor = tree.find(&["sessions", &session.id().to_string()]).unwrap();
    assert_eq!(actor.actor.restarts, 0);
    host.shutdown().await;
}
