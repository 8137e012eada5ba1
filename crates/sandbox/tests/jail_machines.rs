//! Jails on machines that lack something: user namespaces, room on the disk. Each test starts itself in namespaces of its
//! own (`unshare`), where it changes what would otherwise be the whole machine's; they end with it.

#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

#[expect(dead_code, reason = "only a part of the module is used here")]
mod support;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{
    CommandEnd, ExecutionContext, Executor, Jail, Local, Sandbox, SandboxError, SandboxErrorKind,
};
use support::{PatientClock, descendants, host, options, rerun, soon, test_parameters, text};

/// A user namespace whose only user is none that owns anything, with rights over what belongs to it; a shell prepares it,
/// and becomes the test without these rights.
const UNPRIVILEGED: [&str; 8] =
    ["unshare", "--user", "--map-user=1234", "--map-group=1234", "--keep-caps", "--mount", "sh", "-c"];

/// Runs this test again after `preparation`, a shell script, in namespaces of its own. It is told its directory.
#[track_caller]
fn rerun_in_namespaces(test: &str, preparation: &str) {
    test_support::need_user_namespaces();
    let dir = tempfile::tempdir().unwrap();
    for name in ["workspace", "tmp"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let script = format!("set -e; {preparation}; exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"");
    let prefix = [&UNPRIVILEGED[..], &[script.as_str(), "sh"]].concat();
    let mut command = rerun(&prefix, test, dir.path().to_str().unwrap());
    let outcome = command.current_dir(dir.path()).env("TMPDIR", dir.path().join("tmp")).output().unwrap();
    let output = String::from_utf8_lossy(&outcome.stdout);
    let is_good = outcome.status.success() && output.contains("1 passed");
    assert!(is_good, "{output}{}", String::from_utf8_lossy(&outcome.stderr));
    // No sandbox leaves files in its temporary directory.
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0);
}

async fn open(dir: &str) -> Result<Sandbox, SandboxError> {
    let context = ExecutionContext::new(Path::new(dir).join("workspace"));
    Sandbox::open(&Jail::new(host()), &context, Arc::new(PatientClock), soon(120)).await
}

async fn bash(sandbox: &Sandbox, script: &str) -> (CommandEnd, String) {
    let outcome = sandbox.run(conjure_sandbox::Command::bash(script), options()).await.unwrap();
    (outcome.end, text(&outcome))
}

#[tokio::test]
async fn without_user_namespaces_opening_a_jail_fails_with_a_hint() {
    let Some(dir) = test_parameters() else {
        return rerun_in_namespaces(
            "without_user_namespaces_opening_a_jail_fails_with_a_hint",
            "echo 0 > /proc/sys/user/max_user_namespaces",
        );
    };
    for _ in 0..3 {
        let error = open(&dir).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
        let message = error.to_string();
        assert!(message.contains("`sysctl user.max_user_namespaces=15000` switches them on"), "{message}");
    }
    assert!(descendants(std::process::id()).is_empty());
    // The kind that isolates nothing is there, for those who ask for it by name.
    let context = ExecutionContext::new(Path::new(&dir).join("workspace"));
    let local = Local::without_isolation(host());
    let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), soon(60)).await.unwrap();
    assert_eq!(bash(&sandbox, "echo well").await, (CommandEnd::Exited(0), "well\n".to_owned()));
    sandbox.cleanup().await;
}

#[tokio::test]
async fn at_the_namespace_limit_the_next_jail_waits_for_another_to_end() {
    let Some(dir) = test_parameters() else {
        return rerun_in_namespaces(
            "at_the_namespace_limit_the_next_jail_waits_for_another_to_end",
            "echo 1 > /proc/sys/user/max_user_namespaces",
        );
    };
    let first = open(&dir).await.unwrap();
    let error = open(&dir).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::Unavailable);
    assert!(error.to_string().contains("end other sandboxes") && error.is_retryable(), "{error}");
    assert_eq!(bash(&first, "echo well").await, (CommandEnd::Exited(0), "well\n".to_owned()));
    first.cleanup().await;
    // The kernel gives a namespace back some time after its last process.
    let deadline = soon(60);
    let next = loop {
        match open(&dir).await {
            Ok(next) => break next,
            Err(error) => assert!(!SystemClock.remaining(deadline).is_zero(), "{error}"),
        }
    };
    assert_eq!(bash(&next, "echo well").await, (CommandEnd::Exited(0), "well\n".to_owned()));
    next.cleanup().await;
}

#[tokio::test]
async fn a_full_disk_is_reported_and_can_be_cleared() {
    let Some(dir) = test_parameters() else {
        return rerun_in_namespaces(
            "a_full_disk_is_reported_and_can_be_cleared",
            "mount -t tmpfs -o size=1m,mode=777 tmpfs workspace",
        );
    };
    let sandbox = open(&dir).await.unwrap();
    let large = vec![b'x'; 2 << 20];
    let error = sandbox.create_file("large", &large, options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{error}");
    let (end, output) = bash(&sandbox, "head -c 2M /dev/zero > zeros").await;
    assert!(end == CommandEnd::Exited(1) && output.contains("No space left on device"), "{end:?} {output}");
    let error = sandbox.create_file("small", b"x".repeat(9000).as_slice(), options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{error}");
    // There is no partial file.
    assert_eq!(bash(&sandbox, "ls -A").await, (CommandEnd::Exited(0), "zeros\n".to_owned()));
    assert_eq!(bash(&sandbox, "rm zeros && echo well").await, (CommandEnd::Exited(0), "well\n".to_owned()));
    sandbox.create_file("small", b"x", options()).await.unwrap();
    sandbox.cleanup().await;
}

#[tokio::test]
async fn without_space_for_temporary_files_output_is_truncated_and_counted() {
    let Some(dir) = test_parameters() else {
        return rerun_in_namespaces(
            "without_space_for_temporary_files_output_is_truncated_and_counted",
            "mount -t tmpfs -o size=64k,mode=777 tmpfs tmp",
        );
    };
    let sandbox = open(&dir).await.unwrap();
    let script = "head -c 300000 /dev/zero | tr '\\0' x; echo end";
    let outcome = sandbox.run(conjure_sandbox::Command::bash(script), options()).await.unwrap();
    assert_eq!((outcome.end, outcome.stdout.total), (CommandEnd::Exited(0), 300_004));
    assert!(outcome.stdout.tail.ends_with(b"xend\n") && outcome.stdout.spilled < 300_004);
    assert_eq!(bash(&sandbox, "echo well").await, (CommandEnd::Exited(0), "well\n".to_owned()));
    sandbox.cleanup().await;
    // Not even a directory can be made.
    for number in 0.. {
        if fs::write(Path::new(&dir).join("tmp").join(number.to_string()), [0; 4096]).is_err() {
            break;
        }
    }
    match open(&dir).await {
        Ok(sandbox) => {
            assert_eq!(bash(&sandbox, "echo well").await, (CommandEnd::Exited(0), "well\n".to_owned()));
            sandbox.cleanup().await;
        }
        Err(error) => {
            let kinds = [SandboxErrorKind::Unavailable, SandboxErrorKind::NoSpace];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
    }
}
