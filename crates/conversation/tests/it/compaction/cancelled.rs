//! A turn that compacts its history is stopped at every single await. The session continues.

use conjure_conversation::{
    CommandKind, CompactionPolicy, EventKind, Step, TurnOptions, TurnOutcome, TurnStop, Usage, next,
};
use tokio_util::sync::CancellationToken;

use crate::compaction::histories::is_summary;
use crate::support::{ANSWERED, FakeModel, Fixture, calls, poll_times, start, text};

/// Two calls with long inputs in a turn, and then the end; summaries are short. Each answer is as long as makes a compaction due, and
/// the answer after a compaction is not.
fn model() -> FakeModel {
    FakeModel::answering(|request| {
        let said: String = request.messages.iter().map(|message| message.text()).collect();
        let mut response = if is_summary(request) {
            text("<summary>in short</summary>")
        } else if request.call <= 2 {
            let name = format!("{}-{}-{}", request.turn, request.call, "x".repeat(300));
            calls(&[("bash", &name)])
        } else {
            text("done")
        };
        let is_long = request.messages.len() > 3 && !said.contains("in short");
        response.usage = Usage { input_tokens: if is_long { 100 } else { 10 }, ..Usage::default() };
        response
    })
}

fn options(cancel: CancellationToken) -> TurnOptions<'static> {
    let compaction = Some(CompactionPolicy::with_threshold(100).with_kept_messages(1).into());
    TurnOptions { cancel, compaction, ..TurnOptions::default() }
}

/// A fixture that has talked for as long as makes the next turn compact.
async fn talked() -> Fixture {
    let fixture = Fixture::new(model());
    let mut conversation = fixture.load().await;
    fixture.turn(&mut conversation, start("before")).await;
    assert!(conversation.state().turn().is_none());
    fixture
}

async fn resumes(fixture: &Fixture, when: &str) {
    let mut conversation = fixture.load().await;
    conversation.submit(CommandKind::Recover).await.unwrap();
    if next(conversation.state()) != Step::Idle {
        let outcome = fixture.drive(&mut conversation, options(CancellationToken::new())).await.unwrap();
        assert_eq!(outcome, ANSWERED, "{when}");
    }
    conversation.submit(start("second")).await.unwrap();
    let outcome = fixture.drive(&mut conversation, options(CancellationToken::new())).await;
    assert_eq!(outcome, Ok(ANSWERED), "{when}");
    fixture.model.assert_requests_valid(when);
    fixture.tools.assert_no_effect_repeated(when);
    assert_eq!(fixture.load().await.state(), conversation.state(), "{when}: the event log tells the same");
    let events = fixture.event_log.0.events();
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    let begun = count(|kind| matches!(kind, EventKind::CompactionStarted { .. }));
    let done = count(|kind| matches!(kind, EventKind::Compacted { .. }));
    let abandoned = count(|kind| matches!(kind, EventKind::CompactionAbandoned { .. }));
    // One that was interrupted with its turn has no other end than that.
    assert!(done >= 1 && begun >= done + abandoned && begun <= done + abandoned + 1, "{when}");
    assert_eq!(
        *conversation.state().usage(),
        events.iter().fold(Usage::default(), |mut sum, event| {
            event.kind.usage().into_iter().for_each(|usage| sum.add(usage));
            sum
        }),
        "{when}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_dropped_at_any_await_of_a_compaction_resumes() {
    let mut abandoned = 0;
    for polls in 0.. {
        let fixture = talked().await;
        let mut conversation = fixture.begin("first").await;
        let mut turn = Box::pin(fixture.drive(&mut conversation, options(CancellationToken::new())));
        let early = poll_times(&mut turn, polls);
        assert!(matches!(early, None | Some(Ok(ANSWERED))), "{early:?}");
        drop(turn);
        resumes(&fixture, &format!("dropped after {polls} polls")).await;
        let is_abandoned =
            |event: &conjure_conversation::Event| matches!(event.kind, EventKind::CompactionAbandoned { .. });
        abandoned += fixture.event_log.0.events().iter().filter(|event| is_abandoned(event)).count();
        if early.is_some() {
            assert!(polls > 20, "only {polls} places to stop at; the test lost its grip");
            break;
        }
    }
    assert!(abandoned >= 3, "only {abandoned} were stopped in the middle");
}

#[tokio::test(start_paused = true)]
async fn a_turn_cancelled_at_any_await_of_a_compaction_resumes() {
    for polls in 0.. {
        let fixture = talked().await;
        let mut conversation = fixture.begin("first").await;
        let cancel = CancellationToken::new();
        let mut turn = Box::pin(fixture.drive(&mut conversation, options(cancel.clone())));
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
        resumes(&fixture, &format!("cancelled after {polls} polls")).await;
        if completed {
            break;
        }
    }
}
