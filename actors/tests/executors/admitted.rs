//! Sandboxes behind a gate: a limited number at a time, from before they are made until nothing is left of them.

use std::time::Duration;

use conjure_actors::admission::{AdmissionGate, Share};
use conjure_actors::executors::ExecutorOptions;
use conjure_sandbox::SandboxErrorKind;

use crate::fixture::{Fixture, Kind, until};
use crate::for_kinds;

for_kinds! {
    a_sandbox_is_made_when_another_is_gone,
    a_lost_sandbox_releases_its_permit,
    a_sandbox_that_is_not_admitted_is_the_error_of_the_call,
    a_sandbox_start_beyond_its_deadline_is_rejected_as_overload,
}

fn gate(capacity: u32) -> AdmissionGate {
    AdmissionGate::new("the sandboxes", capacity, Share::default())
}

async fn a_sandbox_is_made_when_another_is_gone(kind: Kind) {
    let gate = gate(1);
    let (first, second) =
        (Fixture::gated(kind, &gate, "one").await, Fixture::gated(kind, &gate, "two").await);
    assert_eq!(first.sh("echo first").await, "first\n");
    let calling = async { assert_eq!(second.sh("echo second").await, "second\n") };
    let ending = async {
        until("the second waits", || gate.load().waiting == 1).await;
        assert_eq!(*second.source.calls.borrow(), 0, "no sandbox is created before its admission");
        first.end().await;
    };
    tokio::join!(calling, ending);
    assert_eq!((gate.load().admitted, gate.load().waiting), (1, 0));
    second.end().await;
    assert_eq!(gate.load().admitted, 0);
}

async fn a_lost_sandbox_releases_its_permit(kind: Kind) {
    let gate = gate(1);
    let fixture = Fixture::gated(kind, &gate, "one").await;
    fixture.lose_sandbox().await;
    assert_eq!(fixture.sh("echo well").await, "well\n");
    assert_eq!((gate.load().admitted, gate.load().waiting), (1, 0));
    fixture.end().await;
    assert_eq!(gate.load().admitted, 0);
}

async fn a_sandbox_that_is_not_admitted_is_the_error_of_the_call(kind: Kind) {
    let gate = gate(1);
    let tenant = conjure_base::TenantId::new("two").unwrap();
    gate.set_share(&tenant, Some(Share { waiting: 0, ..Share::default() }));
    let (first, second) =
        (Fixture::gated(kind, &gate, "one").await, Fixture::gated(kind, &gate, "two").await);
    first.sh("true").await;
    let error = second.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Overloaded, "{error}");
    // The caller decides whether to follow the advice of the gate.
    assert!(error.is_retryable() && error.retry_after().is_some_and(|after| !after.is_zero()), "{error:?}");
    let advised = format!(": try again in {} ms", error.retry_after().unwrap().as_millis());
    assert!(error.to_string().ends_with(&advised), "{error}");
    let text = "the sandbox could not be started: the sandboxes of the tenant `two` are 0, and 0 more wait: try again in ";
    assert!(error.to_string().starts_with(text), "{error}");
    first.end().await;
    assert_eq!(second.sh("echo well").await, "well\n");
    second.end().await;
    // When no sandbox is ever available, a retry is useless.
    gate.set_share(&tenant, Some(Share { admitted: 0, ..Share::default() }));
    let third = Fixture::gated(kind, &gate, "two").await;
    let error = third.run("true").await.unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (SandboxErrorKind::Overloaded, None), "{error}");
    assert!(!error.is_retryable());
    third.end().await;
}

async fn a_sandbox_start_beyond_its_deadline_is_rejected_as_overload(kind: Kind) {
    let gate = gate(1);
    let first = Fixture::gated(kind, &gate, "one").await;
    first.sh("true").await;
    let mut short = ExecutorOptions::default();
    short.start_timeout = Duration::from_millis(200);
    let second = Fixture::gated_with(kind, &gate, "two", short).await;
    let error = second.run("true").await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Overloaded, "{error}");
    assert!(error.retry_after().is_some());
    assert_eq!(gate.load().waiting, 0);
    second.end().await;
    first.end().await;
}
