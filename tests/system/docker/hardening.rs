//! The hardening of a container, as its commands see it.

use conjure_sandbox::{
    Boundary, CommandEnd, DockerOptions, ExecutionContext, Executor, Isolation, Limits, SandboxErrorKind,
};

use crate::container_fixture::{ContainerFixture, open};

#[tokio::test]
async fn commands_have_no_privileges_to_attack_with() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let container = fixture.container().await;
    let status = container.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'").await;
    let caps = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]
        .map(|name| format!("{name}:0000000000000000\n"))
        .concat();
    assert_eq!(status, format!("{caps}NoNewPrivs:1\nSeccomp:2\n"));
    for script in [
        "unshare -r true",
        "mount -t tmpfs none /tmp",
        "kill -9 1",
        "cat /proc/1/mem",
        "cat /proc/1/environ",
        "prlimit --pid 1 --cpu=1",
        "chrt -o -p 0 1",
        "renice -n 5 -p 1",
        "ls /proc/1/fd",
        "test -e /var/run/docker.sock",
        "ls /sys/kernel/debug/tracing",
        "echo c > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/kernel/panic",
    ] {
        let outcome = container.run(&["bash", "-c", script]).await.unwrap();
        assert_ne!(outcome.end, CommandEnd::Exited(0), "{script}");
    }
    let probe = "import ctypes, errno\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        def call(*a):\n\
        \x20   ctypes.set_errno(0); r = libc.syscall(*a); return errno.errorcode.get(ctypes.get_errno(), 'ok') if r < 0 else 'ok'\n\
        print(call(425, 1, 0), call(435, 0, 0), call(41, 40, 1, 0), call(41, 38, 5, 0), call(250, 0, 0), call(101, 0))";
    if std::env::consts::ARCH == "x86_64" {
        let outcome = container.run(&["python3", "-c", probe]).await.unwrap();
        let output = crate::support::text(&outcome);
        // io_uring, clone3, AF_VSOCK, AF_ALG, keyctl, ptrace.
        assert_eq!(output, "ENOSYS ENOSYS EAFNOSUPPORT EAFNOSUPPORT EPERM EPERM\n");
    }
    assert_eq!(container.sh("echo alive").await, "alive\n");
    container.sandbox.cleanup().await;
}

/// The engine's filter without the guest's, which refuses most of the same: a container that is not a sandbox.
#[tokio::test]
async fn the_engines_seccomp_filter_works_without_the_guests() {
    let Some(fixture) = ContainerFixture::new() else { return };
    if std::env::consts::ARCH != "x86_64" {
        test_support::not_applicable("the numbers of system calls are those of x86-64");
        return;
    }
    let probe = "import ctypes, errno, os\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        def call(*a):\n\
        \x20   ctypes.set_errno(0); r = libc.syscall(*a); return errno.errorcode.get(ctypes.get_errno(), 'ok') if r < 0 else 'ok'\n\
        os.posix_fadvise(os.open('/bin/sh', os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)\n\
        print(call(425, 1, 0), call(435, 0, 0), call(41, 40, 1, 0), call(41, 38, 5, 0), call(250, 0, 0), call(101, 0), \
        call(321, 0, 0, 0), call(272, 0x10000000), call(41, 2, 1, 0))";
    let output = fixture.output_without_guest(&["python3", "-c", probe]).await;
    // io_uring, clone3, AF_VSOCK, AF_ALG, keyctl, ptrace, bpf, a namespace of users; AF_INET.
    assert_eq!(output, "ENOSYS ENOSYS EPERM EPERM EPERM EPERM EPERM EPERM ok\n");
}

#[tokio::test]
async fn the_engine_enforces_limits_and_violations_are_reported() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let limits = Limits::default().with_memory(48 << 20).unwrap().with_processes(40).unwrap();
    let container = fixture.container_with(&fixture.connector(), |context| context.limits = limits).await;
    let isolation = container.sandbox.isolation();
    let is_owner = !rustix::process::geteuid().is_root();
    assert_eq!(isolation.open().collect::<Vec<_>>(), if is_owner { vec!["identity"] } else { vec![] });
    let greedy = container.run(&["python3", "-c", "x = bytearray(200 << 20)"]).await.unwrap();
    assert_eq!(greedy.end, CommandEnd::OutOfMemory);
    assert!(greedy.limits_hit.memory);
    assert_eq!(
        container.sh("echo alive; cat /proc/self/limits | grep -c 'Max core file size *0'").await,
        "alive\n1\n"
    );
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn unavailable_isolation_is_rejected_before_and_after_creation() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext { floor: Isolation::FULL, ..ExecutionContext::new(workspace.path()) };
    match open(&fixture.connector(), &context).await {
        Ok(sandbox) => {
            assert_eq!(sandbox.isolation(), Isolation { disk: Boundary::Watched, ..Isolation::FULL });
            sandbox.cleanup().await;
        }
        // Only root can have commands run as somebody who owns nothing.
        Err(refused) => {
            assert!(!rustix::process::geteuid().is_root());
            assert_eq!(refused.kind(), SandboxErrorKind::NotEnforced);
        }
    }
    // As somebody who may own something, which is known when there is a container.
    let floor = Isolation { identity: Boundary::Enforced, ..Isolation::NONE };
    let options = DockerOptions { user: Some("1000:1000".to_owned()), ..fixture.options() };
    let context = ExecutionContext { floor, ..ExecutionContext::new(workspace.path()) };
    let refused = open(&conjure_sandbox::Docker::new(options, []), &context).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::NotEnforced);
    assert!(fixture.containers().await.is_empty());
}
