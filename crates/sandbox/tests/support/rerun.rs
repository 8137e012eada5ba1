//! Runs one test in a separate process: the test program starts itself with the name of that test and parameters for it.
//!
//! Some tests need a separate process: they measure the memory of the whole process, or the process is killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variable with the parameters of a test that [`rerun`] started.
const PARAMETERS: &str = "CONJURE_TEST_PARAMETERS";

/// The parameters of this process, if [`rerun`] started it.
#[expect(clippy::disallowed_methods, reason = "it is set by `rerun` alone")]
pub(crate) fn test_parameters() -> Option<String> {
    std::env::var(PARAMETERS).ok()
}

/// A command that runs this program for the named test only. `prefix` is a program to start it with, such as `unshare`.
pub(crate) fn rerun(prefix: &[&str], test: &str, parameters: &str) -> Command {
    program(&std::env::current_exe().unwrap(), prefix, test, parameters)
}

/// Like [`rerun`], with a copy of the program in `dir`, which another user can execute.
pub(crate) fn rerun_copy(dir: &Path, test: &str, parameters: &str) -> Command {
    program(&copied(dir), &[], test, parameters)
}

/// Copies this program into `dir`.
#[expect(clippy::disallowed_methods, reason = "a test starts itself")]
pub(crate) fn copied(dir: &Path) -> PathBuf {
    let copy = dir.join("test");
    // `cp` copies it: a file that this process or a forked child has open for writing cannot be executed.
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
    assert!(copied.unwrap().success());
    copy
}

#[expect(clippy::disallowed_methods, reason = "a test starts itself")]
fn program(executable: &Path, prefix: &[&str], test: &str, parameters: &str) -> Command {
    let executable = executable.to_str().unwrap();
    let arguments = [prefix, &[executable, "--exact", test, "--nocapture", "--test-threads", "1"]].concat();
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).env(PARAMETERS, parameters).stdin(Stdio::null());
    command
}
