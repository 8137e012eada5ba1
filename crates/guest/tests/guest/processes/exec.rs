//! Programs: how they start, run, and end.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_guest::protocol::{
    CaptureLimits, ErrorCode, ExecEnd, ExecRequest, FrameKind, Hello, OutputMode, Request, StdinMode,
};

use crate::client::{Guest, PLENTY, bash, exec, exec_request, now, wait_until};

#[test]
fn a_program_gets_what_it_was_given_and_nothing_else() {
    let mut guest = Guest::start();
    let mut request = exec_request(&["env"]);
    request.env =
        BTreeMap::from([("A".to_owned(), "1".to_owned()), ("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    let outcome = guest.call(Request::Exec(request));
    let mut lines: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["A=1", guest.mark.as_str(), "PATH=/usr/bin:/bin"]);
    assert_eq!(outcome.end(), ExecEnd::Exited(0));

    // `ls` itself holds the directory open as 3.
    assert_eq!(guest.call(exec(&["ls", "/proc/self/fd"])).text(), "0\n1\n2\n3\n");
    let signals = guest.bash("grep -E '^Sig(Blk|Ign)' /proc/self/status").text();
    // The C library's `posix_spawn` leaves the two signals ignored that it keeps for itself, 32 and 33.
    let is_clear = |line: &str| line.ends_with("\t0000000000000000") || line == "SigIgn:\t0000000180000000";
    assert!(signals.lines().all(is_clear), "{signals}");
    assert_eq!(guest.bash("readlink /proc/self/fd/0").text(), "/dev/null\n");
    let dir = guest.path("work").display().to_string();
    assert_eq!(guest.call(exec(&["pwd"])).text(), format!("{dir}\n"));
    let limit = guest.bash("ulimit -Sn").text();
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    assert_eq!(limit.trim(), own.map_or("unlimited".to_owned(), |own| own.to_string()));
}

#[test]
fn streams_are_separate_or_merged_in_order() {
    let mut guest = Guest::start();
    let script = "echo a; echo b >&2; echo c";
    let outcome = guest.bash(script);
    assert_eq!((outcome.text().as_str(), outcome.stderr.as_slice()), ("a\nc\n", b"b\n".as_slice()));
    assert_eq!((outcome.exec().stdout.total, outcome.exec().stderr.total), (4, 2));
    let merged = ExecRequest { merge_stderr: true, ..exec_request(&["bash", "-c", script]) };
    let outcome = guest.call(Request::Exec(merged));
    assert_eq!((outcome.text().as_str(), outcome.stderr.len()), ("a\nb\nc\n", 0));
}

#[test]
fn the_end_is_reported_exactly() {
    let mut guest = Guest::start();
    assert_eq!(guest.bash("exit 7").end(), ExecEnd::Exited(7));
    assert_eq!(guest.bash("kill -TERM $$").end(), ExecEnd::Signaled(15));
    assert_eq!(guest.bash("kill -KILL $$").end(), ExecEnd::Signaled(9));
}

#[test]
fn a_program_that_cannot_start_names_the_reason() {
    let mut guest = Guest::start();
    let mut refused = |request: ExecRequest| guest.call(Request::Exec(request)).result.expect_err("refused");
    let error = refused(exec_request(&["no-such-program"]));
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(error.message.contains("no-such-program") && error.message.contains("PATH"), "{error}");
    assert_eq!(refused(exec_request(&["/no/such/program"])).code, ErrorCode::NotFound);
    assert_eq!(refused(exec_request(&[])).code, ErrorCode::BadRequest);
    assert_eq!(refused(exec_request(&["echo", "a\0b"])).code, ErrorCode::BadRequest);
    assert_eq!(refused(exec_request(&["/etc/passwd"])).code, ErrorCode::NotExecutable);
    let error =
        refused(ExecRequest { cwd: Some("/no/such/directory".to_owned()), ..exec_request(&["true"]) });
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(error.message.contains("/no/such/directory"), "{error}");
    let long = "x".repeat(200_000);
    assert_eq!(refused(exec_request(&["true", &long])).code, ErrorCode::ArgumentsTooLong);
    std::fs::write(guest.work("script"), "#!/no/such/interpreter\n").expect("written");
    assert_eq!(guest.bash("chmod +x script").end(), ExecEnd::Exited(0));
    let error = guest.call(exec(&["./script"])).result.expect_err("refused");
    assert_eq!(error.code, ErrorCode::NotFound);
    assert!(error.message.contains("interpreter"), "{error}");
}

#[test]
fn a_timeout_kills_the_whole_tree_wherever_it_went() {
    let mut guest = Guest::start();
    let script = "
        setsid bash -c 'sleep 1000 & sleep 1000' &
        (setsid bash -c '(trap \"\" TERM HUP; sleep 1000) & disown; exit') &
        nohup sleep 1000 >/dev/null 2>&1 &
        bash -c 'kill -STOP $$' &
        echo before
        touch ready
        sleep 1000";
    let ready = guest.work("ready");
    // A loaded machine may take longer to start them than a short timeout lasts.
    for timeout in [3_000, 15_000, 50_000] {
        let late = now() + Duration::from_millis(timeout);
        let channel = guest.open(bash(script), PLENTY, Some(timeout));
        let outcome = guest.finish(channel);
        assert_eq!(outcome.end(), ExecEnd::TimedOut);
        guest.assert_nothing_left_of_what_ends_since(late);
        if ready.exists() {
            assert_eq!(outcome.text(), "before\n");
            return;
        }
    }
    panic!("the tree never stood");
}

#[test]
fn processes_that_keep_forking_are_caught() {
    let mut guest = Guest::start();
    // Each generation is one fork away from the last, which exits at once: never still, never more than some.
    let script = "hop() { (hop &) ; }; for i in 1 2 3 4 5 6; do hop & done; touch ready; sleep 1000";
    let channel = guest.open(bash(script), PLENTY, None);
    let ready = guest.work("ready");
    wait_until("they hop", || ready.exists());
    let cancelled = now();
    guest.send(FrameKind::Cancel, channel, &[]);
    assert_eq!(guest.finish(channel).end(), ExecEnd::Cancelled);
    guest.assert_nothing_left_of_what_ends_since(cancelled);
}

#[test]
fn a_cancelled_program_is_killed_and_its_output_kept() {
    let mut guest = Guest::start();
    let channel = guest.open(bash("echo some; touch ready; sleep 1000 & wait"), PLENTY, None);
    let ready = guest.work("ready");
    wait_until("it runs", || ready.exists());
    let cancelled = now();
    guest.send(FrameKind::Cancel, channel, &[]);
    let outcome = guest.finish(channel);
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Cancelled, "some\n"));
    guest.assert_nothing_left_of_what_ends_since(cancelled);
    // A second time, and too late.
    guest.send(FrameKind::Cancel, channel, &[]);
    assert!(guest.bash("true").result.is_ok());
}

