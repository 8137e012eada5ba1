//! How calls in a jail end, and what is left of them: nothing (S1 to S6).

#![expect(clippy::unwrap_used, reason = "helpers of a test fail by panic")]

mod support;

use conjure_sandbox::{
    Boundary, CallOptions, Command, CommandEnd, CommandOutcome, Executor, Limits, RunEvent, SandboxErrorKind,
};
use futures_util::{StreamExt, future};
use support::{Bed, bearing, guest_above, jail_bed, jail_bed_with, kill_nine, options, soon, text, until};

fn limited(limits: Limits) -> impl FnOnce(&mut conjure_sandbox::ExecutionContext) {
    move |context| context.limits = limits
}

/// Shell text that leaves the session and the parents, three times.
fn scattered(bed: &Bed) -> String {
    let sleeper = bed.sleeper();
    format!(
        "setsid bash -c '{sleeper}' & (setsid bash -c '({sleeper}) & exit') & nohup bash -c '{sleeper}' & wait; sleep 1000"
    )
}

fn sleepers(bed: &Bed) -> usize {
    let name = format!("{} 1000", bed.mark());
    bearing(bed.mark()).iter().filter(|process| process.arguments.trim() == name).count()
}

/// S1.
#[tokio::test]
async fn a_timeout_and_a_cancellation_end_every_descendant() {
    let bed = jail_bed().await;
    let script = scattered(&bed);
    let calling = bed.sandbox.run(Command::bash(&script), CallOptions::until(soon(3)));
    let (outcome, ()) = future::join(calling, until("all three run", || sleepers(&bed) == 3)).await;
    assert_eq!(outcome.unwrap().end, CommandEnd::TimedOut);
    bed.until_nothing_bears_the_mark().await;

    let options = options();
    let cancelling = async {
        until("all three run", || sleepers(&bed) == 3).await;
        options.cancel.cancel();
    };
    let calling = bed.sandbox.run(Command::bash(&script), options.clone());
    let (outcome, ()) = future::join(calling, cancelling).await;
    assert_eq!(outcome.unwrap().end, CommandEnd::Cancelled);
    bed.until_nothing_bears_the_mark().await;
}

/// S2: it would be a timeout if the child's hold on the output were waited for.
#[tokio::test]
async fn a_background_child_that_keeps_the_output_does_not_delay_the_result() {
    let bed = jail_bed().await;
    let outcome = bed.bash(&format!("(bash -c '{}') & echo done", bed.sleeper())).await.unwrap();
    assert_eq!((outcome.end, text(&outcome).as_str()), (CommandEnd::Exited(0), "done\n"));
    bed.sandbox.cleanup().await;
    bed.until_nothing_bears_the_mark().await;
}

/// S3: whatever of it is killed, all of it is gone, and the next call says so.
#[tokio::test]
async fn a_jail_whose_guest_is_killed_leaves_nothing() {
    for is_outer in [true, false] {
        let bed = jail_bed().await;
        let script = scattered(&bed);
        let calling = bed.sandbox.run(Command::bash(&script), options());
        let killing = async {
            until("all three run", || sleepers(&bed) == 3).await;
            let outer = guest_above(bearing(bed.mark()).first().unwrap().pid);
            let inner = support::processes().into_iter().find(|process| process.parent == outer).unwrap().pid;
            kill_nine(if is_outer { outer } else { inner });
        };
        let (outcome, ()) = future::join(calling, killing).await;
        assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
        bed.until_nothing_bears_the_mark().await;
        assert_eq!(bed.bash("true").await.unwrap_err().kind(), SandboxErrorKind::Lost);
    }
}

/// S4.
#[tokio::test]
async fn zombies_do_not_fill_the_limit_of_processes() {
    let bed = jail_bed_with(limited(Limits::default().with_processes(32).unwrap())).await;
    // Three times as many as there may be at a time, each an orphan.
    for _ in 0..4 {
        let outcome = bed.bash("for i in {1..24}; do (sh -c 'exit 0' &); done").await.unwrap();
        assert_eq!((outcome.end, text(&outcome).as_str()), (CommandEnd::Exited(0), ""));
    }
    let zombies = "sleep 0; grep -l '^State:.Z' /proc/[0-9]*/status 2> /dev/null | wc -l";
    let mut seen = String::new();
    for _ in 0..100 {
        seen = text(&bed.bash(zombies).await.unwrap());
        if seen == "0\n" {
            break;
        }
    }
    assert_eq!(seen, "0\n");
}

