//! Sandboxes that nobody uses are paused: what runs in them stands still, until the next call, which has it go on.

use std::time::Duration;

use conjure_actors::executors::ExecutorOptions;
use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{Executor, SandboxErrorKind};
use futures_util::StreamExt;

use crate::bed::{Bed, Kind, id, options, soon, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    what_runs_in_one_that_nobody_uses_stands_still_and_the_next_call_has_it_go_on,
    one_that_serves_a_call_or_a_reader_is_not_paused,
    calls_that_come_just_then_are_served_and_find_nothing_still,
    a_paused_one_is_put_away_in_its_time,
    a_paused_one_that_dies_is_replaced_without_a_call,
    a_paused_one_is_cleaned_up,
    a_killed_actor_takes_a_paused_one_along,
}

/// Waits until what is counted in the background goes on.
const GOES_ON: &str = "read before < count; while read now < count; [ \"$now\" -le \"$before\" ]; do sleep 0.001; done; echo goes on";

async fn treated(kind: Kind, pause_after: Duration, unused_after: Option<Duration>) -> Bed {
    let mut treated = ExecutorOptions::default();
    treated.pause_after = Some(pause_after);
    treated.unused_after = unused_after;
    Bed::with(kind, treated).await
}

/// One in which something counts in the background, and bears the mark.
async fn counting(kind: Kind, pause_after: Duration, unused_after: Option<Duration>) -> Bed {
    let bed = treated(kind, pause_after, unused_after).await;
    count(&bed).await;
    bed
}

async fn count(bed: &Bed) {
    let count = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.001; done";
    bed.sh(&format!(
        "setsid bash -c '{count}' {} > /dev/null 2>&1 & while [ ! -e count ]; do sleep 0.001; done",
        bed.mark()
    ))
    .await;
}

/// Whether all that bears the mark is stopped.
fn stands_still(bed: &Bed) -> bool {
    let processes = bearing(bed.mark());
    !processes.is_empty() && processes.iter().all(|process| process.state == 'T')
}

async fn until_paused(bed: &Bed) {
    until("it is paused", || stands_still(bed)).await;
}

/// What the sandbox's actor waits for, as the tree says.
fn waits_for(bed: &Bed) -> Option<String> {
    let tree = bed.root.tree();
    tree.find(&["executors", "executor"]).and_then(|actor| actor.actor.waiting_for.clone())
}

async fn what_runs_in_one_that_nobody_uses_stands_still_and_the_next_call_has_it_go_on(kind: Kind) {
    let bed = counting(kind, Duration::from_millis(30), None).await;
    for _ in 0..3 {
        until_paused(&bed).await;
        until("the tree says so", || waits_for(&bed).is_some_and(|what| what.contains("paused"))).await;
        assert_eq!(bed.sh(GOES_ON).await, "goes on\n");
    }
    // Those that only look at files have it go on, too.
    until_paused(&bed).await;
    let mut content = bed.executor.read("count", options()).await.unwrap();
    assert!(!stands_still(&bed));
    assert!(content.next().await.unwrap().is_ok());
    drop(content);
    until_paused(&bed).await;
    assert_eq!(bed.executor.take_model_notice(), None, "nothing is lost, and there is nothing to tell");
    assert_eq!(*bed.source.calls.borrow(), 1, "it is the same sandbox");
    bed.end().await;
}

async fn one_that_serves_a_call_or_a_reader_is_not_paused(kind: Kind) {
    let bed = counting(kind, Duration::from_millis(1), None).await;
    bed.sh(&format!("sleep 0.3; {GOES_ON}")).await;
    bed.sh("head -c 16777216 /dev/zero > large").await;
    let mut content = bed.executor.read("large", options()).await.unwrap();
    assert!(content.next().await.unwrap().is_ok());
    for _ in 0..20 {
        assert!(!stands_still(&bed), "a reader uses it");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
    until("the tree says nothing of a pause", || waits_for(&bed).is_none()).await;
    drop(content);
    until_paused(&bed).await;
    bed.end().await;
}

async fn calls_that_come_just_then_are_served_and_find_nothing_still(kind: Kind) {
    let bed = counting(kind, Duration::from_millis(1), None).await;
    for round in 0..150_u64 {
        assert_eq!(bed.sh(GOES_ON).await, "goes on\n");
        // Before, while and after it is paused.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_micros(round % 15 * 400))).await;
        if round % 15 == 14 {
            until_paused(&bed).await;
        }
    }
    assert_eq!(*bed.source.calls.borrow(), 1, "no call cost a sandbox");
    bed.end().await;
}

async fn a_paused_one_is_put_away_in_its_time(kind: Kind) {
    let bed = treated(kind, Duration::from_millis(5), Some(Duration::from_millis(500))).await;
    // Where the machine stands still for so long, it is put away before anybody has seen it paused: then another one is looked at.
    loop {
        count(&bed).await;
        let is_gone = || bearing(bed.mark()).is_empty();
        until("it is paused or put away", || stands_still(&bed) || is_gone()).await;
        if stands_still(&bed) {
            break;
        }
    }
    let made = *bed.source.calls.borrow();
    let left = bed.executor.supervisor().wait_settled(&id("executor"), soon()).await.unwrap();
    assert!(left.is_none(), "it is no failure: {left:?}");
    until("its processes are gone", || bearing(bed.mark()).is_empty()).await;
    assert_eq!(bed.sh("test -e count && echo kept").await, "kept\n");
    assert_eq!(*bed.source.calls.borrow(), made + 1);
    assert!(bed.executor.take_model_notice().unwrap().contains("because it was idle"));
    bed.end().await;
}

async fn a_paused_one_that_dies_is_replaced_without_a_call(kind: Kind) {
    let bed = counting(kind, Duration::from_millis(5), None).await;
    until_paused(&bed).await;
    bed.kill_guest();
    bed.source.until_asked(2).await;
    assert_eq!(bed.sh("test -e count && echo kept").await, "kept\n");
    until("nothing of the one before is left", || bearing(bed.mark()).is_empty()).await;
    assert!(bed.executor.take_model_notice().unwrap().contains("signal 9"));
    assert_eq!(*bed.source.calls.borrow(), 2);
    bed.end().await;
}

async fn a_paused_one_is_cleaned_up(kind: Kind) {
    let bed = counting(kind, Duration::from_millis(5), None).await;
    until_paused(&bed).await;
    bed.executor.cleanup().await;
    assert_eq!(bearing(bed.mark()), []);
    assert_eq!(bed.run("true").await.unwrap_err().kind(), SandboxErrorKind::Unavailable);
    bed.end().await;

    let bed = counting(kind, Duration::from_millis(5), None).await;
    until_paused(&bed).await;
    // With the tree, in order.
    bed.end().await;
}

async fn a_killed_actor_takes_a_paused_one_along(kind: Kind) {
    let bed = counting(kind, Duration::from_millis(5), None).await;
    let actor = bed.actor().await;
    until_paused(&bed).await;
    actor.kill();
    assert_eq!(actor.monitor().unwrap().await.exit.to_string(), "killed");
    // The actor is gone when its sandbox is.
    assert_eq!(bearing(bed.mark()), []);
    assert_eq!(bed.sh("test -e count && echo kept").await, "kept\n");
    bed.end().await;
}