#[test]
fn a_background_child_delays_nothing_and_keeps_running() {
    let mut guest = Guest::start();
    // It writes to the pipe it inherited long after the call is over, and must not be killed by that.
    let script = "(while [ ! -e go ]; do sleep 0.01; done; for i in $(seq 50000); do echo line $i; done; touch done; sleep 1000) & echo started";
    let outcome = guest.bash(script);
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Exited(0), "started\n"));
    assert!(!guest.leftovers().is_empty(), "it lives on");
    std::fs::write(guest.work("go"), "").expect("written");
    let done = guest.work("done");
    wait_until("it wrote all", || done.exists());
    assert!(guest.close().success());
    guest.assert_nothing_left();
}

#[test]
fn a_child_that_never_stops_writing_does_not_hold_up_the_result() {
    let mut guest = Guest::start();
    // Before: what comes behind much else is not kept. The other one writes by the time at which the shell ends.
    let outcome = guest.bash("echo started; yes & sleep 0.2");
    assert_eq!(outcome.end(), ExecEnd::Exited(0));
    assert!(outcome.text().contains("started\n"));
}

#[test]
fn orphans_do_not_pile_up_as_zombies() {
    let mut guest = Guest::start();
    let script = "for i in $(seq 300); do (sleep 0 &) ; done; sleep 1000 & exit";
    assert_eq!(guest.bash(script).end(), ExecEnd::Exited(0));
    wait_until("only the background child is left", || guest.leftovers().len() == 1);
    let shim = guest.children();
    assert_eq!(shim, (0, 1), "one shim, no zombie");
}

