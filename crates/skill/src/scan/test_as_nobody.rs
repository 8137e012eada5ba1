//! Runs tests about permissions as an unprivileged user. Root bypasses permissions, so root runs them again in a
//! child process of another user.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The user id of "nobody" on every system.
const NOBODY_UID: u32 = 65534;

/// Runs `body`. For root, runs the test of this name in a process of "nobody", with its own temporary directory.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test runs itself as somebody else")]
pub(crate) fn check(test: &str, body: fn()) {
    if !rustix::process::geteuid().is_root() {
        return body();
    }
    let temp = tempfile::tempdir().unwrap();
    chown(temp.path(), Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    // The link makes it accessible where "nobody" has no access.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", test, "--nocapture"]).current_dir(temp.path()).env("TMPDIR", temp.path());
    let output = command.uid(NOBODY_UID).gid(NOBODY_UID).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