/// Forks until it may not, says so, and stays.
const STORM: &str = "import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
    except OSError:
        print('refused', flush=True)
        time.sleep(1000)
";

async fn storm(bed: &Bed, program: &[&str]) -> CommandOutcome {
    let options = options();
    let mut events =
        bed.sandbox.run_streamed(Command::new(program.iter().copied()), options.clone()).unwrap();
    let mut ended = None;
    while let Some(event) = events.next().await {
        match event.unwrap() {
            RunEvent::Ended(outcome) => ended = Some(outcome),
            _ => options.cancel.cancel(),
        }
    }
    ended.unwrap()
}

/// S5.
#[tokio::test]
async fn a_fork_storm_is_reported_as_what_it_is_and_can_be_ended() {
    let bed = jail_bed_with(limited(Limits::default().with_processes(64).unwrap())).await;
    let outcome = storm(&bed, &["/usr/bin/python3", "-c", STORM]).await;
    assert_eq!(outcome.end, CommandEnd::Cancelled);
    assert!(outcome.reached.processes, "{outcome:?}");
    let after = bed.bash("(echo well)").await.unwrap();
    assert_eq!((text(&after).as_str(), after.reached.processes), ("well\n", false));
}

/// S5: one that grows in the background of a call that is over.
#[tokio::test]
async fn a_fork_storm_left_behind_does_not_keep_the_next_call_from_working() {
    let bed = jail_bed_with(limited(Limits::default().with_processes(64).unwrap())).await;
    std::fs::write(bed.path("storm.py"), STORM).unwrap();
    let script =
        ": > said; setsid /usr/bin/python3 storm.py > said & while ! read -r line; do :; done < said";
    let outcome = bed.bash(script).await.unwrap();
    assert!(outcome.reached.processes && outcome.reached.made_room, "{outcome:?}");
    // Its processes are gone, or are about to.
    let after = bed.bash("echo well").await.unwrap();
    assert_eq!((text(&after).as_str(), after.end), ("well\n", CommandEnd::Exited(0)));
    let alone = "for i in {1..400}; do (:) 2> /dev/null && break; done; ls -d /proc/[0-9]* | wc -l";
    let left = text(&bed.bash(alone).await.unwrap());
    assert!(left.trim().parse::<u32>().unwrap() < 32, "{left}");
}

/// S5: where memory is limited.
#[tokio::test]
async fn what_runs_out_of_memory_is_reported_as_that() {
    let bed = jail_bed_with(limited(Limits::default().with_memory(64 << 20).unwrap())).await;
    if bed.sandbox.isolation().memory == Boundary::Open {
        return;
    }
    let hog = ["/usr/bin/python3", "-c", "b'x' * (1 << 30)"];
    let outcome = bed.sandbox.run(Command::new(hog), options()).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::OutOfMemory);
    // A child of the command, which goes on.
    let outcome =
        bed.bash("/usr/bin/python3 -c \"b'x' * (1 << 30)\" > /dev/null 2>&1; echo went on").await.unwrap();
    assert_eq!((outcome.end, outcome.reached.memory), (CommandEnd::Exited(0), true));
    // And many at a time, each smaller than the guest.
    let many = "for i in {1..40}; do (head -c 8M /dev/zero | tail -c 8M > /dev/null) & done; wait";
    bed.bash(many).await.unwrap();
    let outcome = bed.bash("echo well").await.unwrap();
    assert_eq!((text(&outcome).as_str(), outcome.reached.memory), ("well\n", false));
}

/// S6, a part of what is shown for `local`: the guest is the same.
#[tokio::test]
async fn much_output_is_cut_and_counted_exactly() {
    let bed = jail_bed_with(limited(Limits::default().with_memory(64 << 20).unwrap())).await;
    let total = 512 * 1024 * 1024_u64;
    let mut command = Command::bash(&format!("echo begin; head -c {} /dev/zero; echo end", total - 10));
    command.spill = 1024 * 1024;
    let outcome = bed.sandbox.run(command, options()).await.unwrap();
    assert_eq!((outcome.end, outcome.stdout.total), (CommandEnd::Exited(0), total));
    assert!(outcome.stdout.head.starts_with(b"begin\n\0") && outcome.stdout.tail.ends_with(b"\0end\n"));
    assert_eq!(outcome.stdout.spilled, 1 << 20);
    let path = outcome.stdout.spill_path.unwrap();
    assert_eq!(
        text(&bed.bash(&format!("head -n 1 {path}; stat -c %s {path}")).await.unwrap()),
        "begin\n1048576\n"
    );
}
