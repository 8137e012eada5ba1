//! What every sandbox must do, shown on `local`: how calls end, and that nothing is left of them.
//!
//! The acceptance cases S1 to S12 are numbered as in the project's design.

mod support;

use std::fs;
use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    Boundary, CallOptions, Command, CommandEnd, EntryKind, Executor, Input, Isolation, LineRange, RunEvent,
    SandboxErrorKind, SharedFolder, View,
};
use futures_util::{StreamExt, future};
use support::{Bed, bearing, bed, bed_with, guest_above, kill_nine, options, processes, text, until};

#[tokio::test]
async fn a_program_runs_in_the_workspace_with_its_input_and_variables() {
    let bed = bed_with(|context| {
        context.environment.insert("FROM_CONTEXT".to_owned(), "one".to_owned());
    })
    .await;
    let mut command = Command::bash("pwd; cat; echo $FROM_CONTEXT $FROM_CALL; echo oops >&2; exit 3");
    command.input = Input::Bytes(b"typed\n".to_vec());
    command.env.insert("FROM_CALL".to_owned(), "two".to_owned());
    let outcome = bed.sandbox.run(command, options()).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(3));
    let workspace = fs::canonicalize(bed.workspace.path()).unwrap();
    assert_eq!(text(&outcome), format!("{}\ntyped\none two\noops\n", workspace.display()));
    assert_eq!(bed.sandbox.layout().workspace, workspace);
}

#[tokio::test]
async fn a_large_input_reaches_a_program_that_answers_in_between() {
    let bed = bed().await;
    let mut command = Command::new(["sha256sum"]);
    command.input = Input::Bytes(vec![b'x'; 5_000_000]);
    let outcome = bed.sandbox.run(command, options()).await.unwrap();
    let expected = bed.bash("head -c 5000000 /dev/zero | tr '\\0' x | sha256sum").await.unwrap();
    assert_eq!(text(&outcome), text(&expected));

    // One that does not read its input ends all the same.
    let mut command = Command::new(["true"]);
    command.input = Input::Bytes(vec![b'x'; 5_000_000]);
    let outcome = bed.sandbox.run(command, options()).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(0));
}

#[tokio::test]
async fn no_key_of_the_host_is_in_the_environment() {
    let bed = bed().await;
    let said = text(&bed.sandbox.run(Command::new(["env"]), options()).await.unwrap());
    assert!(said.contains("PATH=/usr/local/bin:/usr/bin:/bin") && said.contains("TERM=dumb"), "{said}");
    assert!(!said.contains("ANTHROPIC_API_KEY") && !said.contains("CARGO"), "{said}");
}

#[tokio::test]
async fn a_local_sandbox_says_that_it_isolates_nothing() {
    let bed = bed().await;
    assert_eq!(bed.sandbox.isolation(), Isolation::NONE);
    assert_eq!(bed.sandbox.isolation().network, Boundary::Open);
}

#[tokio::test]
async fn how_a_program_ended_is_told_apart() {
    let bed = bed().await;
    let killed = bed.bash("kill -TERM $$").await.unwrap();
    assert_eq!(killed.end, CommandEnd::Signaled(15));
    let missing = bed.sandbox.run(Command::new(["no-such-program"]), options()).await.unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound, "{missing}");
    fs::write(bed.path("plain"), "x").unwrap();
    let plain = bed.sandbox.run(Command::new(["./plain"]), options()).await.unwrap_err();
    assert!(
        matches!(plain.kind(), SandboxErrorKind::NotExecutable | SandboxErrorKind::PermissionDenied),
        "{plain:?}"
    );
}

#[tokio::test]
async fn both_streams_are_kept_apart_when_asked_for() {
    let bed = bed().await;
    let mut command = Command::bash("echo out; echo err >&2");
    command.merge_stderr = false;
    let outcome = bed.sandbox.run(command, options()).await.unwrap();
    assert_eq!(
        (outcome.stdout.head.as_slice(), outcome.stderr.head.as_slice()),
        (&b"out\n"[..], &b"err\n"[..])
    );
}

