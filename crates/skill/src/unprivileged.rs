//! Tests about permissions, which mean nothing to the superuser: as the superuser they run again in a child process that
//! is somebody else.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Nobody's id on every system.
const NOBODY: u32 = 65534;

/// Runs `body`, unless this is the superuser: then the test of this name in a process of nobody's, with a folder for
/// temporary files of its own.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test runs itself as somebody else")]
pub(crate) fn check(test: &str, body: fn()) {
    if !rustix::process::geteuid().is_root() {
        return body();
    }
    let temp = tempfile::tempdir().unwrap();
    chown(temp.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    // By this link it is found also where nobody may not go.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", test, "--nocapture"]).current_dir(temp.path()).env("TMPDIR", temp.path());
    let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
