//! Storms of forks, and memory that runs out (S5): told as what they are, and a sandbox that they cost is replaced.

use conjure_sandbox::{Boundary, CommandEnd, Executor, Limits, SandboxErrorKind};
use futures_util::future;

use crate::bed::{Bed, options};

/// Forks until it may not, and then says so in the workspace.
const STORM: &str = "import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
    except OSError:
        open('refused', 'w').close()
        time.sleep(1000)
";

#[tokio::test]
async fn a_storm_of_forks_is_told_and_what_it_costs_is_replaced() {
    let limits = Limits::default().with_processes(64).unwrap();
    let bed = Bed::limited(limits).await;
    bed.executor.create_file("storm.py", STORM.as_bytes(), options()).await.unwrap();
    let refused = || bed.workspace.path().join("refused").exists();
    let cancelled = options();
    let storm = bed.executor.run(conjure_sandbox::Command::bash("python3 storm.py"), cancelled.clone());
    let ending = async {
        crate::bed::until("forks are refused", refused).await;
        cancelled.cancel.cancel();
    };
    let (outcome, ()) = future::join(storm, ending).await;
    let outcome = outcome.unwrap();
    assert!(outcome.limits_hit.processes, "{outcome:?}");
    assert_eq!(*bed.source.calls.borrow(), 1, "a sandbox that copes with it stays");
    // One in which the guest dies: all of the storm goes with it.
    std::fs::remove_file(bed.workspace.path().join("refused")).unwrap();
    let script = format!("(exec -a {} sleep 1000) & python3 storm.py", bed.mark());
    let killing = async {
        crate::bed::until("forks are refused", refused).await;
        bed.kill_guest();
    };
    let (lost, ()) = future::join(bed.run(&script), killing).await;
    assert_eq!(lost.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(bed.sh("ls").await, "refused\nstorm.py\n");
    assert_eq!(*bed.source.calls.borrow(), 2);
    bed.end().await;
}

#[tokio::test]
async fn memory_that_runs_out_is_told_and_the_session_goes_on() {
    let limits = Limits::default().with_memory(64 << 20).unwrap();
    let bed = Bed::limited(limits).await;
    bed.executor.warm(crate::bed::soon()).await.unwrap();
    if bed.executor.isolation().memory == Boundary::Open {
        return bed.end().await;
    }
    let outcome = bed.run("exec python3 -c \"b'x' * (1 << 30)\"").await.unwrap();
    assert_eq!(outcome.end, CommandEnd::OutOfMemory);
    assert_eq!(bed.sh("echo well").await, "well\n");
    bed.end().await;
}
