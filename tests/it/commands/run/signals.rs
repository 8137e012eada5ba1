//! An interrupted run ends everything that it started, and returns its exit code.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, test_kill_process};

use crate::support::{Conjure, Running, eventually, script};

/// A run whose tool has started two sleeping processes, one of them in a session of its own, and their ids.
fn sleeping(workspace: &Path) -> (Running, Vec<Pid>) {
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
fn a_keyboard_interrupt_of_the_process_group_ends_gracefully() {
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
fn a_kill_of_the_process_leaves_no_process_either() {
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
        .with_unread_stderr()
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

#[test]
fn a_signal_while_packing_leaves_nothing_behind() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL].into_iter().filter(handles_signal) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let (skill, output) = (root.join("big"), root.join("output"));
        std::fs::create_dir(&skill).unwrap();
        std::fs::create_dir(&output).unwrap();
        std::fs::write(skill.join("SKILL.md"), "---\nname: big\ndescription: Takes long\n---\n").unwrap();
        // Slow to compress: every three bytes have been there before, and what follows them is another each time.
        let mut state = 1_u32;
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"abcd"[(state >> 30) as usize]
        });
        std::fs::write(skill.join("data"), bytes.take(29_000_000).collect::<Vec<u8>>()).unwrap();
        // A fast machine may have packed it all before the signal arrives, or before it is heeded: then it is tried again.
        let is_caught = (0..50).any(|_| {
            let pack = Conjure::new(["skills", "pack"]).arg(&skill).arg("-o").arg(&output).start();
            // Its output file is open, with or without a name.
            let process = format!("/proc/{}", pack.pid().as_raw_nonzero());
            eventually("the package is being written, or was", || {
                let open = std::fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten();
                let is_open = open
                    .filter_map(|file| std::fs::read_link(file.path()).ok())
                    .any(|file| file.starts_with(&output));
                // One that has ended runs no program any more.
                is_open || std::fs::read_link(format!("{process}/exe")).is_err()
            });
            pack.signal(signal);
            let is_done = pack.wait().code == Some(0);
            let entries = std::fs::read_dir(&output).unwrap();
            let leftovers: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            if !is_done && !is_complete_package(&leftovers, &output.join("big.skill")) {
                assert!(leftovers.is_empty(), "something was left on disk: {leftovers:?}");
                return true;
            }
            std::fs::remove_dir_all(&output).unwrap();
            std::fs::create_dir(&output).unwrap();
            false
        });
        assert!(is_caught, "it always ended before the signal");
    }
}

/// True if only a complete package of this name was left.
fn is_complete_package(leftovers: &[PathBuf], package: &Path) -> bool {
    let check = || Conjure::new(["skills", "check", "--sandbox", "local"]).arg(package).finish();
    leftovers == [package] && check().code == Some(0)
}

/// Whether commands started here heed this signal: whoever runs the tests in the background of a shell ignores SIGINT for them
/// and for everything that they start.
fn handles_signal(signal: &Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    let is_heeded = ignored & (1 << (signal.as_raw() - 1)) == 0;
    if !is_heeded {
        test_support::not_applicable(&format!("{signal:?} is ignored by whoever started these tests"));
    }
    is_heeded
}
