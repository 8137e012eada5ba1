//! `conjure serve` on a machine without jails.

use tokio::process::Command;

use crate::server::{dir, program};

/// The server sees at once that tools could not run.
#[tokio::test]
async fn a_server_without_jails_does_not_start() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    // A user namespace in which no other can be made, and whose root has no rights over the host's files.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$@\"";
    #[expect(clippy::disallowed_methods, reason = "the program is the one under test")]
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, "sh"]).arg(program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--sandbox", "jail", "--data"]).arg(data.path());
    command.arg("--script").arg(dir().join("scripts/echo.yaml")).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("no jail can be made") && stderr.contains("conjure doctor"), "{stderr}");
    assert!(output.stdout.is_empty(), "it never listens");
}
