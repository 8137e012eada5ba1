//! The process above a program: used again when nothing was left below it, and nothing of one program reaches the next.

use std::time::Duration;

use conjure_guest::protocol::{ErrorCode, ExecEnd, ExecRequest, FrameKind, ProcessLimits, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{Guest, PLENTY, bash, exec, exec_request, now, wait_until};

/// The process above the program.
fn shim_of(guest: &mut Guest) -> String {
    guest.bash("echo $PPID").text()
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a number")).expect("a process")
}

/// The state of a process, as `/proc` tells it; `None` when it is gone.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn an_idle_shim_serves_the_next_program() {
    let mut guest = Guest::start();
    let first = shim_of(&mut guest);
    assert_eq!(shim_of(&mut guest), first);
    // Also after programs that failed, could not start, or wanted what others do not.
    assert_eq!(guest.bash("exit 7").end(), ExecEnd::Exited(7));
    assert_eq!(guest.bash("kill -KILL $$").end(), ExecEnd::Signaled(9));
    let error = guest.call(exec(&["/no/such/program"])).result.expect_err("refused");
    assert_eq!(error.code, ErrorCode::NotFound);
    let merged =
        ExecRequest { merge_stderr: true, ..exec_request(&["bash", "-c", "echo a >&2; echo $PPID"]) };
    assert_eq!(guest.call(Request::Exec(merged)).text(), format!("a\n{first}"));
    assert_eq!(guest.call(exec(&["ls", "/proc/self/fd"])).text(), "0\n1\n2\n3\n");
    assert!(guest.close().success());
    wait_until("it is gone", || state(pid(&first)).is_none());
}

#[test]
fn no_state_of_a_program_reaches_the_next() {
    let mut guest = Guest::start();
    let look = "pwd; umask; ulimit -a; cat /proc/self/oom_score_adj; env | sort; ls /proc/self/fd; \
                grep -E '^(Sig[BIC]|NoNew|Seccomp|Groups)' /proc/self/status";
    let before = guest.bash(look).text();
    let limits = ProcessLimits { file_bytes: Some(1000), open_files: Some(64), ..ProcessLimits::default() };
    let mut changed = exec_request(&[
        "bash",
        "-c",
        "umask 0; ulimit -n 20; trap '' TERM HUP; cd /; export B=2; exec 7</dev/null",
    ]);
    changed.env.insert("A".to_owned(), "1".to_owned());
    changed.cwd = Some("/tmp".to_owned());
    changed.limits = limits;
    assert_eq!(guest.call(Request::Exec(changed)).end(), ExecEnd::Exited(0));
    assert_eq!(guest.bash(look).text(), before);
}

#[test]
fn a_shim_stays_with_leftover_processes() {
    let mut guest = Guest::start();
    let first = shim_of(&mut guest);
    let left = guest.bash("sleep 1000 > /dev/null 2>&1 & echo $PPID");
    assert_eq!(left.text(), first);
    let second = shim_of(&mut guest);
    assert_ne!(second, first, "what runs in the background keeps its own");
    assert_eq!(shim_of(&mut guest), second);
    assert!(!guest.leftovers().is_empty());
    assert!(guest.close().success());
    guest.assert_nothing_left();
}

#[test]
fn concurrent_programs_have_their_own_shims() {
    let mut guest = Guest::start();
    shim_of(&mut guest);
    let wait = "echo $PPID; touch at$1; while [ ! -e go ]; do sleep 0.01; done";
    let channels = [1, 2, 3].map(|n| guest.open(bash(&wait.replace("$1", &n.to_string())), PLENTY, None));
    let all = [1, 2, 3].map(|n| guest.work(format!("at{n}")));
    wait_until("all run", || all.iter().all(|file| file.exists()));
    std::fs::write(guest.work("go"), "").expect("written");
    let mut shims = channels.map(|channel| guest.finish(channel).text());
    shims.sort();
    assert!(shims[0] != shims[1] && shims[1] != shims[2], "{shims:?}");
    // One of them is kept, the others end.
    let kept = shim_of(&mut guest);
    assert!(shims.contains(&kept), "{kept} {shims:?}");
    wait_until("the others are gone", || {
        shims.iter().filter(|shim| **shim != kept).all(|shim| state(pid(shim)).is_none())
    });
}

#[test]
fn an_idle_shim_that_was_killed_is_replaced() {
    let mut guest = Guest::start();
    for signal in [Signal::KILL, Signal::TERM] {
        let shim = shim_of(&mut guest);
        kill_process(pid(&shim), signal).expect("it is there");
        wait_until("it is gone", || state(pid(&shim)).is_none());
        assert_ne!(shim_of(&mut guest), shim);
    }
}

