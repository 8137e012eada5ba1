//! How calls and sandboxes end. Nothing of them is left.

use std::fs;
use std::future::Future;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, ExecutionContext, Executor, Limits, SandboxErrorKind, View,
};
use futures_util::{FutureExt, future};
use test_support::KillOnDrop;

use crate::support::{
    Fixture, Kind, Workspace, bash, bash_in, bearing, descendants, is_alive, options, output_of, rerun,
    sigkill, soon, test_parameters, text, until, zombies_below,
};

pub(crate) async fn a_timeout_ends_every_descendant(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = fixture.start_background_processes();
    // A loaded machine may take longer to start them than a short timeout lasts.
    for seconds in [2, 10, 50] {
        let calling = fixture.sandbox.run(Command::bash(&script), CallOptions::until(soon(seconds)));
        let mut is_running = false;
        let looking = async {
            while !is_running {
                is_running = fixture.sleepers() == 3;
                SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
            }
            future::pending().await
        };
        let outcome = tokio::select! {
            outcome = calling => outcome.unwrap(),
            () = looking => unreachable!("it only looks"),
        };
        assert_eq!(outcome.end, CommandEnd::TimedOut);
        fixture.until_no_marked_process().await;
        if is_running {
            return;
        }
    }
    panic!("the three never ran");
}

pub(crate) async fn a_cancellation_ends_every_descendant(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let options = options();
    let cancel = options.cancel.clone();
    let script = format!("echo begun; {}", fixture.start_background_processes());
    let calling = fixture.sandbox.run(Command::bash(&script), options);
    let cancelling = async {
        fixture.until_sleeping(3).await;
        cancel.cancel();
    };
    let (outcome, ()) = future::join(calling, cancelling).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.end, CommandEnd::Cancelled);
    assert!(text(&outcome).starts_with("begun\n"), "{outcome:?}");
    fixture.until_no_marked_process().await;
    assert_eq!(bash(&fixture, "echo well").await, "well\n");
}

/// The guest kills a supervisor that cannot end itself, before the host loses its patience with the guest.
pub(crate) async fn a_command_that_keeps_stopping_its_supervisor_does_not_cost_the_sandbox(kind: &dyn Kind) {
    let script = "for i in 1 2 3 4; do setsid bash -c \"while :; do kill -STOP $PPID; done\" & done; wait";
    // A machine that stalls may hold up a guest for longer than that patience, but not every time.
    let deadline = soon(600);
    while !SystemClock.remaining(deadline).is_zero() {
        let workspace = kind.workspace();
        let context = ExecutionContext::new(workspace.path());
        let sandbox = Fixture::open_by(Arc::new(SystemClock), kind, &context).await.unwrap();
        let outcome = sandbox.run(Command::bash(script), CallOptions::until(soon(1))).await;
        let outcome = match outcome {
            Err(lost) if lost.kind() == SandboxErrorKind::Lost => continue,
            outcome => outcome.unwrap(),
        };
        assert_eq!(outcome.end, CommandEnd::TimedOut);
        return assert_eq!(bash_in(&sandbox, "echo alive").await, "alive\n");
    }
    panic!("the host always loses its patience first");
}

/// It would be a timeout if the child's hold on the output were waited for.
pub(crate) async fn a_background_child_that_keeps_the_output_does_not_delay_the_result(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let outcome = fixture.bash(&format!("(bash -c '{}') & echo done", fixture.sleeper())).await.unwrap();
    assert_eq!((outcome.end, text(&outcome).as_str()), (CommandEnd::Exited(0), "done\n"));
    fixture.sandbox.cleanup().await;
    fixture.until_no_marked_process().await;
}