/// S1.
#[tokio::test]
async fn a_timeout_ends_every_descendant() {
    let bed = bed().await;
    let sleeper = bed.sleeper();
    let script = format!(
        "setsid bash -c '{sleeper}' & (setsid bash -c '({sleeper}) & exit') & nohup bash -c '{sleeper}' & \
         wait; sleep 1000"
    );
    let calling = bed.sandbox.run(Command::bash(&script), CallOptions::until(support::soon(2)));
    let started = until("all three run", || sleepers(&bed) == 3);
    let (outcome, ()) = future::join(calling, started).await;
    assert_eq!(outcome.unwrap().end, CommandEnd::TimedOut);
    bed.until_nothing_bears_the_mark().await;
}

/// The guest kills a supervisor that cannot end itself, before the host loses its patience with the guest.
#[tokio::test]
async fn a_command_that_keeps_stopping_its_supervisor_does_not_cost_the_sandbox() {
    let bed = bed().await;
    let script = "for i in 1 2 3 4; do setsid bash -c \"while :; do kill -STOP $PPID; done\" & done; wait";
    let outcome = bed.sandbox.run(Command::bash(script), CallOptions::until(support::soon(1))).await;
    assert_eq!(outcome.unwrap().end, CommandEnd::TimedOut);
    assert_eq!(text(&bed.bash("echo alive").await.unwrap()), "alive\n");
}

fn sleepers(bed: &Bed) -> usize {
    let name = format!("{} 1000", bed.mark());
    bearing(bed.mark()).iter().filter(|process| process.arguments.trim() == name).count()
}

/// S2: it would be a timeout if the child's hold on the output were waited for.
#[tokio::test]
async fn a_background_child_that_keeps_the_output_does_not_delay_the_result() {
    let bed = bed().await;
    let outcome = bed.bash(&format!("(bash -c '{}') & echo done", bed.sleeper())).await.unwrap();
    assert_eq!((outcome.end, text(&outcome).as_str()), (CommandEnd::Exited(0), "done\n"));
}

/// S4.
#[tokio::test]
async fn orphans_do_not_stay_as_zombies() {
    let bed = bed().await;
    fs::write(bed.path("go"), "").unwrap();
    let running = bed.sandbox.run(Command::bash(&format!("bash -c '{}'", bed.sleeper())), options());
    let looking = async {
        until("the sleeper runs", || sleepers(&bed) == 1).await;
        let guest = guest_above(bearing(bed.mark())[0].pid);
        for _ in 0..5 {
            let outcome = bed.bash("for i in $(seq 40); do (true & true &); done").await.unwrap();
            assert_eq!(outcome.end, CommandEnd::Exited(0));
        }
        until("the zombies are reaped", || zombies_below(guest) == 0).await;
    };
    tokio::select! {
        outcome = running => panic!("{outcome:?}"),
        () = looking => {}
    }
}

fn zombies_below(guest: i32) -> usize {
    let all = processes();
    let is_below = |mut pid: i32| loop {
        if pid == guest {
            return true;
        }
        match all.iter().find(|process| process.pid == pid) {
            Some(process) => pid = process.parent,
            None => return false,
        }
    };
    all.iter().filter(|process| process.state == 'Z' && is_below(process.pid)).count()
}

#[tokio::test]
async fn cancelling_ends_the_tree_and_tells_so() {
    let bed = bed().await;
    let options = options();
    let cancel = options.cancel.clone();
    let script = format!("echo begun; setsid bash -c '{}' & wait", bed.sleeper());
    let calling = bed.sandbox.run(Command::bash(&script), options);
    let cancelling = async {
        until("it runs", || sleepers(&bed) == 1).await;
        cancel.cancel();
    };
    let (outcome, ()) = future::join(calling, cancelling).await;
    let outcome = outcome.unwrap();
    assert_eq!((outcome.end, text(&outcome).as_str()), (CommandEnd::Cancelled, "begun\n"));
    bed.until_nothing_bears_the_mark().await;
}

