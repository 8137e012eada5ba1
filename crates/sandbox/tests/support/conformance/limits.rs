//! What commands may use together, where the machine can enforce it.

use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{
    Boundary, Command, CommandEnd, ExecutionContext, Executor, Limits, RunEvent, SandboxErrorKind,
};
use futures_util::future;

use crate::support::{Fixture, Kind, options, output_of, soon, text};

/// Forks until the limit, reports that, and keeps running.
const STORM: &str = "import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
    except OSError:
        print('refused', flush=True)
        time.sleep(1000)
";

pub(crate) async fn a_fork_storm_is_reported_and_can_be_ended(kind: &dyn Kind) {
    let fixture = Fixture::limited(kind, Limits::default().with_processes(64).unwrap()).await;
    // It runs already, because there will be no process left that could look.
    let watching = "while [ ! -e refused ]; do :; done; echo refused";
    let watcher = fixture.sandbox.start(Command::bash(watching), options()).await.unwrap();
    let storm = STORM.replace("print('refused', flush=True)", "open('refused', 'w').close()");
    let options = options();
    let running = fixture.sandbox.run(Command::new(["python3", "-c", &storm]), options.clone());
    let cancelling = async {
        assert_eq!(watcher.next_event().await.unwrap(), RunEvent::Stdout("refused\n".into()));
        options.cancel.cancel();
    };
    let outcome = future::join(running, cancelling).await.0.unwrap();
    assert_eq!(outcome.end, CommandEnd::Cancelled);
    assert!(outcome.limits_hit.processes, "{outcome:?}");
    let after = fixture.bash("(echo well)").await.unwrap();
    assert_eq!((text(&after).as_str(), after.limits_hit.processes), ("well\n", false));
}

/// A process grows in the background of a call that is over.
pub(crate) async fn a_fork_storm_left_behind_does_not_keep_the_next_call_from_working(kind: &dyn Kind) {
    let fixture = Fixture::limited(kind, Limits::default().with_processes(64).unwrap()).await;
    fixture.put("storm.py", STORM).await;
    let script = ": > said; setsid python3 storm.py > said & while ! read -r line; do :; done < said";
    let outcome = fixture.bash(script).await.unwrap();
    assert!(outcome.limits_hit.processes && outcome.limits_hit.ended_leftovers, "{outcome:?}");
    // Its processes have ended, or are ending.
    let after = fixture.bash("echo well").await.unwrap();
    assert_eq!((text(&after).as_str(), after.end), ("well\n", CommandEnd::Exited(0)));
    // Without a process for it: there may be no room for one yet.
    let alone = "while set -- /proc/[0-9]*; [ $# -ge 32 ]; do :; done; echo alone";
    assert_eq!(text(&fixture.bash(alone).await.unwrap()), "alone\n");
}

/// It applies where memory is limited.
pub(crate) async fn out_of_memory_is_reported(kind: &dyn Kind) {
    let fixture = Fixture::limited(kind, Limits::default().with_memory(64 << 20).unwrap()).await;
    if fixture.sandbox.isolation().memory == Boundary::Open {
        return;
    }
    let greedy = ["python3", "-c", "b'x' * (1 << 30)"];
    let outcome = fixture.sandbox.run(Command::new(greedy), options()).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::OutOfMemory);
    // A child of the command, which continues.
    let outcome =
        fixture.bash("python3 -c \"b'x' * (1 << 30)\" > /dev/null 2>&1; echo went on").await.unwrap();
    assert_eq!((outcome.end, outcome.limits_hit.memory), (CommandEnd::Exited(0), true));
    // The kernel may kill the shim, too. Here the command does it, after memory ran out.
    let shim_too = "python3 -c \"b'x' * (1 << 30)\" > /dev/null 2>&1; kill -KILL $PPID; sleep 1000";
    assert_eq!(fixture.bash(shim_too).await.unwrap().end, CommandEnd::OutOfMemory);
    // And many at a time, each smaller than the guest, and each trying to be spared before it.
    let many = "for i in {1..40}; do (echo -500 > /proc/self/oom_score_adj; echo 0 > /proc/self/oom_score_adj; \
                head -c 8M /dev/zero | tail -c 8M > /dev/null) 2> /dev/null & done; wait";
    fixture.bash(many).await.unwrap();
    // Those whose shell was killed outlive the call, and may be killed in a later one.
    let deadline = soon(600);
    loop {
        let outcome = fixture.bash("echo well").await.unwrap();
        assert_eq!(text(&outcome), "well\n");
        if !outcome.limits_hit.memory {
            return;
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "memory runs out for ever");
    }
}

/// The minimum and maximum of each limit give a working sandbox or a rejection with a reason.
pub(crate) async fn the_least_and_the_most_of_each_limit_make_a_sandbox_that_works(kind: &dyn Kind) {
    let default = Limits::default();
    let extremes = [
        default.with_memory(8 << 20),
        default.with_memory(64 << 40),
        default.with_cpus(0.05),
        default.with_cpus(4096.0),
        default.with_processes(8),
        default.with_processes(1_000_000),
        default.with_open_files(32),
        default.with_open_files(1_000_000),
        default.with_disk(64 << 10),
        default.with_disk(64 << 40),
        default.with_inodes(16),
        default.with_inodes(1_000_000_000),
        default.with_tmp(64 << 10),
        default.with_tmp(64 << 40),
    ];
    for limits in extremes.map(Result::unwrap) {
        let workspace = kind.workspace();
        let context = ExecutionContext { limits, ..ExecutionContext::new(workspace.path()) };
        match Fixture::open(kind, &context).await {
            Ok(sandbox) => {
                let outcome = sandbox.run(Command::bash("echo well > x && cat x"), options()).await.unwrap();
                assert_eq!(output_of(&outcome), "well\n", "{limits:?}");
                sandbox.cleanup().await;
            }
            Err(error) => assert_eq!(error.kind(), SandboxErrorKind::Unavailable, "{limits:?}: {error}"),
        }
    }
}
