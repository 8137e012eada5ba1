//! Unused sandboxes are paused: their background processes are stopped until the next call resumes them.

use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{Executor, SandboxErrorKind};
use futures_util::StreamExt;

use crate::fixture::{Fixture, Kind, id, options, soon, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    processes_of_an_idle_sandbox_are_paused_and_resumed_by_the_next_call,
    a_sandbox_in_use_is_not_paused,
    calls_that_come_just_then_are_served_and_find_nothing_still,
    a_paused_one_is_put_away_in_its_time,
    a_paused_one_that_dies_is_replaced_without_a_call,
    a_paused_one_is_cleaned_up,
    a_killed_actor_ends_its_paused_sandbox,
}

/// Waits until what is counted in the background continues.
const GOES_ON: &str = "read before < count; while read now < count; [ \"$now\" -le \"$before\" ]; do sleep 0.001; done; echo goes on";

/// A fixture with a marked background process that counts.
async fn counting_fixture(kind: Kind, pause_after: Duration) -> Fixture {
    let fixture = Fixture::idling(kind, Some(pause_after), None).await;
    count(&fixture).await;
    fixture
}

async fn count(fixture: &Fixture) {
    let count = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.001; done";
    fixture
        .sh(&format!(
            "setsid bash -c '{count}' {} > /dev/null 2>&1 & while [ ! -e count ]; do sleep 0.001; done",
            fixture.mark()
        ))
        .await;
}

/// True if all processes with the marker are stopped.
async fn until_paused(fixture: &Fixture) {
    until("it is paused", || fixture.is_paused()).await;
}

/// What the sandbox's actor waits for, according to the supervision tree.
fn actor_wait(fixture: &Fixture) -> Option<String> {
    let tree = fixture.root.tree();
    tree.find(&["executors", "executor"]).and_then(|actor| actor.actor.waiting_for.clone())
}

async fn processes_of_an_idle_sandbox_are_paused_and_resumed_by_the_next_call(kind: Kind) {
    let fixture = counting_fixture(kind, Duration::from_millis(30)).await;
    for _ in 0..3 {
        until_paused(&fixture).await;
        until("the tree says so", || actor_wait(&fixture).is_some_and(|what| what.contains("paused"))).await;
        assert_eq!(fixture.sh(GOES_ON).await, "goes on\n");
    }
    // Those that only look at files have it continue, too.
    until_paused(&fixture).await;
    let mut content = fixture.executor.read("count", options()).await.unwrap();
    assert!(!fixture.is_paused());
    assert!(content.next().await.unwrap().is_ok());
    drop(content);
    until_paused(&fixture).await;
    assert_eq!(fixture.executor.take_model_notice(), None, "nothing is lost, and there is nothing to tell");
    assert_eq!(*fixture.source.calls.borrow(), 1, "it is the same sandbox");
    fixture.end().await;
}

async fn a_sandbox_in_use_is_not_paused(kind: Kind) {
    let fixture = counting_fixture(kind, Duration::from_millis(1)).await;
    fixture.sh(&format!("sleep 0.3; {GOES_ON}")).await;
    fixture.sh("head -c 16777216 /dev/zero > large").await;
    let mut content = fixture.executor.read("large", options()).await.unwrap();
    assert!(content.next().await.unwrap().is_ok());
    for _ in 0..20 {
        assert!(!fixture.is_paused(), "a reader uses it");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
    until("the tree says nothing of a pause", || actor_wait(&fixture).is_none()).await;
    drop(content);
    until_paused(&fixture).await;
    fixture.end().await;
}

async fn calls_that_come_just_then_are_served_and_find_nothing_still(kind: Kind) {
    let fixture = counting_fixture(kind, Duration::from_millis(1)).await;
    for round in 0..150_u64 {
        assert_eq!(fixture.sh(GOES_ON).await, "goes on\n");
        // Before, while and after it is paused.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_micros(round % 15 * 400))).await;
        if round % 15 == 14 {
            until_paused(&fixture).await;
        }
    }
    assert_eq!(*fixture.source.calls.borrow(), 1, "no call cost a sandbox");
    fixture.end().await;
}

async fn a_paused_one_is_put_away_in_its_time(kind: Kind) {
    let fixture =
        Fixture::idling(kind, Some(Duration::from_millis(5)), Some(Duration::from_millis(500))).await;
    // If the machine hangs for that long, the sandbox is stopped before the test has seen it paused. Then another one is looked at.
    loop {
        count(&fixture).await;
        let is_gone = || bearing(fixture.mark()).is_empty();
        until("it is paused or stopped", || fixture.is_paused() || is_gone()).await;
        if fixture.is_paused() {
            break;
        }
    }
    let created = *fixture.source.calls.borrow();
    let failure = fixture.executor.supervisor().wait_settled(&id("executor"), soon()).await.unwrap();
    assert!(failure.is_none(), "this is not a failure: {failure:?}");
    until("its processes are gone", || bearing(fixture.mark()).is_empty()).await;
    assert_eq!(fixture.sh("test -e count && echo kept").await, "kept\n");
    assert_eq!(*fixture.source.calls.borrow(), created + 1);
    assert!(fixture.executor.take_model_notice().unwrap().contains("because it was idle"));
    fixture.end().await;
}

async fn a_paused_one_that_dies_is_replaced_without_a_call(kind: Kind) {
    let fixture = counting_fixture(kind, Duration::from_millis(5)).await;
    until_paused(&fixture).await;
    fixture.kill_guest();
    fixture.source.until_calls(2).await;
    assert_eq!(fixture.sh("test -e count && echo kept").await, "kept\n");
    until("nothing of the one before is left", || bearing(fixture.mark()).is_empty()).await;
    assert!(fixture.executor.take_model_notice().unwrap().contains("signal 9"));
    assert_eq!(*fixture.source.calls.borrow(), 2);
    fixture.end().await;
}

async fn a_paused_one_is_cleaned_up(kind: Kind) {
    let fixture = counting_fixture(kind, Duration::from_millis(5)).await;
    until_paused(&fixture).await;
    fixture.executor.cleanup().await;
    assert_eq!(bearing(fixture.mark()), []);
    assert_eq!(fixture.run("true").await.unwrap_err().kind(), SandboxErrorKind::Unavailable);
    fixture.end().await;

    let fixture = counting_fixture(kind, Duration::from_millis(5)).await;
    until_paused(&fixture).await;
    // With the tree, in order.
    fixture.end().await;
}

async fn a_killed_actor_ends_its_paused_sandbox(kind: Kind) {
    let fixture = counting_fixture(kind, Duration::from_millis(5)).await;
    let actor = fixture.actor().await;
    until_paused(&fixture).await;
    actor.kill();
    assert_eq!(actor.monitor().unwrap().await.exit.to_string(), "killed");
    // The actor ends after its sandbox.
    assert_eq!(bearing(fixture.mark()), []);
    assert_eq!(fixture.sh("test -e count && echo kept").await, "kept\n");
    fixture.end().await;
}
