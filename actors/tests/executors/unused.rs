//! Unused sandboxes are stopped, long before their sessions are passivated. No call fails because of it.

use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::Executor;
use futures_util::StreamExt;

use crate::fixture::{Fixture, Kind, id, options, soon, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    an_idle_sandbox_is_stopped_and_the_next_call_gets_another,
    a_sandbox_with_a_call_or_a_reader_is_in_use,
    calls_that_come_just_then_are_served,
}

async fn an_idle_sandbox_is_stopped_and_the_next_call_gets_another(kind: Kind) {
    let fixture = Fixture::idling(kind, None, Some(Duration::from_millis(30))).await;
    fixture.sh(&format!("echo kept > file; setsid bash -c '{}' > /dev/null 2>&1 &", fixture.sleeper())).await;
    let failure = fixture.executor.supervisor().wait_settled(&id("executor"), soon()).await.unwrap();
    assert!(failure.is_none(), "this is not a failure, and it is not recorded: {failure:?}");
    until("its processes are gone", || bearing(fixture.mark()).is_empty()).await;
    assert_eq!(*fixture.source.calls.borrow(), 1, "no other one was requested");
    assert_eq!(fixture.executor.take_model_notice(), None, "no sandbox matches");
    assert_eq!(fixture.sh("cat file").await, "kept\n");
    assert_eq!(*fixture.source.calls.borrow(), 2);
    let notice = fixture.executor.take_model_notice().unwrap();
    assert!(notice.contains("because it was idle") && notice.contains("Still there"), "{notice}");
    fixture.end().await;
}

async fn a_sandbox_with_a_call_or_a_reader_is_in_use(kind: Kind) {
    let fixture = Fixture::idling(kind, None, Some(Duration::from_millis(10))).await;
    // Far longer than it may be unused.
    assert_eq!(fixture.sh("sleep 0.3; echo served").await, "served\n");
    fixture.sh("head -c 16777216 /dev/zero > large; sleep 0.3").await;
    let before = *fixture.source.calls.borrow();
    let mut content = fixture.executor.read("large", options()).await.unwrap();
    let mut bytes = 0;
    // More than may be under way to a reader: the rest is there only when the sandbox still is.
    for pause in [200, 200] {
        bytes += content.next().await.unwrap().unwrap().len();
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(pause))).await;
    }
    while let Some(piece) = content.next().await {
        bytes += piece.unwrap().len();
    }
    assert_eq!(bytes, 16_777_216);
    assert!(*fixture.source.calls.borrow() <= before + 1);
    fixture.end().await;
}

async fn calls_that_come_just_then_are_served(kind: Kind) {
    let fixture = Fixture::idling(kind, None, Some(Duration::from_millis(1))).await;
    for round in 0..60_u64 {
        assert_eq!(fixture.sh(&format!("echo {round}")).await, format!("{round}\n"));
        // Before, while and after it is stopped.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_micros(round % 12 * 400))).await;
    }
    assert!(*fixture.source.calls.borrow() > 1, "it was stopped in between");
    fixture.end().await;
}
