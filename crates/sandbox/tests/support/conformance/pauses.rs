//! Background processes are stopped while their sandbox is paused, and continue when it resumes. A paused sandbox can end.

use std::fs;
use std::future::pending;
use std::path::Path;
use std::process::Stdio;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, ExecutionContext, Executor, Sandbox, SandboxError, SandboxErrorKind,
};
use futures_util::{FutureExt, StreamExt, future};
use test_support::KillOnDrop;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Fixture, Kind, Process, Workspace, bash, bearing, descendants, is_alive, options, output_of, processes,
    rerun, sigkill, soon, test_parameters, until,
};

/// A sandbox in which something counts in the background, by processes that come and go.
async fn counting(kind: &dyn Kind) -> Fixture {
    let fixture = Fixture::of(kind).await;
    bash(&fixture, &script(fixture.mark())).await;
    until_counting(&fixture).await;
    fixture
}

/// Shell text that leaves a process running which counts in a file, and bears this mark.
fn script(mark: &str) -> String {
    let count = "i=0; while :; do i=$((i+1)); echo $i > count.new; mv count.new count; sleep 0.001; done";
    format!("setsid bash -c '{count}' {mark} > /dev/null 2>&1 &")
}

async fn count(fixture: &Fixture) -> u64 {
    let Ok(mut content) = fixture.sandbox.read("count", options()).await else { return 0 };
    let mut text = Vec::new();
    while let Some(piece) = content.next().await {
        text.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(text).unwrap().trim().parse().unwrap_or(0)
}

async fn until_counting(fixture: &Fixture) {
    let (before, deadline) = (count(fixture).await, soon(600));
    while count(fixture).await <= before {
        assert!(!SystemClock.remaining(deadline).is_zero(), "it does not count");
    }
}

/// The processes that count, as the machine sees them.
fn counters(mark: &str) -> Vec<Process> {
    let first = bearing(mark);
    let is_of = |process: &Process| first.iter().any(|one| [process.pid, process.parent].contains(&one.pid));
    processes().into_iter().filter(is_of).collect()
}

#[track_caller]
fn assert_all_paused(mark: &str) {
    let counters = counters(mark);
    let is_still = |process: &Process| matches!(process.state, 'T' | 'D' | 'Z');
    assert!(counters.iter().any(|process| process.state == 'T'), "{counters:?}");
    assert!(counters.iter().all(is_still), "{counters:?}");
}

async fn pause(fixture: &Fixture) {
    pause_sandbox(&fixture.sandbox).await;
    assert_all_paused(fixture.mark());
}

/// On a machine that is busy, what runs may come to rest later than the guest waits for it; then it continues as before.
pub(crate) async fn pause_sandbox(sandbox: &Sandbox) {
    for _ in 0..50 {
        match sandbox.pause(options()).await {
            Err(late) if late.kind() == SandboxErrorKind::TimedOut => {}
            paused => return paused.unwrap(),
        }
    }
    panic!("nothing comes to rest");
}

/// Waits until no marked process is in uninterruptible sleep (state `D`), for example in a rename.
pub(crate) async fn until_no_process_is_uninterruptible(mark: &str) {
    until("no process is uninterruptible", || counters(mark).iter().all(|process| process.state != 'D'))
        .await;
}

pub(crate) async fn background_processes_are_paused_and_resumed(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    for _ in 0..5 {
        pause(&fixture).await;
        until_no_process_is_uninterruptible(fixture.mark()).await;
        let before = count(&fixture).await;
        fixture.sandbox.create_file("file", b"also now", options()).await.unwrap();
        assert_eq!(count(&fixture).await, before);
        assert_all_paused(fixture.mark());
        fixture.sandbox.resume(options()).await.unwrap();
        until_counting(&fixture).await;
    }
    fixture.sandbox.resume(options()).await.unwrap();
    fixture.sandbox.cleanup().await;
    assert!(bearing(fixture.mark()).is_empty(), "{:?}", bearing(fixture.mark()));
}

pub(crate) async fn a_command_resumes_paused_processes(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    pause(&fixture).await;
    let waits =
        "read before < count; while read now < count; [ \"$now\" -le \"$before\" ]; do sleep 0.001; done";
    bash(&fixture, waits).await;
    until_counting(&fixture).await;
}

pub(crate) async fn a_sandbox_with_a_call_under_way_is_not_paused(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    let call =
        fixture.sandbox.run(Command::bash("touch ready; while [ ! -e go ]; do sleep 0.001; done"), options());
    let meanwhile = async {
        fixture.until_file_exists("ready").await;
        let refused = fixture.sandbox.pause(options()).await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::BadRequest, "{refused}");
        until_counting(&fixture).await;
        fixture.sandbox.create_file("go", b"", options()).await.unwrap();
    };
    let (outcome, ()) = future::join(call, meanwhile).await;
    output_of(&outcome.unwrap());
    pause(&fixture).await;
}

