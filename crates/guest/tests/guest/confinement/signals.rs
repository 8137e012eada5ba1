//! Signals that commands send to a guest that is process 1.

use conjure_guest::protocol::{CommandRules, ExecEnd, SyscallRule};

use super::contained;
use crate::client::exec;

/// A write to the pipe raises the signal that was chosen, at the process that was chosen.
const BY_THE_KERNEL: &str = "import fcntl, os, signal
r, w = os.pipe()
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
fcntl.fcntl(r, fcntl.F_SETOWN, 1)
for number in signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP:
    fcntl.fcntl(r, 10, number)
    os.write(w, b'x')
print('sent')
";

#[test]
fn no_signal_from_inside_ends_or_stops_process_1() {
    let Some(mut guest) = contained() else { return };
    // Without the filter, so that they are sent.
    guest.handshake(CommandRules::default());
    let outcome = guest.bash(
        "for signal in TERM INT HUP QUIT KILL STOP CHLD USR1 RTMIN; do kill -$signal 1; done; echo sent",
    );
    assert_eq!((outcome.text().as_str(), outcome.end()), ("sent\n", ExecEnd::Exited(0)));
    assert_eq!(guest.call(exec(&["python3", "-c", BY_THE_KERNEL])).text(), "sent\n");
    let by_descriptor =
        "import os, signal; signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGTERM); print('sent')";
    assert_eq!(guest.call(exec(&["python3", "-c", by_descriptor])).text(), "sent\n");
    assert_eq!(guest.bash("echo well").text(), "well\n");
}

/// Too many signals wait, so the kernel forgets who sent the next one.
const ANONYMOUS: &str = "import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 65))
value = ctypes.c_void_p(0)
count = 0
while libc.sigqueue(os.getpid(), 40, value) == 0: count += 1
print('waiting' if count else 'none', flush=True)
print(libc.syscall(200 if os.uname().machine == 'x86_64' else 130, 1, 15), ctypes.get_errno())
";

#[test]
fn nor_does_a_signal_with_an_unknown_sender() {
    let Some(mut guest) = contained() else { return };
    guest.handshake(CommandRules { syscalls: SyscallRule::Guarded, ..CommandRules::default() });
    let outcome = guest.call(exec(&["python3", "-c", ANONYMOUS]));
    assert_eq!(outcome.text(), "waiting\n-1 1\n", "{outcome:?}");
    assert_eq!(guest.bash("echo well").text(), "well\n");
}

/// Kills all processes in the group of process 1, which stays.
const TO_THE_GROUP: &str = "import ctypes, os, time
pidfd = os.pidfd_open(1)
if ctypes.CDLL(None).syscall(424, pidfd, 9, None, 4) == 0: time.sleep(1000)
print('refused')
";

#[test]
fn the_process_group_of_process_1_is_not_killed() {
    let Some(mut guest) = contained() else { return };
    guest.handshake(CommandRules { syscalls: SyscallRule::Guarded, ..CommandRules::default() });
    assert_eq!(guest.call(exec(&["python3", "-c", TO_THE_GROUP])).text(), "refused\n");
}

#[test]
fn without_the_filter_only_the_current_call_fails() {
    let kill_all = "import os, signal, time; os.kill(-1, signal.SIGKILL); time.sleep(1000)";
    let kill_own = "import os, signal, time; os.kill(0, signal.SIGKILL); time.sleep(1000)";
    let Some(mut guest) = contained() else { return };
    guest.handshake(CommandRules::default());
    for attack in [TO_THE_GROUP, kill_all] {
        let end = guest.call(exec(&["python3", "-c", attack])).end();
        // Kernels before 6.9 know no groups here.
        assert!(matches!(end, ExecEnd::Lost | ExecEnd::Exited(0)), "{end:?}");
        assert_eq!(guest.bash("echo well").text(), "well\n");
    }
    assert_eq!(guest.call(exec(&["python3", "-c", kill_own])).end(), ExecEnd::Signaled(9));
    assert_eq!(guest.bash("echo well").text(), "well\n");
}
