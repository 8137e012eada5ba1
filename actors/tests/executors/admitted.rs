//! Sandboxes behind a gate: so many at a time, from before they are made until nothing is left of them.

use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, Share};
use conjure_actors::executors::ExecutorOptions;
use conjure_sandbox::SandboxErrorKind;

use crate::bed::{Bed, Kind, until};
use crate::for_kinds;

for_kinds! {
    a_sandbox_is_made_when_another_is_gone,
    one_that_is_lost_gives_its_place_back,
    a_sandbox_that_is_not_admitted_is_the_error_of_the_call,
    one_whose_turn_does_not_come_in_time_is_overloaded_and_not_slow,
}

fn gate(capacity: u32) -> AdmissionGate {
    AdmissionGate::new("the sandboxes", capacity, Share::default())
}

async fn a_sandbox_is_made_when_another_is_gone(kind: Kind) {
    let gate = gate(1);
    let (first, second) = (Bed::behind(kind, &gate, "one").await, Bed::behind(kind, &gate, "two").await);
    assert_eq!(first.sh("echo first").await, "first\n");
    let calling = async { assert_eq!(second.sh("echo second").await, "second\n") };
    let ending = async {
        until("the second waits", || gate.load().waiting == 1).await;
        assert_eq!(*second.source.calls.borrow(), 0, "none is made before it is admitted");
        first.end().await;
    };
    tokio::join!(calling, ending);
    assert_eq!((gate.load().admitted, gate.load().waiting), (1, 0));
    second.end().await;
    assert_eq!(gate.load().admitted, 0);
}

async fn one_that_is_lost_gives_its_place_back(kind: Kind) {
    let gate = gate(1);
    let bed = Bed::behind(kind, &gate, "one").await;
    bed.leave_a_sleeper().await;
    bed.kill_guest();
    bed.source.until_asked(2).await;
    assert_eq!(bed.sh("echo well").await, "well\n");
    assert_eq!((gate.load().admitted, gate.load().waiting), (1, 0));
    bed.end().await;
    assert_eq!(gate.load().admitted, 0);
}

async fn a_sandbox_that_is_not_admitted_is_the_error_of_the_call(kind: Kind) {
    let gate = gate(1);
    let tenant = conjure_base::TenantId::new("two").unwrap();
    gate.set_share(&tenant, Some(Share { waiting: 0, ..Share::default() }));
    let (first, second) = (Bed::behind(kind, &gate, "one").await, Bed::behind(kind, &gate, "two").await);
    first.sh("true").await;
    let error = second.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Overloaded, "{error}");
    // What the gate advises is the caller's to go by.
    assert!(error.is_retryable() && error.retry_after().is_some_and(|after| !after.is_zero()), "{error:?}");
    let advised = format!(": try again in {} ms", error.retry_after().unwrap().as_millis());
    assert!(error.to_string().ends_with(&advised), "{error}");
    let text = "the sandbox could not be started: the sandboxes of the tenant `two` are 0, and 0 more wait: try again in ";
    assert!(error.to_string().starts_with(text), "{error}");
    first.end().await;
    assert_eq!(second.sh("echo well").await, "well\n");
    second.end().await;
    // Where there is none ever, another try is no use.
    gate.set_share(&tenant, Some(Share { admitted: 0, ..Share::default() }));
    let third = Bed::behind(kind, &gate, "two").await;
    let error = third.run("true").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (SandboxErrorKind::Overloaded, None), "{error}");
    assert!(!error.is_retryable());
    third.end().await;
}

async fn one_whose_turn_does_not_come_in_time_is_overloaded_and_not_slow(kind: Kind) {
    let gate = gate(1);
    let first = Bed::behind(kind, &gate, "one").await;
    first.sh("true").await;
    let mut short = ExecutorOptions::default();
    short.start_timeout = Duration::from_millis(200);
    let second = Bed::behind_with(kind, &gate, "two", short).await;
    let error = second.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Overloaded, "{error}");
    assert!(error.retry_after().is_some());
    assert_eq!(gate.load().waiting, 0);
    second.end().await;
    first.end().await;
}
