//! Scheduling: order, barriers, panics, and the calls of one answer without a driver.

use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_conversation::{
    Authorization, CallConcurrency, CallContext, CallTraits, SessionView, ToolCall, ToolResult,
    ToolRunOutcome, ToolRunner, execute_tool_calls,
};
use futures_util::future::{BoxFuture, pending};

use crate::support::{ANSWERED, FakeModel, FakeTools, Fixture, call, calls, outline, start, text};

fn context() -> CallContext {
    CallContext::default()
}

#[tokio::test(start_paused = true)]
async fn shared_neighbours_run_together_and_exclusive_calls_are_barriers() {
    let tools = FakeTools::default();
    let calls =
        [call("bash", "1"), call("read", "2"), call("write", "3"), call("bash", "4"), call("bash", "5")];
    let results = execute_tool_calls(&tools, &calls, context()).await;
    let ids: Vec<&str> = results.iter().map(|result| result.tool_use_id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
    let log = tools.log();
    let places = |what: &str| log.iter().position(|line| line == what).unwrap();
    assert!(places("start read 2") < places("end bash 1"), "neighbours overlap: {log:?}");
    assert!(places("end bash 1").max(places("end read 2")) < places("start write 3"), "{log:?}");
    assert!(places("end write 3") < places("start bash 4"), "{log:?}");
    assert!(places("start bash 5") < places("end bash 4"), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_a_denial_and_a_question_are_results_and_siblings_keep_theirs() {
    let calls =
        [call("bash", "1"), call("panic", "2"), call("deny", "3"), call("ask", "4"), call("bash", "5")];
    let results = execute_tool_calls(&FakeTools::default(), &calls, context()).await;
    let seen: Vec<(String, bool)> = results.iter().map(|r| (r.text(), r.is_error)).collect();
    assert_eq!(seen[0], ("bash done".to_owned(), false));
    assert!(seen[1].0.starts_with("the tool crashed") && seen[1].1, "{seen:?}");
    assert_eq!(seen[2], ("denied: not here".to_owned(), true));
    assert_eq!(seen[3], ("denied: may it?".to_owned(), true));
    assert_eq!(seen[4], ("bash done".to_owned(), false));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_tools_that_do_not_and_later_batches_are_not_started() {
    let tools = FakeTools::default();
    let calls = [call("hang", "1"), call("obey", "2"), call("write", "3")];
    let deadline = SystemClock.deadline(Duration::from_secs(5));
    let context = CallContext { deadline, ..CallContext::default() };
    let results = execute_tool_calls(&tools, &calls, context.clone()).await;
    assert!(results[0].text().starts_with("cancelled: "), "{results:?}");
    assert_eq!(results[1].text(), "obey done");
    assert_eq!(results[2].text(), "not run: the calls were cancelled or their deadline passed");
    assert!(!tools.log().contains(&"start write 3".to_owned()));
    assert!(!context.cancel.is_cancelled(), "the deadline does not cancel the host's token");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_never_answers_does_not_keep_calls_from_ending() {
    struct NeverSays;
    impl ToolRunner for NeverSays {
        fn traits(&self, _: &ToolCall) -> CallTraits {
            CallTraits { concurrency: CallConcurrency::Shared, idempotent: true }
        }
        fn authorize<'a>(&'a self, call: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
            if call.id.as_str() == "1" {
                Box::pin(async { Authorization::Allow })
            } else {
                Box::pin(pending())
            }
        }
        fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
            Box::pin(async { ToolResult::text_result(&call.id, "ran").into() })
        }
    }
    let deadline = SystemClock.deadline(Duration::from_secs(5));
    let context = CallContext { deadline, ..CallContext::default() };
    let calls = [call("read", "1"), call("read", "2"), call("read", "3")];
    let results = execute_tool_calls(&NeverSays, &calls, context).await;
    let ids: Vec<&str> = results.iter().map(|result| result.tool_use_id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3"]);
    assert!(
        results.iter().all(|result| result.is_error && result.text().starts_with("not run: ")),
        "{results:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn in_a_turn_a_panic_is_a_result_in_its_place() {
    let answers = vec![calls(&[("bash", "1"), ("panic", "2"), ("write", "3")]), text("done")];
    let fixture = Fixture::new(FakeModel::in_turn(answers));
    let mut conversation = fixture.load().await;
    let outcome = fixture.turn(&mut conversation, start("go")).await;
    assert_eq!(outcome, ANSWERED);
    assert_eq!(
        outline(conversation.state().messages())[2],
        "user: 1=bash done | 2!the tool crashed; what it did until then is not known | 3=write done"
    );
}