#[test]
fn a_command_that_kills_its_shim_is_lost_and_killed() {
    let mut guest = Guest::start();
    let script = "setsid sleep 1000 & sleep 1000 & echo said; kill -9 $PPID; sleep 1000";
    let begun = now();
    let outcome = guest.bash(script);
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Lost, "said\n"));
    guest.assert_nothing_left_of_what_ends_since(begun);
    // Stopping it helps nothing either.
    let channel = guest.open(bash("kill -STOP $PPID; touch ready; sleep 1000"), PLENTY, None);
    let ready = guest.work("ready");
    wait_until("it runs", || ready.exists());
    let cancelled = now();
    guest.send(FrameKind::Cancel, channel, &[]);
    assert_eq!(guest.finish(channel).end(), ExecEnd::Cancelled);
    guest.assert_nothing_left_of_what_ends_since(cancelled);
    assert_eq!(guest.bash("exit 3").end(), ExecEnd::Exited(3));
}

/// Stopped over and over, a shim can do nothing.
#[test]
fn a_command_that_keeps_stopping_its_shim_is_killed_all_the_same() {
    let script = "for i in 1 2 3 4; do setsid bash -c \"while :; do kill -STOP $PPID; done\" & done; wait";
    let mut guest = Guest::start();
    let channel = guest.open(bash(script), PLENTY, Some(300));
    assert_eq!(guest.finish(channel).end(), ExecEnd::TimedOut);
    guest.assert_nothing_left();
    guest.open(bash(&format!("touch running; {script}")), PLENTY, None);
    wait_until("it runs", || guest.work("running").exists());
    assert!(guest.close().success());
    guest.assert_nothing_left();
}

#[test]
fn a_kill_of_the_own_process_group_hits_no_shim() {
    let mut guest = Guest::start();
    assert_eq!(guest.bash("trap '' TERM; sleep 1000 & kill 0; exit 5").end(), ExecEnd::Exited(5));
}

#[test]
fn a_gigabyte_is_counted_its_ends_kept_and_the_rest_spilled() {
    const TOTAL: u64 = 1_500_000_001;
    const SPILL: u64 = 64 * 1024 * 1024;
    let mut guest = Guest::start();
    let before = guest.resident();
    let output = OutputMode::Capture(CaptureLimits { head: 1000, tail: 1001, spill: SPILL });
    let script = format!("yes 0123456 | head -c {TOTAL}");
    let request = ExecRequest { output, ..exec_request(&["bash", "-c", &script]) };
    let outcome = guest.call(Request::Exec(request));
    let stdout = &outcome.exec().stdout;
    assert_eq!((stdout.total, stdout.head, stdout.tail, stdout.spilled), (TOTAL, 1000, 1001, SPILL));
    let expected = |at: u64| b"0123456\n"[(at % 8) as usize];
    let (head, tail) = outcome.stdout.split_at(1000);
    assert!((0..).zip(head).all(|(at, byte)| *byte == expected(at)));
    assert!((TOTAL - 1001..).zip(tail).all(|(at, byte)| *byte == expected(at)));
    let spilled = std::fs::read(stdout.spill_path.as_ref().expect("a file")).expect("readable");
    assert_eq!(spilled.len() as u64, SPILL);
    assert!((0..).zip(&spilled).all(|(at, byte)| *byte == expected(at)));
    assert!(guest.resident() < before + 4 * 1024, "{before} KiB became {}", guest.resident());
}

