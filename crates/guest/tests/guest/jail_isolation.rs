//! Jails and what they share with the host's user and with each other: the kernel's counts, keys, names and terminals.

use std::fs;
use std::os::unix::fs::MetadataExt;

use conjure_guest::protocol::{ExecEnd, ExecRequest, FrameKind, OutputMode, Request, StdinMode};

use crate::client::{Guest, PLENTY, exec_request, wait_until};
use crate::jail::{hosts, output_of};

#[test]
fn a_jail_gets_a_share_of_the_per_user_limits() {
    for host in hosts() {
        let mut guest = host.jailed();
        let most = output_of(&mut guest, "ulimit -Hi; ulimit -Hq");
        let most: Vec<u64> = most.lines().map(|line| line.parse().expect("a number")).collect();
        assert!(matches!(most[..], [1..=4096, 1..=262_144]), "{most:?}");
        // Where the host's own are not shown, none can be lowered.
        if fs::read_to_string("/proc/sys/user/max_inotify_instances").is_ok() {
            let counts = output_of(
                &mut guest,
                "cd /proc/sys/user; cat max_inotify_instances max_inotify_watches max_user_namespaces",
            );
            let counts: Vec<u64> = counts.lines().map(|line| line.parse().expect("a number")).collect();
            assert!(matches!(counts[..], [1..=48, 1..=32_768, 0]), "{counts:?}");
            assert_ne!(guest.bash("echo 100 > /proc/sys/user/max_user_namespaces").end(), ExecEnd::Exited(0));
        }
    }
}

/// What makes a shared memory, a message queue and semaphores of System V under one key, and of POSIX under one name,
/// each of which must be new, and holds them until it is told to go.
const HOLD: &str = r#"exec /usr/bin/python3 -c '
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
new = 0o1000 | 0o2000 | 0o600
made = {
    "shmget": libc.shmget(4242, 4096, new), "msgget": libc.msgget(4242, new), "semget": libc.semget(4242, 1, new),
    "mq_open": libc.mq_open(b"/conjure-test", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, None),
}
print("made", [name for name, result in made.items() if result < 0], flush=True)
sys.stdin.read()
'"#;

#[test]
fn ipc_objects_of_one_jail_are_invisible_in_another() {
    for host in hosts() {
        let mut guests = [host.jailed(), host.jailed()];
        let holding = guests.each_mut().map(|guest| {
            let request = ExecRequest {
                stdin: StdinMode::Stream,
                output: OutputMode::Stream,
                ..exec_request(&["bash", "-c", HOLD])
            };
            let channel = guest.open(Request::Exec(request), PLENTY, None);
            let mut said = Vec::new();
            while !said.ends_with(b"\n") {
                let frame = guest.next_of(channel);
                if frame.kind == FrameKind::Data {
                    said.extend_from_slice(frame.data().expect("content").1);
                }
            }
            // Both at once: each is the first in its jail.
            assert_eq!(String::from_utf8_lossy(&said), "made []\n");
            channel
        });
        for (guest, channel) in guests.iter_mut().zip(holding) {
            guest.send(FrameKind::Eof, channel, b"");
            assert_eq!(guest.finish(channel).end(), ExecEnd::Exited(0));
        }
    }
}

/// A host with a terminal, which the guest is started on. The program that makes it lives until the guest is gone.
const ON_A_TERMINAL: &str = r#"exec /usr/bin/python3 -c '
import fcntl, os, sys, termios
master, slave = os.openpty()
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.close(os.open("/dev/tty", os.O_RDWR))
    os.execv(sys.argv[1], sys.argv[1:])
os.close(0); os.close(1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
' "$@""#;

#[test]
fn no_input_is_injected_into_a_terminal_of_the_host() {
    for host in hosts() {
        let mut guest = host.jailed_by(Some(ON_A_TERMINAL));
        // It has none itself, and so have its commands.
        assert_eq!(output_of(&mut guest, "cut -d' ' -f7 /proc/1/stat /proc/self/stat | sort -u"), "0\n");
        let outcome = guest.bash(
            "ls /dev/tty* /dev/pts/[0-9]* /proc/self/fd/* 2> /dev/null | xargs readlink | grep -E 'tty|pts'",
        );
        assert_eq!(outcome.text(), "");
        assert_eq!(guest.close().code(), Some(0));
    }
}

/// Other programs of the same user on the host may not look into a jail's processes, nor take anything from them.
#[test]
fn the_processes_of_a_jail_cannot_be_inspected_by_its_user() {
    for host in hosts() {
        let guest = host.jailed();
        let parent = guest.pid();
        let init = init_of(&guest);
        for pid in [parent, init] {
            // Whom the kernel lets look is the owner of these, which for a closed process is root.
            let environ = format!("/proc/{pid}/environ");
            wait_until("it closes itself", || fs::metadata(&environ).is_ok_and(|it| it.uid() == 0));
        }
    }
}

/// The jail's first process, as the host numbers it.
fn init_of(guest: &Guest) -> u32 {
    let pid = guest.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
    children.trim().parse().expect("one child")
}
