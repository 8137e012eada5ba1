//! Programs that live between the calls of a session's sandbox: paused with it between calls, and gone with it.

use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{Command, Executor, Process, RunEvent, SandboxErrorKind};

use crate::fixture::{Fixture, Kind, options, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    a_sandbox_is_paused_between_calls_and_never_within_one,
    one_is_gone_with_a_sandbox_that_is_put_away,
    content_is_lost_with_a_crashed_sandbox,
}

/// A marked program that answers each line of its input.
async fn echo(fixture: &Fixture) -> Box<dyn Process> {
    let script = "while read -r line; do echo \"got $line\"; done";
    fixture.executor.start(Command::new(["bash", "-c", script, fixture.mark()]), options()).await.unwrap()
}

async fn ask(process: &dyn Process) {
    let _call = process.begin_call(options()).await.unwrap();
    process.write(b"a\n".to_vec()).await;
    assert_eq!(process.next_event().await.unwrap(), RunEvent::Stdout("got a\n".into()));
}

async fn a_sandbox_is_paused_between_calls_and_never_within_one(kind: Kind) {
    let fixture = Fixture::idling(kind, Some(Duration::from_millis(10)), None).await;
    let process = echo(&fixture).await;
    for _ in 0..5 {
        ask(&*process).await;
        until("it is paused", || fixture.is_paused()).await;
    }
    let call = process.begin_call(options()).await.unwrap();
    for _ in 0..20 {
        assert!(!fixture.is_paused(), "a call uses it");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
    drop(call);
    until("it is paused again", || fixture.is_paused()).await;
    drop(process);
    until("it is gone", || bearing(fixture.mark()).is_empty()).await;
    assert_eq!(*fixture.source.calls.borrow(), 1, "it was the same sandbox");
    fixture.end().await;
}

#[track_caller]
fn assert_lost<T: std::fmt::Debug>(result: Result<T, conjure_sandbox::SandboxError>) {
    assert_eq!(result.unwrap_err().kind(), SandboxErrorKind::Lost);
}

/// The program has ended, and another one runs in another sandbox.
async fn assert_replaced(fixture: &Fixture, process: Box<dyn Process>) {
    assert_lost(process.next_event().await);
    assert_lost(process.begin_call(options()).await);
    process.write(b"a\n".to_vec()).await;
    drop(process);
    loop {
        let next = echo(fixture).await;
        // On a machine that is busy, that sandbox may be stopped before the call begins.
        let Ok(_call) = next.begin_call(options()).await else { continue };
        next.write(b"a\n".to_vec()).await;
        assert_eq!(next.next_event().await.unwrap(), RunEvent::Stdout("got a\n".into()));
        break;
    }
    assert!(*fixture.source.calls.borrow() >= 2);
}

async fn one_is_gone_with_a_sandbox_that_is_put_away(kind: Kind) {
    let fixture = Fixture::idling(kind, None, Some(Duration::from_millis(200))).await;
    let process = echo(&fixture).await;
    until("it is gone", || bearing(fixture.mark()).is_empty()).await;
    assert_replaced(&fixture, process).await;
    fixture.end().await;
}

async fn content_is_lost_with_a_crashed_sandbox(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    let process = echo(&fixture).await;
    ask(&*process).await;
    fixture.kill_guest();
    assert_replaced(&fixture, process).await;
    fixture.end().await;
}
