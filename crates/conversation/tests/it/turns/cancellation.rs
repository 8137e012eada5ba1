//! The driver is stopped at every single await, in every way. The session continues.

use std::sync::{Arc, Mutex};
use std::task::Context;
use std::time::Duration;

use conjure_conversation::{
    CommandKind, InboxMessageKind, Receipt, StopReason, TurnOptions, TurnOutcome, TurnStop, next,
};
use futures_util::FutureExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use crate::support::{
    ANSWERED, FakeModel, Fixture, answer, calls, outline, poll_times, posting, start, text, tool_use,
};
use conjure_conversation::{Block, Role, Step};

/// Pauses, calls tools of every kind in two answers, then ends. The answer depends on the history alone, so a
/// call that is repeated gets the same one.
fn model() -> FakeModel {
    FakeModel::answering(|request| {
        let last = request.messages.last().unwrap();
        if last.role == Role::Assistant {
            return calls(&[("read", "r1"), ("bash", "b1"), ("write", "w1"), ("bash", "b2")]);
        }
        let has = |id: &str| request.messages.iter().any(|m| m.tool_calls().any(|c| c.id.as_str() == id));
        match (has("r1"), has("w2")) {
            (false, _) => answer(vec![Block::text("Let me see.")], StopReason::PauseTurn),
            (true, false) => {
                let content = vec![Block::text(" "), tool_use("write", "w2"), tool_use("deny", "d1")];
                answer(content, StopReason::ToolUse)
            }
            (true, true) => text("done"),
        }
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum GoOn {
    /// A new process: load, recover, drive the same turn on.
    ReloadAndResume,
    /// A new process that gives the turn up and starts another.
    ReloadAndStartAnew,
    /// The same conversation, whose driver was dropped, gives the turn up and starts another.
    KeepAndStartAnew,
}

/// Polls the turn `polls` times, drops it, goes on. Returns whether the turn had completed before that.
async fn stop_after(polls: usize, how: GoOn) -> bool {
    let fixture = Fixture::new(model());
    let mut conversation = fixture.begin("first").await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let inbox = stream::iter([
        posting(InboxMessageKind::Steer, "and quickly", &told),
        posting(InboxMessageKind::Queue, "later", &told),
    ]);
    let options = TurnOptions { inbox: Box::pin(inbox), ..TurnOptions::default() };
    let mut turn = Box::pin(fixture.drive(&mut conversation, options));
    let early = poll_times(&mut turn, polls);
    assert!(matches!(early, None | Some(Ok(ANSWERED))), "{early:?}");
    drop(turn);
    // Whatever became of them: each sender was told once, and what was said to be recorded is.
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(told.len(), 2, "{how:?} after {polls} polls: {told:?}");
    let recorded = fixture.event_log.0.events().len() as u64;
    for receipt in told {
        let (Receipt::Steered { seq } | Receipt::Queued { seq, .. }) = receipt else { continue };
        assert!(seq < recorded, "{how:?} after {polls} polls");
    }

    if how != GoOn::KeepAndStartAnew {
        conversation = fixture.load().await;
    }
    conversation.submit(CommandKind::Recover).await.unwrap();
    let when = format!("{how:?} after {polls} polls");
    if next(conversation.state()) != Step::Idle {
        if how == GoOn::ReloadAndResume {
            let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
            assert_eq!(outcome, ANSWERED, "{when}");
        } else {
            let cause = conjure_conversation::InterruptCause::Cancelled;
            conversation.submit(CommandKind::Interrupt { cause }).await.unwrap();
        }
    }
    let outcome = fixture.turn(&mut conversation, start("second")).await;
    assert_eq!(outcome, ANSWERED, "{when}");
    fixture.model.assert_requests_valid(&when);
    fixture.tools.assert_no_effect_repeated(&when);
    assert_eq!(fixture.load().await.state(), conversation.state(), "{when}: the event log tells the same");
    let said = outline(conversation.state().messages()).join("\n");
    assert_eq!(said.matches("first").count(), 1, "{when}: {said}");
    assert_eq!(said.matches("second").count(), 1, "{when}: {said}");
    early.is_some()
}

#[tokio::test(start_paused = true)]
async fn a_turn_dropped_at_any_await_leaves_a_valid_history_and_repeats_no_effect() {
    for how in [GoOn::ReloadAndResume, GoOn::ReloadAndStartAnew, GoOn::KeepAndStartAnew] {
        let mut polls = 0;
        while !stop_after(polls, how).await {
            polls += 1;
        }
        assert!(polls > 40, "{how:?}: only {polls} places to stop at; the test lost its grip");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_cancelled_at_any_await_leaves_a_valid_history_and_repeats_no_effect() {
    for polls in 0.. {
        let fixture = Fixture::new(model());
        let mut conversation = fixture.begin("first").await;
        let cancel = CancellationToken::new();
        let options = TurnOptions { cancel: cancel.clone(), ..TurnOptions::default() };
        let mut turn = Box::pin(fixture.drive(&mut conversation, options));
        let early = poll_times(&mut turn, polls);
        let completed = early.is_some();
        cancel.cancel();
        let outcome = match early {
            Some(outcome) => outcome.unwrap(),
            None => turn.as_mut().await.unwrap(),
        };
        drop(turn);
        let interrupted = TurnOutcome::Finished(TurnStop::Interrupted);
        assert!(outcome == interrupted || outcome == ANSWERED, "{polls}: {outcome:?}");
        assert_eq!(fixture.turn(&mut conversation, start("second")).await, ANSWERED, "{polls}");
        let when = format!("cancelled after {polls} polls");
        fixture.model.assert_requests_valid(&when);
        fixture.tools.assert_no_effect_repeated(&when);
        assert_eq!(fixture.load().await.state(), conversation.state(), "{when}");
        if completed {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_started_call_without_an_outcome_is_unknown_unless_it_may_run_again() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![
        calls(&[("hang", "h"), ("read", "r"), ("bash", "b")]),
        text("done"),
    ]));
    let mut conversation = fixture.begin("go").await;
    {
        // `read` gets stuck in its first await, as `hang` does in its second: neither has an outcome.
        let mut turn = Box::pin(fixture.drive(&mut conversation, TurnOptions::default()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while fixture.tools.log().len() < 3 {
            assert!(turn.poll_unpin(&mut cx).is_pending());
        }
    }
    let mut conversation = fixture.load().await;
    let outcome = fixture.drive(&mut conversation, TurnOptions::default()).await.unwrap();
    assert_eq!(outcome, ANSWERED);
    let results = &outline(conversation.state().messages())[2];
    assert!(results.starts_with("user: h!interrupted, outcome unknown"), "{results}");
    assert!(results.contains("r=read done | b!interrupted, outcome unknown"), "{results}");
    assert_eq!(fixture.tools.log().iter().filter(|line| *line == "start read r").count(), 2);
}

#[tokio::test(start_paused = true)]
async fn cancelled_tools_have_a_grace_and_are_then_dropped() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![
        calls(&[("hang", "h"), ("obey", "o"), ("write", "w")]),
        text("no"),
    ]));
    let mut conversation = fixture.begin("go").await;
    let cancel = CancellationToken::new();
    let options =
        TurnOptions { cancel: cancel.clone(), grace: Duration::from_secs(2), ..TurnOptions::default() };
    let cancel_later = async {
        while fixture.tools.log().len() < 2 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(fixture.drive(&mut conversation, options), cancel_later);
    assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Interrupted)));
    let results = &outline(conversation.state().messages())[2];
    assert!(results.starts_with("user: h!cancelled: "), "{results}");
    assert!(results.contains("o=obey done | w!not run: the turn was interrupted"), "{results}");
    assert_eq!(fixture.model.request_count(), 1);
}
