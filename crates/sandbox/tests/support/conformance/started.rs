//! Programs that live between calls.

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Executor, Process, RunEvent, SandboxError, SandboxErrorKind,
};
use futures_util::FutureExt;
use futures_util::future::join;
use tokio_util::sync::CancellationToken;

use super::pauses::pause_sandbox;
use crate::support::{Bed, Kind, bash, bearing, options, until};

/// A program that bears the mark and answers each line of its input.
fn echo(bed: &Bed) -> Command {
    let script = "while read -r line; do echo \"got $line\"; done; echo bye >&2; exit 7";
    let mut command = Command::new(["bash", "-c", script, bed.mark()]);
    command.merge_stderr = false;
    command
}

async fn started(bed: &Bed, command: Command) -> Box<dyn Process> {
    bed.sandbox.start(command, options()).await.unwrap()
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
    let bed = Bed::of(kind).await;
    let mut command = echo(&bed);
    command.input = conjure_sandbox::Input::Bytes(b"first\n".to_vec());
    let process = started(&bed, command).await;
    assert_eq!(answer(&*process).await, "got first\n");
    for number in 0..10 {
        assert_eq!(ask(&*process, &number.to_string()).await, format!("got {number}\n"));
        assert_eq!(bash(&bed, "echo beside").await, "beside\n");
    }
    process.close_input();
    assert_eq!(process.next_event().await.unwrap(), RunEvent::Stderr("bye\n".into()));
    let RunEvent::Ended(outcome) = process.next_event().await.unwrap() else { panic!("it does not end") };
    assert_eq!(outcome.end, CommandEnd::Exited(7));
    assert_eq!(process.next_event().await.unwrap_err().kind(), SandboxErrorKind::BadRequest);
    // Nobody reads it any more.
    process.write(vec![0; 1_000_000]).await;
    bed.until_nothing_bears_the_mark().await;
}

pub(crate) async fn a_started_program_is_paused_and_goes_on_with_its_next_call(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    let process = started(&bed, echo(&bed)).await;
    for number in 0..10 {
        assert_eq!(ask(&*process, &number.to_string()).await, format!("got {number}\n"));
        pause_sandbox(&bed.sandbox).await;
        assert!(bearing(bed.mark()).iter().any(|process| process.state == 'T'));
    }
}

pub(crate) async fn a_started_program_ends_with_its_handle_and_all_that_it_started(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    let script = format!("exec >/dev/null; {}", bed.scattered());
    for is_paused in [false, true] {
        let process = started(&bed, Command::bash(&script)).await;
        bed.until_sleeping(3).await;
        if is_paused {
            pause_sandbox(&bed.sandbox).await;
        }
        drop(process);
        bed.until_nothing_bears_the_mark().await;
    }
}

pub(crate) async fn a_started_program_ends_with_its_sandbox(kind: &dyn Kind) {
    for is_dropped in [false, true] {
        let bed = Bed::of(kind).await;
        let process = started(&bed, echo(&bed)).await;
        assert_eq!(ask(&*process, "a").await, "got a\n");
        let mark = bed.mark().to_owned();
        let Bed { sandbox, workspace, .. } = bed;
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
    let bed = Bed::of(kind).await;
    let talker = started(&bed, Command::bash(&format!("yes {}", bed.mark()))).await;
    let deaf = started(&bed, Command::bash(&bed.sleeper())).await;
    bed.until_sleeping(1).await;
    let writing = deaf.write(vec![0; 4_000_000]);
    assert!(writing.now_or_never().is_none(), "there is no room for all of it");
    assert_eq!(bash(&bed, "echo free").await, "free\n");
    // Much passes in both directions at once.
    let copier = started(&bed, Command::new(["cat"])).await;
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
    bed.until_nothing_bears_the_mark().await;
}

pub(crate) async fn a_program_that_cannot_be_started_says_why(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    let missing = started(&bed, Command::new(["no-such-program"])).await;
    let error = missing.next_event().await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NotFound);
    assert!(error.to_string().contains("no-such-program"), "{error}");
    let kind_of = |refused: Result<Box<dyn Process>, SandboxError>| refused.unwrap_err().kind();
    let late = CallOptions::until(SystemClock.deadline(std::time::Duration::ZERO));
    assert_eq!(kind_of(bed.sandbox.start(echo(&bed), late).await), SandboxErrorKind::TimedOut);
    let cancelled = CallOptions { deadline: Deadline::NEVER, cancel: CancellationToken::new() };
    cancelled.cancel.cancel();
    assert_eq!(kind_of(bed.sandbox.start(echo(&bed), cancelled).await), SandboxErrorKind::Cancelled);
    assert!(bearing(bed.mark()).is_empty(), "{:?}", bearing(bed.mark()));
}