#[test]
fn an_idle_shim_that_was_stopped_is_resumed() {
    let mut guest = Guest::start();
    let shim = shim_of(&mut guest);
    kill_process(pid(&shim), Signal::STOP).expect("it is there");
    assert_eq!(shim_of(&mut guest), shim);
    wait_until("it is resumed", || state(pid(&shim)) == Some('S'));
}

#[test]
fn a_cancelled_or_timed_out_program_ends_its_shim() {
    let mut guest = Guest::start();
    let running = guest.work("running");
    let mut ends = |timeout: Option<u64>| {
        let shim = shim_of(&mut guest);
        let mut since = now() + Duration::from_millis(timeout.unwrap_or_default());
        let channel = guest.open(bash("touch running; sleep 1000"), PLENTY, timeout);
        if timeout.is_none() {
            wait_until("it runs", || running.exists());
            since = now();
            guest.send(FrameKind::Cancel, channel, &[]);
        }
        let end = guest.finish(channel).end();
        guest.assert_nothing_left_of_what_ends_since(since);
        wait_until("it is gone", || state(pid(&shim)).is_none());
        end
    };
    assert_eq!(ends(None), ExecEnd::Cancelled);
    std::fs::remove_file(&running).expect("removed");
    // A loaded machine may take longer to start it than a short timeout lasts.
    let mut timeouts = [300, 5_000, 50_000].into_iter();
    while !running.exists() {
        let timeout = timeouts.next().expect("it runs within the longest of them");
        assert_eq!(ends(Some(timeout)), ExecEnd::TimedOut);
    }
    assert_eq!(guest.bash("echo fine").text(), "fine\n");
}

#[test]
fn requests_of_any_length_are_executed() {
    let mut guest = Guest::start();
    let shim = shim_of(&mut guest);
    for length in [1, 30_000, 40_000, 120_000, 5] {
        let long = "x".repeat(length);
        let outcome = guest.call(exec(&["bash", "-c", "printf %s \"${#1}\"", "-", &long]));
        assert_eq!(outcome.text(), length.to_string());
    }
    assert_eq!(shim_of(&mut guest), shim, "long ones have their own");
}

#[test]
fn a_failed_start_is_reported_whatever_its_length() {
    let mut guest = Guest::start();
    let shim = shim_of(&mut guest);
    for length in [100_000, 130_000, 300_000] {
        let long = format!("/{}", "x".repeat(length));
        let error = guest.call(exec(&[&long])).result.expect_err("refused");
        assert!(error.message.len() < 10_000, "{}", error.message.len());
        assert!(error.message.starts_with("cannot run `/xx"), "{}", &error.message[..40]);
        let mut elsewhere = exec_request(&["true"]);
        elsewhere.cwd = Some(long.clone());
        let error = guest.call(Request::Exec(elsewhere)).result.expect_err("refused");
        assert!(error.message.contains("the directory `/xx"), "{}", &error.message[..60]);
        let mut lost = exec_request(&["no-such-program"]);
        lost.env.insert("PATH".to_owned(), long);
        let error = guest.call(Request::Exec(lost)).result.expect_err("refused");
        assert_eq!(error.code, ErrorCode::NotFound);
    }
    assert_eq!(shim_of(&mut guest), shim);
}

#[test]
fn changes_to_a_shim_do_not_reach_the_next_program() {
    let mut guest = Guest::start();
    let before = guest.bash("nproc; grep SigQ /proc/$PPID/status").text();
    let first = before.lines().next().expect("a number").to_owned();
    guest.bash("taskset -p 1 $PPID");
    assert_eq!(guest.bash("nproc").text().trim(), first);
    // Signals that it was sent wait for nobody: it ends, and the next program gets another.
    let shim = shim_of(&mut guest);
    guest.bash("for i in 1 2 3 4 5 6 7 8; do kill -s RTMIN+5 $PPID; done");
    wait_until("it is gone", || state(pid(&shim)).is_none());
    assert_ne!(shim_of(&mut guest), shim);
}

#[test]
fn a_shim_with_output_of_other_programs_is_not_kept() {
    let mut guest = Guest::start();
    let wait = guest.open(
        bash("head -c 3000000 /dev/zero; touch ready; while [ ! -e go ]; do sleep 0.01; done"),
        PLENTY,
        None,
    );
    let ready = guest.work("ready");
    wait_until("the first runs", || ready.exists());
    let late = shim_of(&mut guest);
    wait_until("it is gone", || state(pid(&late)).is_none());
    std::fs::write(guest.work("go"), "").expect("written");
    assert_eq!(guest.finish(wait).end(), ExecEnd::Exited(0));
}
