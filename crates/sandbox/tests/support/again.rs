//! A test in a process of its own: the test's program starts itself for that one test, and tells it so.
//!
//! For what must not meet other tests (memory is measured for a whole process) or the process' own end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Holds what a test is told that was started again.
const TOLD: &str = "CONJURE_TEST_TOLD";

/// What this process was told, if it was started by [`again`].
#[expect(clippy::disallowed_methods, reason = "it is set by `again` alone")]
pub(crate) fn told() -> Option<String> {
    std::env::var(TOLD).ok()
}

/// This program, for the test of this name alone; `prefix` are programs to start it with, such as `unshare`.
pub(crate) fn again(prefix: &[&str], test: &str, told: &str) -> Command {
    program(&std::env::current_exe().unwrap(), prefix, test, told)
}

/// As [`again`], by a copy in this folder: where another user can reach it.
pub(crate) fn again_copied(folder: &Path, test: &str, told: &str) -> Command {
    program(&copied(folder), &[], test, told)
}

/// A process that is killed with this, also when a test fails in between.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A copy of this program in this folder.
#[expect(clippy::disallowed_methods, reason = "a test starts itself")]
pub(crate) fn copied(folder: &Path) -> PathBuf {
    let copy = folder.join("test");
    // By another process: what this one has open for writing, or a child forked just then, cannot be run.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
    assert!(copied.unwrap().success());
    copy
}

#[expect(clippy::disallowed_methods, reason = "a test starts itself")]
fn program(own: &Path, prefix: &[&str], test: &str, told: &str) -> Command {
    let own = own.to_str().unwrap();
    let arguments = [prefix, &[own, "--exact", test, "--nocapture", "--test-threads", "1"]].concat();
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).env(TOLD, told).stdin(Stdio::null());
    command
}
