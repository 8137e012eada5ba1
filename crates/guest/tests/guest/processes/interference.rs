//! Commands that stop or kill the guest's own processes.

use conjure_guest::protocol::{ExecEnd, Reply, Request};

use crate::client::{Guest, PLENTY, bash, wait_until};

/// Sends a signal to all children of the guest but the one above it, again and again.
const ATTACK: &str = "import os, sys
guest, own, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
open(\"begun\", \"w\").close()
while True:
    for child in open(f\"/proc/{guest}/task/{guest}/children\").read().split():
        try:
            child != own and os.kill(int(child), number)
        except ProcessLookupError:
            pass
";

/// The same to the programs below them.
const ATTACK_ON_PROGRAMS: &str = "import os, sys
guest, own, number = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
open(\"begun\", \"w\").close()
while True:
    for shim in open(f\"/proc/{guest}/task/{guest}/children\").read().split():
        try:
            for child in open(f\"/proc/{shim}/task/{shim}/children\").read().split():
                shim != own and os.kill(int(child), number)
        except OSError:
            pass
";

/// Leaves an attack running.
fn attacked(attack: &str, signal: i32) -> Guest {
    let mut guest = Guest::start();
    std::fs::write(guest.work("attack.py"), attack).expect("written");
    let script = format!("python3 attack.py {} $PPID {signal} > /dev/null 2>&1 & echo", guest.pid());
    assert_eq!(guest.bash(&script).end(), ExecEnd::Exited(0));
    let begun = guest.work("begun");
    wait_until("the attack has begun", || begun.exists());
    guest
}

/// How many of the first calls fail, each with this timeout in milliseconds. Those behind them are well.
#[track_caller]
fn failing(guest: &mut Guest, timeout: u64) -> usize {
    let mut call = || {
        let channel = guest.open(bash("sleep 0.2; echo well"), PLENTY, Some(timeout));
        guest.finish(channel).end() == ExecEnd::Exited(0)
    };
    let failing = (0..8).take_while(|_| !call()).count();
    assert!((0..3).all(|_| call()), "later ones fail, too");
    failing
}

#[test]
fn a_process_that_stops_shims_is_killed_and_no_call_fails() {
    let mut guest = attacked(ATTACK, 19);
    let path = guest.work("file").to_str().expect("UTF-8").to_owned();
    assert!(matches!(guest.call(Request::MakeDir { path, mode: 0o755 }).result, Ok(Reply::MakeDir { .. })));
    assert_eq!(failing(&mut guest, 2_000), 0);
    guest.assert_nothing_left();
}

#[test]
fn a_process_that_kills_shims_is_killed_after_a_few_calls() {
    let mut guest = attacked(ATTACK, 9);
    // On a busy machine a call that nobody killed may take seconds.
    assert!(failing(&mut guest, 60_000) <= 5);
    guest.assert_nothing_left();
}

#[test]
fn a_process_that_stops_programs_is_killed_after_a_few_calls() {
    let mut guest = attacked(ATTACK_ON_PROGRAMS, 19);
    assert!(failing(&mut guest, 2_000) <= 2);
    guest.assert_nothing_left();
}

#[test]
fn a_process_that_kills_programs_is_killed_after_a_few_calls() {
    let mut guest = attacked(ATTACK_ON_PROGRAMS, 9);
    assert!(failing(&mut guest, 60_000) <= 5);
    guest.assert_nothing_left();
}

/// A process may stop programs until just before their timeout.
#[test]
fn processes_of_earlier_calls_are_killed_when_call_after_call_reaches_its_timeout() {
    let mut guest = Guest::start();
    assert_eq!(guest.bash("sleep 1000 > /dev/null 2>&1 & echo").end(), ExecEnd::Exited(0));
    for _ in 0..3 {
        let channel = guest.open(bash("exec sleep 1000"), PLENTY, Some(100));
        assert_eq!(guest.finish(channel).end(), ExecEnd::TimedOut);
    }
    guest.assert_nothing_left();
}

#[test]
fn a_running_program_is_ended_when_it_disturbs_others() {
    let mut guest = Guest::start();
    std::fs::write(guest.work("attack.py"), ATTACK).expect("written");
    let script = format!("exec python3 attack.py {} $PPID 19", guest.pid());
    let attack = guest.open(bash(&script), PLENTY, None);
    let begun = guest.work("begun");
    wait_until("the attack has begun", || begun.exists());
    assert_eq!(guest.bash("sleep 1000").end(), ExecEnd::Lost);
    assert_eq!(guest.finish(attack).end(), ExecEnd::Lost);
    assert_eq!(failing(&mut guest, 2_000), 0);
}
