//! What a jail has on the disk: what it is given while it runs, its quota, its directories, a full disk, a host that is killed.
//!
//! A test process that is root runs all of this a second time, as a user that owns nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

mod content;
mod data_dir;
mod dirs;
mod fixture;
mod host_failures;
mod kernel_limit;
mod quota;
mod quota_attacks;
#[expect(dead_code, reason = "only a part of the module is used here")]
#[path = "../support/mod.rs"]
mod support;
mod warm_sandboxes;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use crate::fixture::is_root;
use crate::support::test_parameters;

#[test]
fn the_suite_passes_for_an_unprivileged_host() {
    const NOBODY: u32 = 65534;
    if !is_root() || test_parameters().is_some() {
        return;
    }
    // Where that user can reach it.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("jail-disk");
    // By another process: what this one has open for writing, or a child forked just then, cannot be run.
    #[expect(clippy::disallowed_methods, reason = "a test runs itself")]
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    #[expect(clippy::disallowed_methods, reason = "a test runs itself")]
    let outcome = std::process::Command::new(program)
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_remove("TMPDIR")
        // Cases that need root are skipped there.
        .env_remove(test_support::REQUIRE)
        .output();
    let outcome = outcome.unwrap();
    let output = String::from_utf8_lossy(&outcome.stdout);
    assert!(outcome.status.success(), "{output}{}", String::from_utf8_lossy(&outcome.stderr));
}
