//! What is done before a model call is work of the turn: it is recorded, the session can be spoken to meanwhile, and limits of time hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};
use conjure_conversation::{
    Block, CommandKind, InboxMessageKind, Limit, Limits, PreCallHook, Receipt, SessionState, TurnOptions,
    TurnOutcome, TurnStop,
};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};

use crate::support::{ANSWERED, FakeModel, Fixture, calls, outline, posting, start_within, text};

/// What is to be done each time that it is asked, until nothing is left.
struct Work(Mutex<Vec<BoxStream<'static, CommandKind>>>);

impl Work {
    fn of(work: impl IntoIterator<Item = BoxStream<'static, CommandKind>>) -> Self {
        let mut work: Vec<_> = work.into_iter().collect();
        work.reverse();
        Self(Mutex::new(work))
    }
}

impl PreCallHook for Work {
    fn before_model_call(&self, _: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        self.0.lock().unwrap().pop()
    }
}

fn note(words: &str) -> CommandKind {
    CommandKind::Steer { input: vec![Block::text(words)] }
}

fn taking(duration: Duration) -> BoxStream<'static, CommandKind> {
    async move {
        SystemClock.sleep_until(SystemClock.deadline(duration)).await;
        note("ready")
    }
    .into_stream()
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn what_it_yields_stands_before_the_call_and_what_is_refused_is_passed_over() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![text("done")]));
    let mut conversation = fixture.begin("go").await;
    let unknown = CommandKind::UnregisterArtifact { name: "nobody".parse().unwrap() };
    let first = stream::iter([note("one"), unknown, note("two")]).boxed();
    let work = Work::of([first, stream::iter([note("three")]).boxed()]);
    let options = TurnOptions { pre_call_hook: &work, ..TurnOptions::default() };
    assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    assert_eq!(outline(conversation.state().messages())[0], "user: go | one | two | three");
    assert_eq!(fixture.model.request_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_are_accepted_while_the_hook_runs() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![text("done")]));
    let mut conversation = fixture.begin("go").await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let inbox = stream::iter([posting(InboxMessageKind::Steer, "meanwhile", &told)]);
    let work = Work::of([taking(Duration::from_secs(5))]);
    let options = TurnOptions { pre_call_hook: &work, inbox: inbox.boxed(), ..TurnOptions::default() };
    assert_eq!(fixture.drive(&mut conversation, options).await, Ok(ANSWERED));
    assert!(matches!(told.lock().unwrap()[..], [Receipt::Steered { .. }]));
    assert_eq!(outline(conversation.state().messages())[0], "user: go | meanwhile | ready");
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_turn() {
    for expected in [TurnStop::Limit(Limit::WallClock), TurnStop::Deadline, TurnStop::Interrupted] {
        let fixture = Fixture::new(FakeModel::in_turn(vec![text("done")]));
        let mut conversation = fixture.load().await;
        let limit = (expected == TurnStop::Limit(Limit::WallClock)).then_some(Duration::from_secs(2));
        let limits = Limits { wall_clock: limit, ..Limits::default() };
        conversation.submit(start_within("go", limits)).await.unwrap();
        let work = Work::of([stream::pending().boxed()]);
        let mut options = TurnOptions { pre_call_hook: &work, ..TurnOptions::default() };
        if expected == TurnStop::Deadline {
            options.deadline = SystemClock.deadline(Duration::from_secs(2));
        }
        let cancel = options.cancel.clone();
        let cancelling = async {
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_secs(3))).await;
            cancel.cancel();
        };
        let (outcome, ()) =
            futures_util::future::join(fixture.drive(&mut conversation, options), cancelling).await;
        assert_eq!(outcome, Ok(TurnOutcome::Finished(expected)));
        assert_eq!(fixture.model.request_count(), 0);
    }
}

/// The same, whose next work is only there behind the next model call.
struct BetweenCalls(Work, Mutex<bool>);

impl PreCallHook for BetweenCalls {
    fn before_model_call(&self, state: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        let mut is_due = self.1.lock().unwrap();
        *is_due = !*is_due;
        if *is_due { self.0.before_model_call(state) } else { None }
    }
}

/// Also of what is left when the calls of an answer have been looked at, of which the record says how long they took.
#[tokio::test(start_paused = true)]
async fn how_long_it_took_counts_in_the_time_of_the_turn() {
    let fixture = Fixture::new(FakeModel::in_turn(vec![calls(&[("bash", "1")]), text("done")]));
    let mut conversation = fixture.load().await;
    let limits = Limits { wall_clock: Some(Duration::from_secs(5)), ..Limits::default() };
    conversation.submit(start_within("go", limits)).await.unwrap();
    let seconds = Duration::from_secs(3);
    let work = Work::of([taking(seconds), taking(seconds)]);
    let work = BetweenCalls(work, Mutex::new(false));
    let options = TurnOptions { pre_call_hook: &work, ..TurnOptions::default() };
    let outcome = fixture.drive(&mut conversation, options).await;
    assert_eq!(outcome, Ok(TurnOutcome::Finished(TurnStop::Limit(Limit::WallClock))));
    assert_eq!(fixture.model.request_count(), 1);
}
