//! A run that is interrupted ends everything that it started, and says so by its exit code.

use rustix::process::{Pid, Signal, test_kill_process};

use crate::support::{Conjure, Running, eventually, script};

/// A run whose tool has started two sleeping processes, one of them in a session of its own, and their ids.
fn sleeping(workspace: &std::path::Path) -> (Running, Vec<Pid>) {
    let turns = r"
- content:
    - tool_use:
        name: bash_tool
        input:
          command: 'setsid sleep 1000 & echo $! > child; sleep 1000 & echo $! > second; mv second third; wait'
          description: Sleep
";
    let script = script(turns);
    let run = Conjure::new(["run", "--sandbox", "local", "--script"])
        .arg(script.path())
        .arg("--workspace")
        .arg(workspace)
        .arg("Go")
        .start();
    let read = |name: &str| {
        let text = std::fs::read_to_string(workspace.join(name)).unwrap_or_default();
        text.trim().parse().ok().and_then(Pid::from_raw)
    };
    eventually("the tool sleeps", || read("child").is_some() && read("third").is_some());
    let pids = [read("child").unwrap(), read("third").unwrap()].to_vec();
    // The script is read before the model speaks; it may go now.
    drop(script);
    (run, pids)
}

fn check(send: impl Fn(&Running), code: i32) {
    let workspace = tempfile::tempdir().unwrap();
    let (run, pids) = sleeping(workspace.path());
    for pid in &pids {
        test_kill_process(*pid).unwrap();
    }
    send(&run);
    run.wait().code(code).says("interrupted").does_not_say("panicked");
    for pid in pids {
        assert!(test_kill_process(pid).is_err(), "{pid:?} still runs after the end");
    }
}

#[test]
fn an_interrupt_ends_everything_and_is_code_130() {
    check(|run| run.signal(Signal::INT), 130);
}

#[test]
fn a_termination_ends_everything_and_is_code_143() {
    check(|run| run.signal(Signal::TERM), 143);
}

#[test]
fn an_interrupt_from_the_keyboard_reaches_the_whole_group_and_ends_in_good_order_too() {
    check(|run| run.signal_group(Signal::INT), 130);
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_still_leaves_no_process() {
    let workspace = tempfile::tempdir().unwrap();
    let (run, pids) = sleeping(workspace.path());
    run.signal(Signal::INT);
    run.eventually_says("interrupted");
    run.signal(Signal::TERM);
    run.wait().code(130).does_not_say("panicked");
    eventually("the guest has ended what it ran", || pids.iter().all(|pid| test_kill_process(*pid).is_err()));
}

#[test]
fn a_kill_of_the_host_leaves_no_process_either() {
    let workspace = tempfile::tempdir().unwrap();
    let (run, pids) = sleeping(workspace.path());
    run.signal(Signal::KILL);
    assert_eq!(run.wait().code, None);
    eventually("the guest has ended what it ran", || pids.iter().all(|pid| test_kill_process(*pid).is_err()));
}

#[test]
fn a_run_that_waits_for_input_can_be_interrupted() {
    let script = script("- content: x\n");
    let run = Conjure::new(["run", "--sandbox", "local", "--script"])
        .arg(script.path())
        .arg("Go")
        .with_open_input()
        .start();
    run.eventually_says("waiting for standard input");
    run.signal(Signal::INT);
    run.wait().code(130);
}

#[test]
fn a_run_whose_errors_nobody_reads_can_be_interrupted() {
    let script = script("- content: x\n");
    let run = Conjure::new(["run", "--sandbox", "local", "--script"])
        .arg(script.path())
        .arg("Go")
        .with_stuck_errors()
        .start();
    // Its signals are caught, and it waits in its first line.
    let status = || std::fs::read_to_string(format!("/proc/{}/status", run.pid().as_raw_nonzero())).unwrap();
    let caught = || {
        let mask =
            status().lines().find_map(|line| line.strip_prefix("SigCgt:\t").map(str::to_owned)).unwrap();
        let mask = u64::from_str_radix(&mask, 16).unwrap();
        [Signal::INT, Signal::TERM].iter().all(|signal| mask >> (signal.as_raw() - 1) & 1 == 1)
    };
    eventually("signals are caught", caught);
    run.signal(Signal::INT);
    run.signal(Signal::TERM);
    let finished = run.wait();
    assert!(matches!(finished.code, Some(130 | 143)), "{finished:?}");
}
