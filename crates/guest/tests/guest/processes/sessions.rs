//! Programs that live between the host's calls.

use conjure_guest::protocol::{
    DATA_MAX, ErrorCode, ExecEnd, ExecRequest, FrameKind, OutputMode, ProgramLifetime, Request, StdinMode,
    StreamId,
};

use crate::client::{Guest, PLENTY, bash, exec_request, now, wait_until};
use crate::processes::pause::{assert_all_stopped, pause};

/// A program that answers each line of its input.
const ECHO: &str = "while read -r line; do echo \"got $line\"; done";

fn session(script: &str) -> Request {
    Request::Exec(ExecRequest {
        stdin: StdinMode::Stream,
        output: OutputMode::Stream,
        lifetime: ProgramLifetime::Session,
        ..exec_request(&["bash", "-c", script])
    })
}

/// Sends a line, and takes the answer to it.
#[track_caller]
fn ask(guest: &mut Guest, channel: u32, line: &str) -> String {
    guest.send_data(channel, format!("{line}\n").as_bytes());
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        let frame = guest.next_of(channel);
        match frame.kind {
            FrameKind::Data => answer.extend_from_slice(frame.data().expect("data").1),
            FrameKind::Credit => {}
            other => panic!("it does not answer, but sends {other:?}"),
        }
    }
    String::from_utf8(answer).expect("UTF-8")
}

#[test]
fn a_session_lives_between_calls_and_beside_them() {
    let mut guest = Guest::start();
    let channel = guest.open(session(ECHO), PLENTY, None);
    for number in 0..20 {
        assert_eq!(ask(&mut guest, channel, &number.to_string()), format!("got {number}\n"));
        assert_eq!(guest.bash("echo beside").text(), "beside\n");
    }
    guest.send(FrameKind::Eof, channel, &[]);
    let outcome = guest.finish(channel);
    assert_eq!(outcome.end(), ExecEnd::Exited(0));
    guest.assert_nothing_left();
}

#[test]
fn a_session_is_paused_between_calls_and_its_input_resumes_it() {
    let mut guest = Guest::start();
    let channel = guest.open(session(ECHO), PLENTY, None);
    for number in 0..10 {
        assert_eq!(ask(&mut guest, channel, &number.to_string()), format!("got {number}\n"));
        pause(&mut guest);
        assert_all_stopped(&guest);
    }
    assert_eq!(ask(&mut guest, channel, "last"), "got last\n");
    // One call is under way: nothing is paused.
    let call = guest.open(
        bash("read -r line < /dev/null; touch ready; while [ ! -e go ]; do sleep 0.001; done"),
        PLENTY,
        None,
    );
    let ready = guest.work("ready");
    wait_until("it runs", || ready.exists());
    let refused = guest.call(Request::Pause).result.expect_err("refused");
    assert_eq!(refused.code, ErrorCode::BadRequest);
    std::fs::write(guest.work("go"), "").expect("written");
    assert_eq!(guest.finish(call).end(), ExecEnd::Exited(0));
}

#[test]
fn the_end_of_a_session_ends_its_whole_tree_also_while_it_is_paused() {
    for paused in [false, true] {
        let mut guest = Guest::start();
        let script = format!("setsid sleep 1000 & sleep 1000 & {ECHO}");
        let channel = guest.open(session(&script), PLENTY, None);
        assert_eq!(ask(&mut guest, channel, "a"), "got a\n");
        if paused {
            pause(&mut guest);
        }
        let cancelled = now();
        guest.send(FrameKind::Cancel, channel, &[]);
        assert_eq!(guest.finish(channel).end(), ExecEnd::Cancelled);
        guest.assert_nothing_left_of_what_ends_since(cancelled);
        assert_eq!(guest.bash("echo well").text(), "well\n");
    }
}

#[test]
fn output_comes_before_the_error_that_was_written_after_it() {
    let mut guest = Guest::start();
    let script = "while read -r bytes; do head -c \"$bytes\" /dev/zero; echo \"$bytes\" >&2; done";
    let channel = guest.open(session(script), 256 * 1024, None);
    for bytes in [1, 100, 4096, 70_000, 300_000, 1_000_000].into_iter().cycle().take(60) {
        guest.send_data(channel, format!("{bytes}\n").as_bytes());
        let mut output = 0;
        loop {
            let frame = guest.next_of(channel);
            if frame.kind != FrameKind::Data {
                assert_eq!(frame.kind, FrameKind::Credit);
                continue;
            }
            let (stream, content) = frame.data().expect("data");
            guest.grant(channel, u32::try_from(content.len()).expect("at most one frame's"));
            assert!(content.len() <= DATA_MAX);
            if stream == StreamId::Stderr {
                assert_eq!(String::from_utf8_lossy(content), format!("{bytes}\n"));
                break;
            }
            output += content.len();
        }
        assert_eq!(output, bytes);
    }
}

#[test]
fn a_session_whose_output_never_ends_still_reports_an_error() {
    let mut guest = Guest::start();
    let channel = guest.open(session("yes & read -r line; echo here >&2; wait"), 64 * 1024, None);
    guest.send_data(channel, b"\n");
    loop {
        let frame = guest.next_of(channel);
        if frame.kind == FrameKind::Data {
            let (stream, content) = frame.data().expect("data");
            let (is_error, length) = (stream == StreamId::Stderr, content.len());
            guest.grant(channel, u32::try_from(length).expect("at most one frame's"));
            if is_error {
                break;
            }
        }
    }
    guest.send(FrameKind::Cancel, channel, &[]);
    assert_eq!(guest.finish(channel).end(), ExecEnd::Cancelled);
    guest.assert_nothing_left();
}

#[test]
fn an_idle_shim_is_reused_beside_a_session() {
    let mut guest = Guest::start();
    let channel = guest.open(session(ECHO), PLENTY, None);
    assert_eq!(ask(&mut guest, channel, "a"), "got a\n");
    let first = guest.bash("echo $PPID").text();
    assert_eq!(guest.bash("echo $PPID").text(), first);
}