pub(crate) async fn a_run_that_is_dropped_at_any_poll_leaves_no_process(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    for polls in 0..10 {
        let script = fixture.sleeper();
        let mut run = fixture.sandbox.run(Command::bash(&script), options());
        for _ in 0..polls {
            assert!(poll_once(&mut run).is_pending());
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(1))).await;
        }
        drop(run);
        fixture.until_no_marked_process().await;
    }
    // One that completes, dropped before each of its polls until it does.
    for polls in 0.. {
        let script = format!("echo; exec -a {} true", fixture.mark());
        let mut run = fixture.sandbox.run(Command::bash(&script), options());
        let mut is_done = false;
        for _ in 0..polls {
            is_done = poll_when_woken(&mut run).await.is_ready();
            if is_done {
                break;
            }
        }
        drop(run);
        fixture.until_no_marked_process().await;
        if is_done {
            break;
        }
    }
    assert_eq!(text(&fixture.bash("echo still here").await.unwrap()), "still here\n");
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once, and when that is not the end, waits until another poll is due.
async fn poll_when_woken<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let mut result = Poll::Pending;
    let mut is_polled = false;
    future::poll_fn(|cx| {
        if is_polled {
            return Poll::Ready(());
        }
        is_polled = true;
        result = std::pin::Pin::new(&mut *future).poll(cx);
        if result.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
}

/// The guest is killed.
pub(crate) async fn a_killed_guest_loses_the_call_and_all_later_ones_and_leaves_nothing(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = fixture.start_background_processes();
    let calling = fixture.sandbox.run(Command::bash(&script), options());
    let killing = async {
        fixture.until_sleeping(3).await;
        assert!(fixture.sandbox.wait_ended().now_or_never().is_none(), "it has not ended yet");
        sigkill(kind.guest(fixture.sleeper_pid(), std::process::id()));
        fixture.sandbox.wait_ended().await
    };
    let (outcome, reason) = future::join(calling, killing).await;
    assert_eq!(outcome.unwrap_err(), reason);
    assert_eq!(reason.kind(), SandboxErrorKind::Lost);
    assert_eq!(
        fixture.sandbox.wait_ended().now_or_never(),
        Some(reason),
        "it is told to whoever asks later, too"
    );
    assert_eq!(fixture.bash("true").await.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(
        fixture.sandbox.view("x", None, 1, options()).await.unwrap_err().kind(),
        SandboxErrorKind::Lost
    );
    assert!(fixture.sandbox.failure().is_some_and(|failure| failure.is_retryable()));
    fixture.until_no_marked_process().await;
    fixture.sandbox.cleanup().await;
    // A new sandbox for the same workspace works.
    let next = Fixture::open(kind, &ExecutionContext::new(fixture.workspace.path())).await.unwrap();
    assert_eq!(output_of(&next.run(Command::bash("echo well"), options()).await.unwrap()), "well\n");
    next.cleanup().await;
}

/// The host is killed. This test starts itself as a host of its own, and kills that in a call.
pub(crate) async fn a_killed_host_leaves_nothing(kind: &dyn Kind, test: &str) {
    if let Some(dir) = test_parameters() {
        let own_workspace = kind.workspace();
        let context = match &own_workspace {
            Workspace::Dir(_) => ExecutionContext::new(Path::new(&dir).join("workspace")),
            Workspace::Private(own_workspace) => ExecutionContext::new(own_workspace.path()),
        };
        let sandbox = Fixture::open(kind, &context).await.unwrap();
        let script = format!("echo kept > file; setsid bash -c 'exec -a {dir} sleep 1000' & wait");
        panic!("it ended before its host: {:?}", sandbox.run(Command::bash(&script), options()).await);
    }
    let dir = tempfile::tempdir().unwrap();
    let (workspace, temporary) = (dir.path().join("workspace"), dir.path().join("tmp"));
    fs::create_dir(&workspace).unwrap();
    fs::create_dir(&temporary).unwrap();
    let mark = dir.path().to_str().unwrap();
    let mut host = rerun(&[], test, mark);
    // A killed host cannot remove its directories: they lie in ours.
    let host = host.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    let mut host = KillOnDrop(host.spawn().unwrap());
    let name = format!("{mark} 1000");
    let sleeping = || bearing(mark).into_iter().find(|process| process.arguments.trim() == name);
    until("its command runs", || sleeping().is_some()).await;
    let sleeper = sleeping().unwrap().pid;
    let mut of_host = descendants(host.0.id());
    of_host.extend([sleeper, kind.guest(sleeper, host.0.id())]);
    host.0.kill().unwrap();
    host.0.wait().unwrap();
    until("all of it is gone", || !of_host.iter().any(|pid| is_alive(*pid))).await;
    until("nothing bears its mark", || bearing(mark).is_empty()).await;
    // The next host continues in the same workspace, and finds nothing else.
    let own_workspace = kind.workspace();
    let (workspace, expected) = match &own_workspace {
        Workspace::Dir(_) => (workspace.as_path(), "kept\n"),
        // Of one that was not brought back, nothing is there.
        Workspace::Private(own_workspace) => (own_workspace.path(), ""),
    };
    let next = Fixture::open(kind, &ExecutionContext::new(workspace)).await.unwrap();
    assert_eq!(
        output_of(&next.run(Command::bash("if [ -e file ]; then cat file; fi"), options()).await.unwrap()),
        expected
    );
    assert_eq!(kind.leftovers_of(host.0.id()), [""; 0]);
    next.cleanup().await;
}

pub(crate) async fn orphans_do_not_stay_as_zombies(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let running = fixture.sandbox.run(Command::bash(&format!("bash -c '{}'", fixture.sleeper())), options());
    let looking = async {
        fixture.until_sleeping(1).await;
        let guest = kind.guest(fixture.sleeper_pid(), std::process::id());
        for _ in 0..5 {
            let outcome = fixture.bash("for i in $(seq 40); do (true & true &); done").await.unwrap();
            assert_eq!(outcome.end, CommandEnd::Exited(0));
        }
        until("the zombies are reaped", || zombies_below(guest) == 0).await;
    };
    tokio::select! {
        outcome = running => panic!("{outcome:?}"),
        () = looking => {}
    }
}

pub(crate) async fn zombies_do_not_fill_the_limit_of_processes(kind: &dyn Kind) {
    let fixture = Fixture::limited(kind, Limits::default().with_processes(32).unwrap()).await;
    // Three times as many as there may be at a time, each an orphan.
    for _ in 0..4 {
        // A shell that meets the limit for a moment says so, and tries again.
        let script = "for i in {1..24}; do (sh -c 'exit 0' &); done 2> /dev/null";
        assert_eq!(fixture.bash(script).await.unwrap().end, CommandEnd::Exited(0));
    }
    let zombies = "sleep 0; grep -l '^State:.Z' /proc/[0-9]*/status 2> /dev/null | wc -l";
    let mut output = String::new();
    for _ in 0..100 {
        output = text(&fixture.bash(zombies).await.unwrap());
        if output == "0\n" {
            break;
        }
    }
    assert_eq!(output, "0\n");
}

pub(crate) async fn cleanup_ends_everything_and_removes_what_was_spilled(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let long = fixture.bash("head -c 300000 /dev/zero | tr '\\0' x; echo end").await.unwrap();
    let spill = long.stdout.spill_path.clone().expect("it was spilled");
    assert_eq!((long.stdout.total, long.stdout.spilled), (300_004, 300_004));
    let view = fixture.sandbox.view(&spill, None, 10, options()).await.unwrap();
    assert!(matches!(view, View::Text { ref text, size: 300_004, .. } if text == "xxxxxxxxxx"), "{view:?}");
    let refused = fixture.sandbox.create_file(&spill, b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);

    let script = format!("(setsid bash -c '{}' > /dev/null 2>&1 &); sleep 1000", fixture.sleeper());
    let calling = fixture.sandbox.run(Command::bash(&script), options());
    let cleaning = async {
        fixture.until_sleeping(1).await;
        fixture.sandbox.cleanup().await;
        // The call is awaited, so this holds at once.
        assert!(bearing(fixture.mark()).is_empty(), "{:?}", bearing(fixture.mark()));
    };
    let (outcome, ()) = future::join(calling, cleaning).await;
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
}

pub(crate) async fn dropping_the_sandbox_ends_everything(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = format!("(setsid bash -c '{}' > /dev/null 2>&1 &)", fixture.sleeper());
    fixture.bash(&script).await.unwrap();
    let Fixture { sandbox, workspace, .. } = fixture;
    drop(sandbox);
    let mark = workspace.path().to_str().unwrap();
    until("its processes are gone", || bearing(mark).is_empty()).await;
}