#[tokio::test]
async fn a_run_that_is_dropped_at_any_poll_leaves_no_process() {
    let bed = bed().await;
    for polls in 0..10 {
        let script = bed.sleeper();
        let mut run = bed.sandbox.run(Command::bash(&script), options());
        for _ in 0..polls {
            assert!(poll_once(&mut run).is_pending());
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(1))).await;
        }
        drop(run);
        bed.until_nothing_bears_the_mark().await;
    }
    // One that completes, dropped before each of its polls until it does.
    for polls in 0.. {
        let script = format!("echo; exec -a {} true", bed.mark());
        let mut run = bed.sandbox.run(Command::bash(&script), options());
        let mut is_done = false;
        for _ in 0..polls {
            is_done = poll_when_woken(&mut run).await.is_ready();
            if is_done {
                break;
            }
        }
        drop(run);
        bed.until_nothing_bears_the_mark().await;
        if is_done {
            break;
        }
    }
    assert_eq!(text(&bed.bash("echo still here").await.unwrap()), "still here\n");
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

#[tokio::test]
async fn a_killed_guest_loses_the_call_and_all_later_ones_and_leaves_nothing() {
    let bed = bed().await;
    let script = format!("setsid bash -c '{}' & wait", bed.sleeper());
    let calling = bed.sandbox.run(Command::bash(&script), options());
    let killing = async {
        until("it runs", || sleepers(&bed) == 1).await;
        kill_nine(guest_above(bearing(bed.mark())[0].pid));
    };
    let (outcome, ()) = future::join(calling, killing).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Lost);
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert_eq!(bed.bash("true").await.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert_eq!(bed.sandbox.view("x", None, 1, options()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
    bed.until_nothing_bears_the_mark().await;
    bed.sandbox.cleanup().await;
}

/// S3, for the host: this test starts itself as a host of its own, and kills that.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "it starts itself, and asks whether it was started so")]
async fn a_killed_host_leaves_no_process() {
    const MARK: &str = "CONJURE_TEST_MARK";
    if let Ok(mark) = std::env::var(MARK) {
        let bed = bed().await;
        let script = format!("setsid bash -c 'exec -a {mark} sleep 1000' & wait");
        panic!("it ended before its host: {:?}", bed.bash(&script).await);
    }
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().to_str().unwrap();
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_host_leaves_no_process"])
        .env(MARK, mark)
        // A killed host cannot remove its folders: they lie in ours.
        .env("TMPDIR", mark)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("{mark} 1000");
    until("its command runs", || bearing(mark).iter().any(|process| process.arguments.trim() == name)).await;
    let guest = processes().into_iter().find(|process| process.parent == host.id() as i32).unwrap().pid;
    host.kill().unwrap();
    host.wait().unwrap();
    until("its command is gone", || bearing(mark).is_empty()).await;
    until("its guest is gone", || {
        !processes().iter().any(|process| process.pid == guest && process.state != 'Z')
    })
    .await;
}

#[tokio::test]
async fn cleanup_ends_everything_and_removes_what_was_spilled() {
    let bed = bed().await;
    let long = bed.bash("head -c 300000 /dev/zero | tr '\\0' x; echo end").await.unwrap();
    let spill = long.stdout.spill_path.clone().expect("it was spilled");
    assert_eq!((long.stdout.total, long.stdout.spilled), (300_004, 300_004));
    let shown = bed.sandbox.view(&spill, None, 10, options()).await.unwrap();
    assert!(matches!(shown, View::Text { ref text, size: 300_004, .. } if text == "xxxxxxxxxx"), "{shown:?}");
    let refused = bed.sandbox.create_file(&spill, b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);

    let script = format!("(setsid bash -c '{}' > /dev/null 2>&1 &); sleep 1000", bed.sleeper());
    let calling = bed.sandbox.run(Command::bash(&script), options());
    let cleaning = async {
        until("it runs", || sleepers(&bed) == 1).await;
        bed.sandbox.cleanup().await;
        // Awaited, so it is true at once.
        assert!(bearing(bed.mark()).is_empty(), "{:?}", bearing(bed.mark()));
    };
    let (outcome, ()) = future::join(calling, cleaning).await;
    assert_eq!(outcome.unwrap_err().kind(), SandboxErrorKind::Lost);
    assert!(!fs::exists(&spill).unwrap());
}

#[tokio::test]
async fn dropping_the_sandbox_ends_everything() {
    let bed = bed().await;
    let script = format!("(setsid bash -c '{}' > /dev/null 2>&1 &)", bed.sleeper());
    let mut stream = bed.sandbox.run_streamed(Command::bash(&script), options()).unwrap();
    while stream.next().await.is_some() {}
    drop(stream);
    let Bed { sandbox, workspace } = bed;
    drop(sandbox);
    let mark = workspace.path().to_str().unwrap();
    until("its processes are gone", || bearing(mark).is_empty()).await;
}

#[tokio::test]
async fn output_is_seen_while_the_program_runs() {
    let bed = bed().await;
    let script = "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 5";
    let mut stream = bed.sandbox.run_streamed(Command::bash(script), options()).unwrap();
    let mut seen = String::new();
    let outcome = loop {
        match stream.next().await.unwrap().unwrap() {
            RunEvent::Stdout(bytes) => seen += std::str::from_utf8(&bytes).unwrap(),
            RunEvent::Stderr(_) => panic!("it was merged"),
            RunEvent::Ended(outcome) => break outcome,
        }
        if seen == "one\n" {
            bed.sandbox.create_file("go", b"", options()).await.unwrap();
        }
    };
    assert_eq!((seen.as_str(), outcome.end, outcome.stdout.total), ("one\ntwo\n", CommandEnd::Exited(5), 8));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_streamed_program_that_nobody_reads_is_held_up_and_ends_when_dropped() {
    let bed = bed().await;
    let script = format!("yes {}", bed.mark());
    let mut stream = bed.sandbox.run_streamed(Command::bash(&script), options()).unwrap();
    assert!(matches!(stream.next().await, Some(Ok(RunEvent::Stdout(_)))));
    // Its output is stuck; other calls are not.
    assert_eq!(text(&bed.bash("echo free").await.unwrap()), "free\n");
    assert!(!bearing(bed.mark()).is_empty());
    drop(stream);
    bed.until_nothing_bears_the_mark().await;
}

#[tokio::test]
async fn a_content_stream_that_is_not_read_delays_no_other() {
    let bed = bed().await;
    fs::write(bed.path("big"), vec![7; 10_000_000]).unwrap();
    let content = bed.sandbox.read("big", options()).await.unwrap();
    for _ in 0..20 {
        assert_eq!(bed.bash("true").await.unwrap().end, CommandEnd::Exited(0));
    }
    let size: usize = content.map(|piece| piece.unwrap().len()).fold(0, |a, b| future::ready(a + b)).await;
    assert_eq!(size, 10_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_calls_at_once_are_told_apart() {
    let bed = bed().await;
    let calls = (0..64).map(|number| async move { (number, format!("echo {number}; echo {number} >&2")) });
    let outcomes = future::join_all(calls.map(|call| async {
        let (number, script) = call.await;
        (number, bed.bash(&script).await.unwrap())
    }))
    .await;
    for (number, outcome) in outcomes {
        assert_eq!(text(&outcome), format!("{number}\n{number}\n"));
    }
}

#[tokio::test]
async fn files_are_made_changed_shown_and_listed() {
    let bed = bed().await;
    let sandbox = &bed.sandbox;
    let made = sandbox.create_file("deep/er/notes.txt", b"one\ntwo\nthree\n", options()).await.unwrap();
    assert_eq!((made.size, made.existed), (14, false));
    let changed = sandbox.str_replace("deep/er/notes.txt", "two", "2", options()).await.unwrap();
    assert_eq!((changed.size, changed.existed), (12, true));
    for (old, kind) in [("four", SandboxErrorKind::NoMatch), ("e", SandboxErrorKind::NotUnique)] {
        let error = sandbox.str_replace("deep/er/notes.txt", old, "", options()).await.unwrap_err();
        assert_eq!(error.kind(), kind);
    }
    let range = Some(LineRange { first: 2, last: None });
    let shown = sandbox.view("deep/er/notes.txt", range, 1000, options()).await.unwrap();
    let expected = View::Text {
        text: "2\nthree\n".to_owned(),
        first_line: 2,
        last_line: 3,
        total_lines: 3,
        size: 12,
        truncated: false,
    };
    assert_eq!(shown, expected);
    let listing = sandbox.list(".", 3, 100, options()).await.unwrap();
    let paths: Vec<_> = listing.entries.iter().map(|entry| (entry.path.as_str(), entry.kind)).collect();
    let expected = [
        ("deep", EntryKind::Directory),
        ("deep/er", EntryKind::Directory),
        ("deep/er/notes.txt", EntryKind::File),
    ];
    assert_eq!(paths, expected);
    let folder = sandbox.view(".", None, 1000, options()).await.unwrap();
    assert!(matches!(folder, View::Directory(listing) if listing.entries.len() == 2));
    let missing = sandbox.read("nothing", options()).await.map(|_| ()).unwrap_err();
    assert_eq!(missing.kind(), SandboxErrorKind::NotFound);
    let device = sandbox.read("/dev/zero", options()).await.map(|_| ()).unwrap_err();
    assert_eq!(device.kind(), SandboxErrorKind::PathNotAllowed);
}

#[tokio::test]
async fn read_only_folders_are_read_only_and_allowed_ones_are_not() {
    let (skill, extra) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(skill.path().join("SKILL.md"), "hello").unwrap();
    let bed = bed_with(|context| {
        context.read_only.push(SharedFolder::new(skill.path(), "/mnt/skills/hello"));
        context.allowed_paths.push(extra.path().to_owned());
    })
    .await;
    let inside = bed.sandbox.layout().sandbox_path(&skill.path().join("SKILL.md")).unwrap();
    let inside = inside.to_str().unwrap();
    let shown = bed.sandbox.view(inside, None, 100, options()).await.unwrap();
    assert!(matches!(shown, View::Text { text, .. } if text == "hello"));
    let refused = bed.sandbox.create_file(inside, b"x", options()).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::PathNotAllowed);
    let extra = extra.path().join("x");
    bed.sandbox.create_file(extra.to_str().unwrap(), b"x", options()).await.unwrap();
    assert_eq!(fs::read(extra).unwrap(), b"x");
}

/// S12, at rest.
#[tokio::test]
async fn no_path_leads_out_of_the_roots() {
    let bed = bed().await;
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), bed.path("out")).unwrap();
    std::os::unix::fs::symlink(&secret, bed.path("leak")).unwrap();
    let up = format!("../{}/secret", outside.path().file_name().unwrap().to_str().unwrap());
    for path in [up.as_str(), secret.to_str().unwrap(), "out/secret", "leak", "a/../../etc/passwd"] {
        let errors = [
            bed.sandbox.view(path, None, 100, options()).await.map(|_| ()).unwrap_err(),
            bed.sandbox.read(path, options()).await.map(|_| ()).unwrap_err(),
            bed.sandbox.str_replace(path, "secret", "x", options()).await.map(|_| ()).unwrap_err(),
        ];
        for error in errors {
            let kinds = [SandboxErrorKind::PathNotAllowed, SandboxErrorKind::NotFound];
            assert!(kinds.contains(&error.kind()), "{path}: {error:?}");
        }
        // Where the last name is a link, writing may replace the link itself; never what it points to.
        let _ = bed.sandbox.create_file(path, b"changed", options()).await;
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret", "{path}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// S12, while a command swaps a folder and a link as fast as it can.
#[tokio::test]
async fn no_race_of_links_leads_out_of_the_roots() {
    let bed = bed().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "secret").unwrap();
    let script = format!(
        "mkdir real; echo mine > real/file; ln -s {} link; while :; do \
         mv -T real swap; mv -T link real; mv -T real link; mv -T swap real; done",
        outside.path().display()
    );
    let options_of_swapper = options();
    let cancel = options_of_swapper.cancel.clone();
    let swapping = bed.sandbox.run(Command::bash(&script), options_of_swapper);
    let attacking = async {
        until("the folders are there", || bed.path("link").exists() || bed.path("swap").exists()).await;
        for round in 0..300 {
            if let Ok(View::Text { text, .. }) = bed.sandbox.view("real/file", None, 100, options()).await {
                assert_ne!(text, "secret");
            }
            let name = format!("real/new-{round}");
            let _ = bed.sandbox.create_file(&name, b"x", options()).await;
        }
        cancel.cancel();
    };
    let (outcome, ()) = future::join(swapping, attacking).await;
    assert_eq!(outcome.unwrap().end, CommandEnd::Cancelled);
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "secret");
}