#[test]
fn a_spill_that_fails_is_no_failure_of_the_call() {
    let mut guest = Guest::start();
    std::fs::remove_dir(guest.work(".spill")).expect("made by the guest");
    let output = OutputMode::Capture(CaptureLimits { head: 4, tail: 4, spill: 1000 });
    let outcome = guest.call(Request::Exec(ExecRequest { output, ..exec_request(&["seq", "100"]) }));
    let stdout = &outcome.exec().stdout;
    assert_eq!((outcome.end(), stdout.spill_path.as_deref(), stdout.spilled), (ExecEnd::Exited(0), None, 0));
    assert_eq!((outcome.stdout.as_slice(), stdout.total), (b"1\n2\n100\n".as_slice(), 292));
}

/// However many calls there are; and what the host has removed is no more.
#[test]
fn all_spilled_output_together_is_bounded() {
    let mut guest = Guest::start_without_handshake();
    let hello = Hello { spill_total: Some(1000), ..guest.hello() };
    guest.send_json(FrameKind::Hello, 0, &hello);
    let mut spill = || {
        let output = OutputMode::Capture(CaptureLimits { head: 4, tail: 4, spill: 700 });
        let request = ExecRequest { output, ..exec_request(&["head", "-c", "5000", "/dev/zero"]) };
        let outcome = guest.call(Request::Exec(request));
        assert_eq!((outcome.end(), outcome.exec().stdout.total), (ExecEnd::Exited(0), 5000));
        outcome.exec().stdout.clone()
    };
    let [first, second, third] = [spill(), spill(), spill()];
    assert_eq!([first.spilled, second.spilled, third.spilled], [700, 300, 0]);
    assert_eq!(third.spill_path, None);
    for kept in [&first, &second] {
        let path = kept.spill_path.as_ref().expect("a file");
        assert_eq!(std::fs::metadata(path).expect("there").len(), kept.spilled);
    }
    std::fs::remove_file(first.spill_path.expect("a file")).expect("ours");
    assert_eq!([spill().spilled, spill().spilled], [700, 0]);
}

#[test]
fn a_link_in_the_place_of_the_spill_directory_is_not_followed() {
    let mut guest = Guest::start_without_handshake();
    std::os::unix::fs::symlink(guest.path("outside"), guest.work(".spill")).expect("linked");
    let hello = guest.hello();
    guest.send_json(FrameKind::Hello, 0, &hello);
    let output = OutputMode::Capture(CaptureLimits { head: 4, tail: 4, spill: 1000 });
    let outcome = guest.call(Request::Exec(ExecRequest { output, ..exec_request(&["seq", "100"]) }));
    assert_eq!(outcome.exec().stdout.spill_path, None);
    assert_eq!(std::fs::read_dir(guest.path("outside")).expect("a directory").count(), 0);
}

#[test]
fn standard_input_is_complete() {
    let mut guest = Guest::start();
    let stream =
        |argv: &[&str]| Request::Exec(ExecRequest { stdin: StdinMode::Stream, ..exec_request(argv) });
    let content: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(guest.work("expected"), &content).expect("written");
    let channel = guest.open(stream(&["cmp", "-", "expected"]), PLENTY, None);
    guest.feed(channel, &content);
    assert_eq!(guest.finish(channel).end(), ExecEnd::Exited(0));
    // One that takes a little of it, and one that takes nothing and does not end.
    let channel = guest.open(stream(&["head", "-c", "3"]), PLENTY, None);
    guest.feed(channel, &content);
    assert_eq!(guest.finish(channel).text(), "\0\u{1}\u{2}");
    let idle = guest.open(stream(&["sleep", "1000"]), PLENTY, None);
    let granted = guest.next_of(idle).credit().expect("credit");
    for piece in content[..granted as usize].chunks(64 * 1024) {
        guest.send_data(idle, piece);
    }
    assert_eq!(guest.bash("echo on").text(), "on\n");
    guest.send(FrameKind::Cancel, idle, &[]);
    assert_eq!(guest.finish(idle).end(), ExecEnd::Cancelled);
}

