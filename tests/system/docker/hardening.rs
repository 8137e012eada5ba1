//! How a container is closed, as commands meet it.

use conjure_sandbox::{
    Boundary, CommandEnd, DockerOptions, ExecutionContext, Executor, Isolation, Limits, SandboxErrorKind,
};

use crate::world::{World, open};

#[tokio::test]
async fn commands_have_nothing_to_attack_with() {
    let Some(world) = World::new() else { return };
    let it = world.container().await;
    let status = it.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d '\\t'").await;
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
        let outcome = it.run(&["bash", "-c", script]).await.unwrap();
        assert_ne!(outcome.end, CommandEnd::Exited(0), "{script}");
    }
    let probe = "import ctypes, errno\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        def call(*a):\n\
        \x20   ctypes.set_errno(0); r = libc.syscall(*a); return errno.errorcode.get(ctypes.get_errno(), 'ok') if r < 0 else 'ok'\n\
        print(call(425, 1, 0), call(435, 0, 0), call(41, 40, 1, 0), call(41, 38, 5, 0), call(250, 0, 0), call(101, 0))";
    if std::env::consts::ARCH == "x86_64" {
        let outcome = it.run(&["python3", "-c", probe]).await.unwrap();
        let said = crate::support::text(&outcome);
        // io_uring, clone3, AF_VSOCK, AF_ALG, keyctl, ptrace.
        assert_eq!(said, "ENOSYS ENOSYS EAFNOSUPPORT EAFNOSUPPORT EPERM EPERM\n");
    }
    assert_eq!(it.sh("echo alive").await, "alive\n");
    it.sandbox.cleanup().await;
}

/// The engine's filter without the guest's, which refuses most of the same: a container that is not a sandbox.
#[tokio::test]
async fn the_engines_filter_holds_without_the_guests() {
    let Some(world) = World::new() else { return };
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
    let said = world.said_without_guest(&["python3", "-c", probe]).await;
    // io_uring, clone3, AF_VSOCK, AF_ALG, keyctl, ptrace, bpf, a namespace of users; AF_INET.
    assert_eq!(said, "ENOSYS ENOSYS EPERM EPERM EPERM EPERM EPERM EPERM ok\n");
}

#[tokio::test]
async fn limits_are_the_engines_and_what_runs_into_them_is_told() {
    let Some(world) = World::new() else { return };
    let limits = Limits::default().with_memory(48 << 20).unwrap().with_processes(40).unwrap();
    let it = world.container_with(&world.connector(), |context| context.limits = limits).await;
    let isolation = it.sandbox.isolation();
    let is_owner = !rustix::process::geteuid().is_root();
    assert_eq!(isolation.open().collect::<Vec<_>>(), if is_owner { vec!["identity"] } else { vec![] });
    let hog = it.run(&["python3", "-c", "x = bytearray(200 << 20)"]).await.unwrap();
    assert_eq!(hog.end, CommandEnd::OutOfMemory);
    assert!(hog.limits_hit.memory);
    assert_eq!(
        it.sh("echo alive; cat /proc/self/limits | grep -c 'Max core file size *0'").await,
        "alive\n1\n"
    );
    it.sandbox.cleanup().await;
}

#[tokio::test]
async fn what_is_demanded_and_cannot_be_had_is_refused_before_and_after() {
    let Some(world) = World::new() else { return };
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext { floor: Isolation::FULL, ..ExecutionContext::new(workspace.path()) };
    match open(&world.connector(), &context).await {
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
    let options = DockerOptions { user: Some("1000:1000".to_owned()), ..world.options() };
    let context = ExecutionContext { floor, ..ExecutionContext::new(workspace.path()) };
    let refused = open(&conjure_sandbox::Docker::new(options, []), &context).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::NotEnforced);
    assert!(world.containers().await.is_empty());
}
