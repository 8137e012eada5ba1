//! That commands in a jail can harm neither the guest, which is process 1 there, nor the host (S13).

#![expect(clippy::unwrap_used, reason = "helpers of a test fail by panic")]

mod support;

use conjure_sandbox::{Boundary, Command, CommandEnd, Executor};
use support::{Bed, jail_bed, options, text};

/// The guest's own tests make the same attacks outside of a jail. It prints a line for each, and a summary.
const ATTACKS: &str = include_str!("../../guest/tests/attacks.py");

async fn said(bed: &Bed, script: &str) -> String {
    let outcome = bed.bash(script).await.unwrap();
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{}", text(&outcome));
    text(&outcome)
}

/// S13: system calls, `/proc/1/mem`, limits and scheduling of process 1, sockets of other families, keys, namespaces.
#[tokio::test]
async fn every_attack_is_refused() {
    let bed = jail_bed().await;
    assert_eq!(bed.sandbox.isolation().syscalls, Boundary::Enforced);
    let outcome =
        bed.sandbox.run(Command::new(["/usr/bin/python3", "-c", ATTACKS, "1"]), options()).await.unwrap();
    let said = text(&outcome);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{wrong:#?}");
    assert!(wrong.len() == 1 && wrong[0].ends_with("wrong: 0"), "{wrong:#?}");
    assert!(said.lines().count() > 100);
    assert_eq!(text(&bed.bash("echo well").await.unwrap()), "well\n");
}

/// S13: the host's files, processes, sockets and devices.
#[tokio::test]
async fn nothing_of_the_host_is_there() {
    let bed = jail_bed().await;
    let marked = tempfile::Builder::new().prefix("conjure-host-file-").tempfile().unwrap();
    let absent = [
        marked.path().to_str().unwrap(),
        "/root",
        "/etc/shadow",
        "/etc/ssh",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/containerd",
        "/run/dbus",
        "/sys/fs/cgroup",
        "/sys/kernel",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/sda",
        "/dev/fuse",
        "/dev/kvm",
        "/dev/net/tun",
        "/boot",
    ];
    let script = format!("for path in {}; do test -e $path && echo $path; done; true", absent.join(" "));
    assert_eq!(said(&bed, &script).await, "");
    // All processes are the jail's: the guest, the command's supervisor, and the command.
    let seen = said(&bed, "cd /proc && ls -d [0-9]* | wc -l").await;
    assert!(seen.trim().parse::<u32>().unwrap() <= 5, "{seen}");
    assert_eq!(said(&bed, "cat /proc/kcore /proc/keys /proc/timer_list 2> /dev/null | wc -c").await, "0\n");
    assert_eq!(
        said(&bed, "(echo 1 > /proc/sys/kernel/hostname) 2>&1 | grep -c 'Read-only\\|denied'").await,
        "1\n"
    );
}

#[tokio::test]
async fn commands_have_no_privileges_and_get_none() {
    let bed = jail_bed().await;
    let status = said(&bed, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'").await;
    let none = "0000000000000000";
    let expected = format!(
        "CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n"
    );
    assert_eq!(status, expected);
    // The files are the host's user's on its disk: none of them may become a program that runs as its owner.
    let script = "cp /usr/bin/id id && chmod 6755 id; stat -c %a id; ./id -u";
    let expected = "chmod: changing permissions of 'id': Operation not permitted\n755\n1000\n";
    assert_eq!(said(&bed, script).await, expected);
}

#[tokio::test]
async fn the_root_and_what_comes_from_the_host_cannot_be_changed() {
    let bed = jail_bed().await;
    for path in ["/", "/usr", "/usr/bin", "/etc", "/dev", "/mnt", "/output", "/proc/sys"] {
        let script = format!(
            "(touch {path}/new) 2>&1 | grep -c 'Read-only file system\\|Permission denied\\|No such file'"
        );
        assert_eq!(said(&bed, &script).await, "1\n", "{path}");
    }
    // The limits are in force, and what they forbid is not to be had back.
    assert_eq!(
        said(&bed, "ulimit -Hc; ulimit -Hn; (ulimit -n 1000000) 2> /dev/null || echo no").await,
        "0\n1024\nno\n"
    );
}

#[tokio::test]
async fn when_memory_runs_out_commands_are_chosen_before_the_guest() {
    let bed = jail_bed().await;
    assert_eq!(said(&bed, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj").await, "500\n0\n");
}

/// What keeps programs running as on any machine.
#[tokio::test]
async fn honest_programs_do_not_notice() {
    let bed = jail_bed().await;
    let script = r#"
import asyncio, concurrent.futures, fcntl, mmap, multiprocessing, os, resource, signal, socket, subprocess, tempfile, threading, time
def square(x): return x * x
async def child():
    process = await asyncio.create_subprocess_exec("echo", "async", stdout=subprocess.PIPE)
    return (await process.communicate())[0]
def main():
    with concurrent.futures.ThreadPoolExecutor(4) as pool: assert list(pool.map(square, range(9)))[8] == 64
    with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(square, [3]) == [9]
    assert asyncio.run(child()) == b"async\n"
    assert subprocess.run(["nice", "-n", "3", "nice"], capture_output=True).stdout == b"3\n"
    assert subprocess.run(["timeout", "9", "true"]).returncode == 0
    assert subprocess.run(["taskset", "1", "true"]).returncode == 0
    os.sched_setaffinity(0, os.sched_getaffinity(0)); os.setpriority(os.PRIO_PROCESS, 0, 5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); resource.prlimit(0, resource.RLIMIT_CPU)
    resource.prlimit(os.getpid(), resource.RLIMIT_CPU)
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    server = socket.create_server(("127.0.0.1", 0)); socket.create_connection(server.getsockname())
    socket.create_server(("::1", 0), family=socket.AF_INET6) if os.path.exists("/proc/net/if_inet6") else None
    assert socket.getaddrinfo("localhost", 80)
    with tempfile.NamedTemporaryFile() as file: fcntl.flock(file, fcntl.LOCK_EX)
    mmap.mmap(-1, 4096)
    os.memfd_create("m"); os.pidfd_open(os.getpid()); os.mkfifo("/tmp/pipe")
    process = subprocess.Popen(["sleep", "1000"]); process.send_signal(signal.SIGTERM); assert process.wait() == -15
    pid, fd = os.forkpty()
    if pid == 0: os._exit(0)
    os.waitpid(pid, 0)
    print("well")
if __name__ == "__main__": main()
"#;
    std::fs::write(bed.path("honest.py"), script).unwrap();
    let outcome = bed.bash("/usr/bin/python3 honest.py").await.unwrap();
    assert_eq!((text(&outcome).as_str(), outcome.end), ("well\n", CommandEnd::Exited(0)));
}
