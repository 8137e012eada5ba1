//! What each process may use.

use conjure_guest::protocol::{
    CommandRules, ExecEnd, ExecRequest, FrameKind, OutputMode, ProcessLimits, Request, StreamId,
};

use super::{contained, plain};
use crate::client::{Guest, PLENTY, exec_request};

const LIMITS: ProcessLimits = ProcessLimits {
    core_bytes: Some(0),
    open_files: Some(64),
    file_bytes: Some(1024 * 1024),
    memory_bytes: None,
    processes: None,
    cpu_seconds: None,
};

fn limited(limits: ProcessLimits) -> Guest {
    let mut guest = plain();
    guest.handshake(CommandRules { limits, ..CommandRules::default() });
    guest
}

fn with(limits: ProcessLimits, script: &str) -> Request {
    Request::Exec(ExecRequest { limits, ..exec_request(&["bash", "-c", script]) })
}

#[test]
fn limits_come_from_the_handshake_and_the_call() {
    let mut guest = limited(LIMITS);
    let script = "ulimit -Hc; ulimit -Sn; ulimit -Hn; ulimit -Hf; ulimit -n 65 2>/dev/null || echo refused";
    assert_eq!(guest.bash(script).text(), "0\n64\n64\n1024\nrefused\n");
    let own = ProcessLimits { open_files: Some(32), cpu_seconds: Some(7), ..ProcessLimits::default() };
    let outcome = guest.call(with(own, "ulimit -Hn; ulimit -Hf; ulimit -St; ulimit -Ht"));
    assert_eq!(outcome.text(), "32\n1024\n7\n8\n");
    // The next program has those of the handshake again. A limit cannot be raised.
    let more = ProcessLimits { open_files: Some(u64::MAX), ..ProcessLimits::default() };
    let outcome = guest.call(with(more, "ulimit -Hn"));
    assert_ne!(outcome.text(), "64\n");
    assert_eq!(outcome.end(), ExecEnd::Exited(0), "{outcome:?}");
}

#[test]
fn without_limits_a_program_has_those_of_the_guest() {
    let (soft, hard) = {
        let own = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        (own.current, own.maximum)
    };
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let expected = format!("{}\n{}\n", show(soft), show(hard));
    assert_eq!(limited(ProcessLimits::default()).bash("ulimit -Sn; ulimit -Hn").text(), expected);
}

#[test]
fn a_program_above_a_limit_ends_as_the_kernel_ends_it() {
    let mut guest = limited(LIMITS);
    let outcome = guest.bash("exec head -c 2M /dev/zero > file");
    // SIGXFSZ.
    assert_eq!(outcome.end(), ExecEnd::Signaled(25));
    assert_eq!(std::fs::metadata(guest.work("file")).expect("it is there").len(), 1024 * 1024);

    let limits = ProcessLimits { memory_bytes: Some(256 * 1024 * 1024), ..ProcessLimits::default() };
    let script = "python3 -c 'bytearray(1 << 30)' 2>&1 | grep -o MemoryError";
    assert_eq!(guest.call(with(limits, script)).text(), "MemoryError\n");

    let limits = ProcessLimits { cpu_seconds: Some(1), ..ProcessLimits::default() };
    let outcome = guest.call(with(limits, "while :; do :; done"));
    // SIGXCPU.
    assert_eq!(outcome.end(), ExecEnd::Signaled(24));
    assert_eq!(guest.bash("echo well").text(), "well\n");
}

#[test]
fn a_program_without_memory_does_not_take_its_shim_with_it() {
    let mut guest = limited(ProcessLimits::default());
    let limits = ProcessLimits { memory_bytes: Some(1), cpu_seconds: Some(0), ..ProcessLimits::default() };
    let outcome = guest.call(with(limits, "true"));
    // The kernel cannot even map it.
    assert!(matches!(outcome.end(), ExecEnd::Signaled(_)), "{outcome:?}");
    assert_eq!(guest.bash("echo well").text(), "well\n");
}

/// Forks until it may not, and stays.
const STORM: &str = "import os, time
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
    except OSError as error:
        print('refused', flush=True)
        time.sleep(1000)
";

#[test]
fn a_fork_storm_is_reported_as_what_it_is_and_the_next_call_works() {
    let Some(mut guest) = contained() else { return };
    let limits = ProcessLimits { processes: Some(40), ..ProcessLimits::default() };
    guest.handshake(CommandRules { limits, ..CommandRules::default() });
    let argv = ["python3", "-c", STORM];
    let storm = ExecRequest { output: OutputMode::Stream, ..exec_request(&argv) };
    let channel = guest.open(Request::Exec(storm), PLENTY, None);
    let frame = guest.next_of(channel);
    assert_eq!(frame.data(), Ok((StreamId::Stdout, b"refused\n".as_slice())));
    guest.send(FrameKind::Cancel, channel, &[]);
    let outcome = guest.finish(channel);
    assert_eq!(outcome.end(), ExecEnd::Cancelled);
    assert!(outcome.exec().reached.processes);
    guest.assert_nothing_left();
    let outcome = guest.bash("(echo well)");
    assert_eq!((outcome.text().as_str(), outcome.exec().reached.processes), ("well\n", false));
}
