//! Confinement: what commands may not do to the guest, to each other, and to the kernel.

mod attacks;
mod files;
mod limits;
mod signals;

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use conjure_guest::protocol::{
    CommandRules, FileRule, FileRules, ProcessLimits, RuleStatus, SyscallRule, Welcome,
};

use crate::client::Guest;

const PROGRAM: &str = env!("CARGO_BIN_EXE_conjure-guest");

/// The user of guests in these tests when the tests run as root, whom little is refused.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[expect(clippy::disallowed_methods, reason = "the program under test, and what closes it in")]
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// A guest that is a plain process of a plain user, before the handshake.
fn plain() -> Guest {
    start(command(PROGRAM))
}

/// A guest that is process 1 of a namespace of its own, before the handshake. `None` where the machine does not
/// permit it.
fn contained() -> Option<Guest> {
    const CONTAINED: [&str; 8] = [
        "--user",
        "--map-user=1000",
        "--map-group=1000",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
    ];
    let is_permitted = command("unshare")
        .args(CONTAINED)
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_permitted {
        test_support::skip(
            "this user may make no namespaces of processes",
            "run the tests where the kernel permits user namespaces",
        );
    }
    is_permitted.then(|| {
        let mut unshare = command("unshare");
        unshare.args(CONTAINED).arg(PROGRAM);
        start(unshare)
    })
}

fn start(command: Command) -> Guest {
    let dir = Guest::dir();
    if is_root() {
        for name in ["", "work", "fixed", "outside"] {
            chown(dir.path().join(name), Some(NOBODY), Some(NOBODY)).expect("root may");
        }
    }
    Guest::spawn(command, dir)
}

/// Rules that leave programs what they need, as a sandbox has them.
fn rules() -> CommandRules {
    let list = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    CommandRules {
        syscalls: SyscallRule::Guarded,
        files: FileRule::Only(FileRules {
            read: list(&["/usr", "/bin", "/lib", "/lib64", "/etc", "/no/such/directory"]),
            write: Vec::new(),
            devices: list(&["/dev/null", "/dev/zero", "/dev/urandom", "/dev/tty"]),
            ..FileRules::default()
        }),
        limits: ProcessLimits::default(),
    }
}

#[track_caller]
fn assert_confined(welcome: &Welcome) {
    assert_eq!(
        (&welcome.rules.syscalls, &welcome.rules.files),
        (&RuleStatus::Enforced, &RuleStatus::Enforced)
    );
    assert!(welcome.rules.landlock_abi >= 2, "{welcome:?}");
}