/// The host cannot know of the end yet, and what it was granted before it may send.
#[test]
fn input_after_the_end_is_dropped() {
    let mut guest = Guest::start();
    let script = "echo $$ > pid.new; mv pid.new pid; echo out";
    let request = ExecRequest { stdin: StdinMode::Stream, ..exec_request(&["bash", "-c", script]) };
    // Without credit the output waits, and the operation is still open after the program's end.
    let channel = guest.open(Request::Exec(request), 0, None);
    wait_until("the program has ended", || {
        let pid = std::fs::read_to_string(guest.work("pid")).unwrap_or_default();
        !pid.is_empty() && !std::path::Path::new(&format!("/proc/{}", pid.trim())).exists()
    });
    assert_eq!(guest.bash("true").end(), ExecEnd::Exited(0));
    guest.send_data(channel, b"late");
    guest.send(FrameKind::Eof, channel, &[]);
    assert_eq!(guest.bash("echo alive").text(), "alive\n");
    guest.grant(channel, PLENTY);
    let outcome = guest.finish(channel);
    assert_eq!((outcome.end(), outcome.text().as_str()), (ExecEnd::Exited(0), "out\n"));
}

#[test]
fn an_unread_stream_blocks_only_its_own_program() {
    let mut guest = Guest::start();
    let stream = |script| {
        Request::Exec(ExecRequest { output: OutputMode::Stream, ..exec_request(&["bash", "-c", script]) })
    };
    let stuck = guest.open(stream("yes | head -c 300000000; touch finished"), 100_000, None);
    let before = guest.resident();
    for _ in 0..20 {
        assert_eq!(guest.bash("seq 10000 | tail -n 1").text(), "10000\n");
    }
    assert!(guest.resident() < before + 4 * 1024, "{before} KiB became {}", guest.resident());
    assert!(!guest.work("finished").exists());
    guest.grant(stuck, 300_000_000 - 100_000);
    let outcome = guest.finish(stuck);
    assert_eq!((outcome.exec().stdout.total, outcome.stdout.len()), (300_000_000, 300_000_000));
    // One that is stuck can be cancelled, and one that ended waits for its reader.
    let stuck = guest.open(stream("yes"), 0, None);
    let ended = guest.open(stream("echo ended"), 2, None);
    guest.send(FrameKind::Cancel, stuck, &[]);
    assert_eq!(guest.finish(stuck).end(), ExecEnd::Cancelled);
    assert_eq!(guest.next_of(ended).data().expect("data").1, b"en");
    guest.grant(ended, 100);
    assert_eq!(guest.finish(ended).text(), "ded\n");
}

#[test]
fn captured_output_waits_for_credit() {
    let mut guest = Guest::start();
    let channel = guest.open(bash("echo 0123456789; echo error >&2"), 4, None);
    assert_eq!(guest.next_of(channel).data().expect("data").1, b"0123");
    guest.grant(channel, 9);
    let outcome_start = guest.next_of(channel);
    assert_eq!(outcome_start.data().expect("data").1, b"456789\n");
    assert_eq!(guest.next_of(channel).data().expect("data").1, b"er");
    guest.send(FrameKind::Cancel, channel, &[]);
    let outcome = guest.finish(channel);
    assert_eq!((outcome.end(), outcome.exec().stderr.head), (ExecEnd::Cancelled, 2));
}

#[test]
fn two_hundred_at_once() {
    let mut guest = Guest::start();
    let channels: Vec<u32> =
        (0..200).map(|number| guest.open(bash(&format!("echo {number}")), PLENTY, None)).collect();
    for (number, channel) in channels.into_iter().enumerate() {
        assert_eq!(guest.finish(channel).text(), format!("{number}\n"));
    }
    wait_until("all shims but the one that waits are reaped", || guest.children() == (0, 1));
}
