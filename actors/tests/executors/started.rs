//! Programs that live between the calls of a session's sandbox: paused with it between calls, and gone with it.

use std::time::Duration;

use conjure_actors::executors::ExecutorOptions;
use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{Command, Executor, Process, RunEvent, SandboxErrorKind};

use crate::bed::{Bed, Kind, options, until};
use crate::for_kinds;
use crate::processes::bearing;

for_kinds! {
    one_is_paused_between_its_calls_and_never_within_one,
    one_is_gone_with_a_sandbox_that_is_put_away,
    one_is_gone_with_a_sandbox_that_dies,
}

async fn treated(kind: Kind, pause_after: Option<Duration>, unused_after: Option<Duration>) -> Bed {
    let mut treated = ExecutorOptions::default();
    treated.pause_after = pause_after;
    treated.unused_after = unused_after;
    Bed::with(kind, treated).await
}

/// A program that bears the mark and answers each line of its input.
async fn echo(bed: &Bed) -> Box<dyn Process> {
    let script = "while read -r line; do echo \"got $line\"; done";
    bed.executor.start(Command::new(["bash", "-c", script, bed.mark()]), options()).await.unwrap()
}

async fn ask(process: &dyn Process) {
    let _call = process.begin_call(options()).await.unwrap();
    process.write(b"a\n".to_vec()).await;
    assert_eq!(process.next_event().await.unwrap(), RunEvent::Stdout("got a\n".into()));
}

fn stands_still(bed: &Bed) -> bool {
    let processes = bearing(bed.mark());
    !processes.is_empty() && processes.iter().all(|process| process.state == 'T')
}

async fn one_is_paused_between_its_calls_and_never_within_one(kind: Kind) {
    let bed = treated(kind, Some(Duration::from_millis(10)), None).await;
    let process = echo(&bed).await;
    for _ in 0..5 {
        ask(&*process).await;
        until("it is paused", || stands_still(&bed)).await;
    }
    let call = process.begin_call(options()).await.unwrap();
    for _ in 0..20 {
        assert!(!stands_still(&bed), "a call uses it");
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
    }
    drop(call);
    until("it is paused again", || stands_still(&bed)).await;
    drop(process);
    until("it is gone", || bearing(bed.mark()).is_empty()).await;
    assert_eq!(*bed.source.calls.borrow(), 1, "it was the same sandbox");
    bed.end().await;
}

#[track_caller]
fn assert_lost<T: std::fmt::Debug>(result: Result<T, conjure_sandbox::SandboxError>) {
    assert_eq!(result.unwrap_err().kind(), SandboxErrorKind::Lost);
}

/// The program is gone, and another one runs in another sandbox.
async fn assert_replaced(bed: &Bed, process: Box<dyn Process>) {
    assert_lost(process.next_event().await);
    assert_lost(process.begin_call(options()).await);
    process.write(b"a\n".to_vec()).await;
    drop(process);
    loop {
        let next = echo(bed).await;
        // On a machine that is busy, that sandbox may be put away before the call begins.
        let Ok(_call) = next.begin_call(options()).await else { continue };
        next.write(b"a\n".to_vec()).await;
        assert_eq!(next.next_event().await.unwrap(), RunEvent::Stdout("got a\n".into()));
        break;
    }
    assert!(*bed.source.calls.borrow() >= 2);
}

async fn one_is_gone_with_a_sandbox_that_is_put_away(kind: Kind) {
    let bed = treated(kind, None, Some(Duration::from_millis(200))).await;
    let process = echo(&bed).await;
    until("it is gone", || bearing(bed.mark()).is_empty()).await;
    assert_replaced(&bed, process).await;
    bed.end().await;
}

async fn one_is_gone_with_a_sandbox_that_dies(kind: Kind) {
    let bed = treated(kind, None, None).await;
    let process = echo(&bed).await;
    ask(&*process).await;
    bed.kill_guest();
    assert_replaced(&bed, process).await;
    bed.end().await;
}
