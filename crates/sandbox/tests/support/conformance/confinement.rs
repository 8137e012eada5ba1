//! That commands can harm neither the guest nor the host, and see nothing of it.

use conjure_sandbox::{Boundary, Command, CommandEnd, Executor, SandboxErrorKind};

use crate::support::{Fixture, Kind, bash, options, text};

/// The guest's own tests make the same attacks outside of a sandbox. It prints a line for each, and a summary.
const ATTACKS: &str = include_str!("../../../../guest/tests/attacks.py");

/// System calls, `/proc/1/mem`, limits and scheduling of process 1, sockets of other families, keys, namespaces.
pub(crate) async fn every_attack_is_refused(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    assert_eq!(fixture.sandbox.isolation().syscalls, Boundary::Enforced);
    let attacks = Command::new(["python3", "-c", ATTACKS, "1"]);
    let outcome = fixture.sandbox.run(attacks, options()).await.unwrap();
    let output = text(&outcome);
    let wrong: Vec<&str> = output.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{wrong:#?}");
    assert!(wrong.len() == 1 && wrong[0].ends_with("wrong: 0"), "{wrong:#?}");
    assert!(output.lines().count() > 100);
    assert_eq!(text(&fixture.bash("echo well").await.unwrap()), "well\n");
}

/// The host's files, sockets and devices.
pub(crate) async fn nothing_of_the_host_is_there(kind: &dyn Kind) {
    let secret = tempfile::Builder::new().prefix("conjure-host-file-").tempfile().unwrap();
    let fixture = Fixture::of(kind).await;
    let absent = [
        secret.path().to_str().unwrap(),
        fixture.mark(),
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
    assert_eq!(bash(&fixture, &script).await, "");
    let hidden = "cat /proc/kcore /proc/keys /proc/timer_list 2> /dev/null | wc -c";
    assert_eq!(bash(&fixture, hidden).await, "0\n");
    let environment = bash(&fixture, "env").await;
    assert!(!environment.contains("ANTHROPIC") && !environment.contains("not for commands"), "{environment}");
}

/// Processes, interfaces, descriptors.
pub(crate) async fn commands_see_their_own_sandbox_alone(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    // The guest, the command's supervisor, the shell, its child.
    let names = bash(&fixture, "cat /proc/[0-9]*/comm 2> /dev/null || true").await;
    let is_own = |name: &str| {
        let is_known = ["conjure-guest", "bash", "cat"].iter().any(|known| name.starts_with(known));
        // A guest that is run from memory is called by the number of the file.
        is_known || name.parse::<u32>().is_ok()
    };
    assert!(names.lines().all(is_own) && names.lines().count() <= 5, "{names}");
    assert_eq!(bash(&fixture, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await, "lo\n");
    let open = "readlink /proc/self/fd/* | grep -v -e '^pipe:' -e '^/dev/null$' -e '^/proc/' || true";
    assert_eq!(bash(&fixture, open).await, "");
}

pub(crate) async fn commands_have_no_privileges_and_get_none(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let status = bash(&fixture, "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'").await;
    let none = "0000000000000000";
    let expected = format!(
        "CapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n"
    );
    assert_eq!(status, expected);
    // The files are the host's user's on its disk: none of them may become a program that runs as its owner.
    let script = "cp /usr/bin/id id && chmod 6755 id; stat -c %a id; test $(./id -u) = $(id -u) && ./id -u";
    let output = bash(&fixture, script).await;
    assert!(
        output.starts_with("chmod: changing permissions of 'id': Operation not permitted\n755\n"),
        "{output}"
    );
    assert!(!output.ends_with("\n0\n"), "{output}");
}

pub(crate) async fn read_only_paths_are_not_written(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    for path in ["", "/usr", "/usr/bin", "/etc", "/dev", "/mnt", "/output", "/run", "/proc/sys"] {
        let script = format!("echo x > {path}/new");
        assert_ne!(fixture.bash(&script).await.unwrap().end, CommandEnd::Exited(0), "{path}/new was written");
    }
    for path in ["/etc/passwd", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"] {
        let script = format!("echo x >> {path}");
        assert_ne!(fixture.bash(&script).await.unwrap().end, CommandEnd::Exited(0), "{path} was written");
    }
    let error = fixture.sandbox.create_file("/etc/x", b"x", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::PathNotAllowed, "{error}");
    assert!(fixture.sandbox.create_file("/tmp/x", b"x", options()).await.is_ok());
}

pub(crate) async fn limits_are_in_force_and_cannot_be_raised(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let limits = "ulimit -Hc; ulimit -Hn; (ulimit -n 1000000) 2> /dev/null || echo no";
    assert_eq!(bash(&fixture, limits).await, "0\n1024\nno\n");
}

pub(crate) async fn when_memory_runs_out_commands_are_chosen_before_the_guest(kind: &dyn Kind) {
    let fixture = Fixture::of(kind).await;
    let scores = bash(&fixture, "cat /proc/self/oom_score_adj /proc/1/oom_score_adj").await;
    let scores: Vec<i32> = scores.lines().map(|line| line.parse().unwrap()).collect();
    assert!(scores[0] > scores[1], "{scores:?}");
}
