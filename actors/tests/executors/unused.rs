//! Sandboxes that nobody uses are put away, long before their sessions are; no call ever finds that out the hard way.

use std::time::Duration;

use conjure_actors::executors::ExecutorOptions;
use conjure_base::{Clock, SystemClock};
use conjure_sandbox::Executor;
use futures_util::StreamExt;

use crate::bed::{Bed, Kind, id, options, soon, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    one_that_nobody_uses_is_put_away_and_the_next_call_has_another,
    one_that_serves_a_call_or_a_reader_is_used,
    calls_that_come_just_then_are_served,
}

async fn treated(kind: Kind, unused_after: Duration) -> Bed {
    let mut treated = ExecutorOptions::default();
    treated.unused_after = Some(unused_after);
    Bed::with(kind, treated).await
}

async fn one_that_nobody_uses_is_put_away_and_the_next_call_has_another(kind: Kind) {
    let bed = treated(kind, Duration::from_millis(30)).await;
    bed.sh(&format!("echo kept > file; setsid bash -c '{}' > /dev/null 2>&1 &", bed.sleeper())).await;
    let left = bed.executor.supervisor().wait_settled(&id("executor"), soon()).await.unwrap();
    assert!(left.is_none(), "it is no failure, and nothing of it is remembered: {left:?}");
    until("its processes are gone", || bearing(bed.mark()).is_empty()).await;
    assert_eq!(*bed.source.calls.borrow(), 1, "nobody asked for another");
    assert_eq!(bed.executor.take_model_notice(), None, "there is no sandbox of which it is true");
    assert_eq!(bed.sh("cat file").await, "kept\n");
    assert_eq!(*bed.source.calls.borrow(), 2);
    let notice = bed.executor.take_model_notice().unwrap();
    assert!(notice.contains("because it was idle") && notice.contains("Still there"), "{notice}");
    bed.end().await;
}

async fn one_that_serves_a_call_or_a_reader_is_used(kind: Kind) {
    let bed = treated(kind, Duration::from_millis(10)).await;
    // Far longer than it may be unused.
    assert_eq!(bed.sh("sleep 0.3; echo served").await, "served\n");
    bed.sh("head -c 16777216 /dev/zero > large; sleep 0.3").await;
    let before = *bed.source.calls.borrow();
    let mut content = bed.executor.read("large", options()).await.unwrap();
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
    assert!(*bed.source.calls.borrow() <= before + 1);
    bed.end().await;
}

async fn calls_that_come_just_then_are_served(kind: Kind) {
    let bed = treated(kind, Duration::from_millis(1)).await;
    for round in 0..60_u64 {
        assert_eq!(bed.sh(&format!("echo {round}")).await, format!("{round}\n"));
        // Before, while and after it is put away.
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_micros(round % 12 * 400))).await;
    }
    assert!(*bed.source.calls.borrow() > 1, "it was put away in between");
    bed.end().await;
}
