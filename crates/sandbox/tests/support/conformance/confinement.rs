//! That commands can harm neither the guest nor the host, and see nothing of it (S13).

use conjure_sandbox::{Boundary, Command, CommandEnd, Executor, SandboxErrorKind};

use crate::support::{Bed, Kind, bash, options, text};

/// The guest's own tests make the same attacks outside of a sandbox. It prints a line for each, and a summary.
const ATTACKS: &str = include_str!("../../../../guest/tests/attacks.py");

/// S13: system calls, `/proc/1/mem`, limits and scheduling of process 1, sockets of other families, keys, namespaces.
pub(crate) async fn every_attack_is_refused(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    assert_eq!(bed.sandbox.isolation().syscalls, Boundary::Enforced);
    let attacks = Command::new(["python3", "-c", ATTACKS, "1"]);
    let outcome = bed.sandbox.run(attacks, options()).await.unwrap();
    let said = text(&outcome);
    let wrong: Vec<&str> = said.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{wrong:#?}");
    assert!(wrong.len() == 1 && wrong[0].ends_with("wrong: 0"), "{wrong:#?}");
    assert!(said.lines().count() > 100);
    assert_eq!(text(&bed.bash("echo well").await.unwrap()), "well\n");
}

/// S13: the host's files, sockets and devices.
pub(crate) async fn nothing_of_the_host_is_there(kind: &dyn Kind) {
    let secret = tempfile::Builder::new().prefix("conjure-host-file-").tempfile().unwrap();
    let bed = Bed::of(kind).await;
    let absent = [
        secret.path().to_str().unwrap(),
        bed.mark(),
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/containerd",
        "/run/dbus",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/sda",
        "/dev/vda",
        "/dev/fuse",
        "/dev/kvm",
        "/dev/net/tun",
    ];
    let script = format!("for path in {}; do test -e $path && echo $path; done; true", absent.join(" "));
    assert_eq!(bash(&bed, &script).await, "");
    let hidden = "cat /proc/kcore /proc/keys /proc/timer_list 2> /dev/null | wc -c";
    assert_eq!(bash(&bed, hidden).await, "0\n");
    let environment = bash(&bed, "env").await;
    assert!(!environment.contains("ANTHROPIC") && !environment.contains("not for commands"), "{environment}");
}

/// S13: processes, interfaces, descriptors.
pub(crate) async fn commands_see_their_own_sandbox_alone(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    // The guest, the command's supervisor, the shell, its child.
    let names = bash(&bed, "cat /proc/[0-9]*/comm 2> /dev/null || true").await;
    let is_own = |name: &str| {
        let is_known = ["conjure-guest", "bash", "cat"].iter().any(|known| name.starts_with(known));
        // A guest that is run from memory is called by the number of the file.
        is_known || name.parse::<u32>().is_ok()
    };
    assert!(names.lines().all(is_own) && names.lines().count() <= 5, "{names}");
    assert_eq!(bash(&bed, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo\n");
    let open = "readlink /proc/self/fd/* | grep -v -e '^pipe:' -e '^/dev/null$' -e '^/proc/' || true";
    assert_eq!(bash(&bed, open).await, "");
}

pub(crate) async fn commands_have_no_privileges_and_get_none(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    let status = bash(&bed, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'").await;
    let none = "0000000000000000";
    let expected = format!(
        "CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n"
    );
    assert_eq!(status, expected);
    // The files are the host's user's on its disk: none of them may become a program that runs as its owner.
    let script = "cp /usr/bin/id id && chmod 6755 id; stat -c %a id; test $(./id -u) = $(id -u) && ./id -u";
    let said = bash(&bed, script).await;
    assert!(
        said.starts_with("chmod: changing permissions of 'id': Operation not permitted\n755\n"),
        "{said}"
    );
    assert!(!said.ends_with("\n0\n"), "{said}");
}

pub(crate) async fn what_is_not_for_writing_is_not_written(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    for path in ["", "/usr", "/usr/bin", "/etc", "/dev", "/mnt", "/output", "/run", "/proc/sys"] {
        let script = format!("echo x > {path}/new");
        assert_ne!(bed.bash(&script).await.unwrap().end, CommandEnd::Exited(0), "{path}/new was written");
    }
    for path in ["/etc/passwd", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"] {
        let script = format!("echo x >> {path}");
        assert_ne!(bed.bash(&script).await.unwrap().end, CommandEnd::Exited(0), "{path} was written");
    }
    let error = bed.sandbox.create_file("/etc/x", b"x", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{error}");
    assert!(bed.sandbox.create_file("/tmp/x", b"x", options()).await.is_ok());
}

pub(crate) async fn limits_are_in_force_and_cannot_be_raised(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    let limits = "ulimit -Hc; ulimit -Hn; (ulimit -n 1000000) 2> /dev/null || echo no";
    assert_eq!(bash(&bed, limits).await, "0\n1024\nno\n");
}

pub(crate) async fn when_memory_runs_out_commands_are_chosen_before_the_guest(kind: &dyn Kind) {
    let bed = Bed::of(kind).await;
    let scores = bash(&bed, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj").await;
    let scores: Vec<i32> = scores.lines().map(|line| line.parse().unwrap()).collect();
    assert!(scores[0] > scores[1], "{scores:?}");
}
