//! Processes that a test starts: a child that is killed on drop, this program again, and one that locks a database. Also how many
//! processes there are.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot run its program has failed")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A child process that is killed on drop, also when the test fails.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that starts this program again.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a test starts itself")]
pub fn this_program() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// Starts this program again with the arguments `part` and `dir`, in a mount namespace of its own, which ends with it.
///
/// The shell runs `prepare` in that namespace first; `$1` in it is `dir`.
///
/// # Panics
///
/// If `prepare` or the part fails.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a test starts itself")]
pub fn in_mount_namespace(prepare: &str, part: &str, dir: &Path) {
    let script = format!("set -e; {prepare}; exec \"$2\" \"$3\" \"$1\"");
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .args([dir, &std::env::current_exe().unwrap(), Path::new(part)])
        .status()
        .expect("`unshare` is there (util-linux)");
    assert!(status.success(), "{status}: {part} {}", dir.display());
}

/// Starts a process that locks an SQLite database for writing until it is dropped. Returns when it has the lock.
///
/// # Panics
///
/// If it does not get the lock.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the lock must be another process's")]
pub fn lock_database(path: &Path) -> KillOnDrop {
    let program = "import sqlite3, sys\n\
                   database = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                   database.execute('BEGIN IMMEDIATE')\n\
                   print('held', flush=True)\n\
                   sys.stdin.read()\n";
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = KillOnDrop(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    holder
}

/// How many processes have `marker` among their arguments.
#[must_use]
pub fn processes_with_argument(marker: &str) -> usize {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|cmdline| cmdline.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes()))
        .count()
}