pub(crate) async fn a_pause_respects_the_deadline_of_its_call(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    let expired = CallOptions::until(SystemClock.deadline(std::time::Duration::ZERO));
    let cancelled = CallOptions { deadline: Deadline::NEVER, cancel: CancellationToken::new() };
    cancelled.cancel.cancel();
    let kind_of = |result: Result<(), SandboxError>| result.unwrap_err().kind();
    assert_eq!(kind_of(fixture.sandbox.pause(expired.clone()).await), SandboxErrorKind::TimedOut);
    assert_eq!(kind_of(fixture.sandbox.pause(cancelled.clone()).await), SandboxErrorKind::Cancelled);
    until_counting(&fixture).await;
    // One that is dropped was or was not; whoever resumes has it continue.
    for _ in 0..20 {
        assert!(fixture.sandbox.pause(options()).now_or_never().is_none());
        fixture.sandbox.resume(options()).await.unwrap();
        until_counting(&fixture).await;
    }
    pause(&fixture).await;
    assert_eq!(kind_of(fixture.sandbox.resume(expired).await), SandboxErrorKind::TimedOut);
    assert_eq!(kind_of(fixture.sandbox.resume(cancelled).await), SandboxErrorKind::Cancelled);
    assert_all_paused(fixture.mark());
    fixture.sandbox.resume(options()).await.unwrap();
    until_counting(&fixture).await;
}

pub(crate) async fn a_paused_sandbox_is_cleaned_up(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    pause(&fixture).await;
    fixture.sandbox.cleanup().await;
    // The call is awaited, so this holds at once.
    assert!(bearing(fixture.mark()).is_empty(), "{:?}", bearing(fixture.mark()));
    assert_eq!(fixture.sandbox.resume(options()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(fixture.sandbox.pause(options()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
}

pub(crate) async fn a_paused_sandbox_that_is_dropped_leaves_nothing(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    pause(&fixture).await;
    let Fixture { sandbox, workspace, .. } = fixture;
    drop(sandbox);
    let mark = workspace.path().to_str().unwrap();
    until("its processes are gone", || bearing(mark).is_empty()).await;
}

pub(crate) async fn a_killed_guest_of_a_paused_sandbox_is_noticed_and_leaves_nothing(kind: &dyn Kind) {
    let fixture = counting(kind).await;
    pause(&fixture).await;
    assert!(fixture.sandbox.wait_ended().now_or_never().is_none(), "it has not ended yet");
    sigkill(kind.guest(bearing(fixture.mark())[0].pid, std::process::id()));
    assert_eq!(fixture.sandbox.wait_ended().await.kind(), SandboxErrorKind::Lost);
    fixture.until_no_marked_process().await;
    fixture.sandbox.cleanup().await;
}

/// This test starts itself as a host of its own, and kills that when its sandbox is paused.
pub(crate) async fn a_killed_host_leaves_nothing_of_a_paused_sandbox(kind: &dyn Kind, test: &str) {
    if let Some(dir) = test_parameters() {
        let own_workspace = kind.workspace();
        let workspace = match &own_workspace {
            Workspace::Dir(_) => Path::new(&dir).join("workspace"),
            Workspace::Private(own_workspace) => own_workspace.path().to_owned(),
        };
        let sandbox = Fixture::open(kind, &ExecutionContext::new(workspace)).await.unwrap();
        output_of(&sandbox.run(Command::bash(&script(&dir)), options()).await.unwrap());
        pause_sandbox(&sandbox).await;
        fs::write(Path::new(&dir).join("paused"), "").unwrap();
        return pending().await;
    }
    let dir = tempfile::tempdir().unwrap();
    let temporary = dir.path().join("tmp");
    fs::create_dir(dir.path().join("workspace")).unwrap();
    fs::create_dir(&temporary).unwrap();
    let mark = dir.path().to_str().unwrap();
    let mut host = rerun(&[], test, mark);
    // A killed host cannot remove its directories: they lie in ours.
    let host = host.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    let mut host = KillOnDrop(host.spawn().unwrap());
    until("it is paused", || fs::exists(dir.path().join("paused")).unwrap()).await;
    assert_all_paused(mark);
    let mut of_host = descendants(host.0.id());
    let stopped = counters(mark);
    of_host.push(kind.guest(stopped[0].pid, host.0.id()));
    of_host.extend(stopped.iter().map(|process| process.pid));
    host.0.kill().unwrap();
    host.0.wait().unwrap();
    until("all of it is gone", || !of_host.iter().any(|pid| is_alive(*pid))).await;
    until("nothing bears its mark", || bearing(mark).is_empty()).await;
    assert_eq!(kind.leftovers_of(host.0.id()), [""; 0]);
}
