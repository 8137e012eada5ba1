//! Fork storms and exhausted memory are reported as what they are. A sandbox that is lost to them is replaced.

use conjure_sandbox::{Boundary, CommandEnd, Executor, Limits, SandboxErrorKind};
use futures_util::future;

use crate::fixture::{Fixture, options};

/// Forks until the limit, and then reports that in the workspace.
const STORM: &str = "import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
    except OSError:
        open('refused', 'w').close()
        time.sleep(1000)
";

#[tokio::test]
async fn a_fork_storm_is_reported_and_the_lost_sandbox_replaced() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let limits = Limits::default().with_processes(64).unwrap();
    let fixture = Fixture::limited(limits).await;
    fixture.executor.create_file("storm.py", STORM.as_bytes(), options()).await.unwrap();
    let refused = || fixture.workspace.path().join("refused").exists();
    let cancelled = options();
    let storm = fixture.executor.run(conjure_sandbox::Command::bash("python3 storm.py"), cancelled.clone());
    let ending = async {
        crate::fixture::until("forks are refused", refused).await;
        cancelled.cancel.cancel();
    };
    let (outcome, ()) = future::join(storm, ending).await;
    let outcome = outcome.unwrap();
    assert!(outcome.limits_hit.processes, "{outcome:?}");
    assert_eq!(*fixture.source.calls.borrow(), 1, "a sandbox that copes with it stays");
    // One in which the guest dies: all of the storm goes with it.
    std::fs::remove_file(fixture.workspace.path().join("refused")).unwrap();
    let script = format!("(exec -a {} sleep 1000) & python3 storm.py", fixture.mark());
    let killing = async {
        crate::fixture::until("forks are refused", refused).await;
        fixture.kill_guest();
    };
    let (lost, ()) = future::join(fixture.run(&script), killing).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(fixture.sh("ls").await, "refused\nstorm.py\n");
    assert_eq!(*fixture.source.calls.borrow(), 2);
    fixture.end().await;
}

#[tokio::test]
async fn out_of_memory_is_reported_and_the_session_continues() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let limits = Limits::default().with_memory(64 << 20).unwrap();
    let fixture = Fixture::limited(limits).await;
    fixture.executor.warm(crate::fixture::soon()).await.unwrap();
    if fixture.executor.isolation().memory == Boundary::Open {
        return fixture.end().await;
    }
    let outcome = fixture.run("exec python3 -c \"b'x' * (1 << 30)\"").await.unwrap();
    assert_eq!(outcome.end, CommandEnd::OutOfMemory);
    assert_eq!(fixture.sh("echo well").await, "well\n");
    fixture.end().await;
}
