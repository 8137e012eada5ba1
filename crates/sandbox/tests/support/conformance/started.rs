//! Programs that live between calls.

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Executor, Process, RunEvent, SandboxError, SandboxErrorKind,
};
use futures_util::FutureExt;
use futures_util::future::join;
use tokio_util::sync::CancellationToken;

use super::pauses::pause_sandbox;
use crate::support::{Fixture, Kind, bash, bearing, options, until};

/// A marked program that answers each line of its input.
fn echo(fixture: &Fixture) -> Command {
    let script = "while read -r line; do echo \"got $line\"; done; echo bye >&2; exit 7";
    let mut command = Command::new(["bash", "-c", script, fixture.mark()]);
    command.merge_stderr = false;
    command
}

async fn started(fixture: &Fixture, command: Command) -> Box<dyn Process> {
    fixture.sandbox.start(command, options()).await.unwrap()
}

/// Sends a line, and takes the answer to it.
async fn ask(process: &dyn Process, line: &str) -> String {
    let _call = process.begin_call(options()).await.unwrap();
    process.write(format!("{line}\n").into_bytes()).await;
    answer(process).await
}

async fn answer(process: &dyn Process) -> String {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        match process.next_event().await.unwrap() {
            RunEvent::Stdout(bytes) => answer.extend_from_slice(&bytes),
            other => panic!("it does not answer: {other:?}"),
        }
    }
    String::from_utf8(answer).unwrap()
}

pub(crate) async fn a_started_program_lives_between_calls_and_beside_them(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let mut command = echo(&fixture);
    command.input = conjure_sandbox::Input::Bytes(b"first\n".to_vec());
    let process = started(&fixture, command).await;
    assert_eq!(answer(&*process).await, "got first\n");
    for number in 0..10 {
        assert_eq!(ask(&*process, &number.to_string()).await, format!("got {number}\n"));
        assert_eq!(bash(&fixture, "echo beside").await, "beside\n");
    }
    process.close_input();
    assert_eq!(process.next_event().await.unwrap(), RunEvent::Stderr("bye\n".into()));
    let RunEvent::Ended(outcome) = process.next_event().await.unwrap() else { panic!("it does not end") };
    assert_eq!(outcome.end, CommandEnd::Exited(7));
    assert_eq!(process.next_event().await.unwrap_err().kind(), SandboxErrorKind::BadRequest);
    // Its output has no reader any more.
    process.write(vec![0; 1_000_000]).await;
    fixture.until_no_marked_process().await;
}

pub(crate) async fn a_started_program_is_paused_and_goes_on_with_its_next_call(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let process = started(&fixture, echo(&fixture)).await;
    for number in 0..10 {
        assert_eq!(ask(&*process, &number.to_string()).await, format!("got {number}\n"));
        pause_sandbox(&fixture.sandbox).await;
        assert!(bearing(fixture.mark()).iter().any(|process| process.state == 'T'));
    }
}

pub(crate) async fn a_started_program_ends_with_its_handle_and_all_that_it_started(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let script = format!("exec >/dev/null; {}", fixture.start_background_processes());
    for is_paused in [false, true] {
        let process = started(&fixture, Command::bash(&script)).await;
        fixture.until_sleeping(3).await;
        if is_paused {
            pause_sandbox(&fixture.sandbox).await;
        }
        drop(process);
        fixture.until_no_marked_process().await;
    }
}

pub(crate) async fn a_started_program_ends_with_its_sandbox(kind: &dyn Kind) {
    for is_dropped in [false, true] {
        let fixture = Fixture::of(kind).await;
        let process = started(&fixture, echo(&fixture)).await;
        assert_eq!(ask(&*process, "a").await, "got a\n");
        let mark = fixture.mark().to_owned();
        let Fixture { sandbox, workspace, .. } = fixture;
        if is_dropped {
            drop(sandbox);
        } else {
            sandbox.cleanup().await;
        }
        assert_eq!(process.next_event().await.unwrap_err().kind(), SandboxErrorKind::Lost);
        assert_eq!(process.begin_call(options()).await.unwrap_err().kind(), SandboxErrorKind::Lost);
        process.write(b"a\n".to_vec()).await;
        until("its processes are gone", || bearing(&mark).is_empty()).await;
        drop(workspace);
    }
}

pub(crate) async fn a_started_program_that_nobody_reads_or_that_reads_nothing_delays_no_other(
    kind: &dyn Kind,
) {
    let fixture = Fixture::of(kind).await;
    let talker = started(&fixture, Command::bash(&format!("yes {}", fixture.mark()))).await;
    let deaf = started(&fixture, Command::bash(&fixture.sleeper())).await;
    fixture.until_sleeping(1).await;
    let writing = deaf.write(vec![0; 4_000_000]);
    assert!(writing.now_or_never().is_none(), "there is no room for all of it");
    assert_eq!(bash(&fixture, "echo free").await, "free\n");
    // Much passes in both directions at once.
    let copier = started(&fixture, Command::new(["cat"])).await;
    let (mut seen, all) = (0, 3_000_000);
    let reading = async {
        while seen < all {
            match copier.next_event().await.unwrap() {
                RunEvent::Stdout(bytes) => seen += bytes.len(),
                other => panic!("it only copies: {other:?}"),
            }
        }
    };
    join(copier.write(vec![b'a'; all]), reading).await;
    assert_eq!(seen, all);
    drop((talker, deaf));
    fixture.until_no_marked_process().await;
}

pub(crate) async fn a_program_that_cannot_be_started_says_why(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let missing = started(&fixture, Command::new(["no-such-program"])).await;
    let error = missing.next_event().await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NotFound);
    assert!(error.to_string().contains("no-such-program"), "{error}");
    let kind_of = |refused: Result<Box<dyn Process>, SandboxError>| refused.unwrap_err().kind();
    let expired = CallOptions::until(SystemClock.deadline(std::time::Duration::ZERO));
    assert_eq!(kind_of(fixture.sandbox.start(echo(&fixture), expired).await), SandboxErrorKind::TimedOut);
    let cancelled = CallOptions { deadline: Deadline::NEVER, cancel: CancellationToken::new() };
    cancelled.cancel.cancel();
    assert_eq!(kind_of(fixture.sandbox.start(echo(&fixture), cancelled).await), SandboxErrorKind::Cancelled);
    assert!(bearing(fixture.mark()).is_empty(), "{:?}", bearing(fixture.mark()));
}
