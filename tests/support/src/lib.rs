//! What the tests of all crates share: skips that are seen, processes that are killed on drop, a clock that a test moves, servers on
//! loopback, events of `tracing`, and programs in Python to compare with.
//!
//! A test that cannot run on a machine calls [`skip`] and returns. The harness hides what a passing test prints, so the skip is
//! recorded in a file beside the test programs, and the package's own test target `skipped`, which cargo runs last, reports all
//! of them once. With `CONJURE_TEST_REQUIRE=all`, as in CI, a skip is a failure.

#[cfg(feature = "tls")]
mod authority;
mod free_port;
#[cfg(feature = "net")]
pub mod http;
#[cfg(feature = "net")]
mod loopback;
#[cfg(feature = "clock")]
mod manual_clock;
#[cfg(feature = "tracing")]
mod on_event;
mod processes;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod tiny_model;
#[cfg(feature = "clock")]
mod until;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[cfg(feature = "tls")]
pub use authority::{authority, authority_until};
pub use free_port::free_port;
#[cfg(feature = "net")]
pub use loopback::Loopback;
#[cfg(feature = "clock")]
pub use manual_clock::ManualClock;
#[cfg(feature = "tracing")]
pub use on_event::{EventFields, OnEvent};
pub use processes::{KillOnDrop, in_mount_namespace, lock_database, processes_with_argument, this_program};
#[cfg(feature = "python")]
pub use python::Python;
#[cfg(feature = "python")]
pub use tiny_model::TinyModel;
#[cfg(feature = "clock")]
pub use until::until;

/// The variable that turns skips into failures.
pub const REQUIRE: &str = "CONJURE_TEST_REQUIRE";

/// Records that the calling test cannot run here, and what would let it run, such as `apt-get install curl`.
///
/// # Panics
///
/// Where [`REQUIRE`] is `all`.
#[track_caller]
#[expect(clippy::print_stderr, reason = "who runs one test with `--nocapture` sees it at once")]
pub fn skip(reason: &str, remedy: &str) {
    assert!(!is_required(), "{REQUIRE}=all, and this test cannot run: {reason}; to run it: {remedy}");
    eprintln!("SKIPPED: {reason}; to run it: {remedy}");
    record(records(), reason, remedy);
}

/// Records that the calling test does not apply to this machine, and that no package would change that.
///
/// This is no failure, also where [`REQUIRE`] is `all`.
pub fn not_applicable(reason: &str) {
    record(records(), reason, "does not apply to this machine");
}

/// Whether this user may make user namespaces, of which jails are made. Where not, that is recorded as a skip of the calling test.
#[must_use]
#[track_caller]
pub fn has_user_namespaces() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let has = *HAS.get_or_init(can_make_namespaces);
    if !has {
        skip("this user may make no user namespaces", "run the tests where the kernel permits them to users");
    }
    has
}

/// Ends this program well where there are no user namespaces: for test programs all of whose tests need them.
///
/// # Panics
///
/// Where [`REQUIRE`] is `all`.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "there is no `main` of ours to return from, and nothing was started yet"
)]
pub fn need_user_namespaces() {
    if !has_user_namespaces() {
        std::process::exit(0);
    }
}

#[expect(clippy::disallowed_methods, reason = "another process tries it")]
fn can_make_namespaces() -> bool {
    let unshare = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).output();
    unshare.is_ok_and(|unshare| unshare.status.success())
}

/// Whether a skip is a failure.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the tests' own setting")]
pub fn is_required() -> bool {
    std::env::var(REQUIRE).is_ok_and(|value| value == "all")
}

/// Describes all recorded skips, by what would let them run. `None` where nothing was skipped since the last report.
///
/// The records stay beside, in `skipped-tests.reported`: `.ci/run` has those tests run on a machine that has all they need.
#[must_use]
pub fn take_report() -> Option<String> {
    take_report_from(&records()?)
}

fn take_report_from(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    // A record that cannot be put aside is reported again, which does no harm.
    let _ = fs::rename(path, path.with_extension("reported"));
    let mut tests = BTreeSet::new();
    let mut reasons = BTreeMap::<&str, BTreeMap<&str, BTreeSet<&str>>>::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let (Some(test), Some(reason), Some(remedy)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        tests.insert(test);
        reasons.entry(remedy).or_default().entry(reason).or_default().insert(test);
    }
    let mut report = format!("skipped, wholly or in part: {} tests\n", tests.len());
    for (remedy, reasons) in reasons {
        report.push_str(&format!("  {remedy}\n"));
        for (reason, tests) in reasons {
            let first = tests.first().copied().unwrap_or_default();
            let others = match tests.len() {
                0 | 1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            report.push_str(&format!("    {reason}: {first}{others}\n"));
        }
    }
    Some(report)
}

/// One line for each skip: the test, the reason, the remedy, the package, the target.
fn record(path: Option<PathBuf>, reason: &str, remedy: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    let (package, target) = (package(), target());
    let line =
        [test, reason, remedy, &package, &target].map(|field| field.replace(['\t', '\n'], " ")).join("\t")
            + "\n";
    let file = path.map(|path| OpenOptions::new().append(true).create(true).open(path));
    // One write, so that lines of other processes are not mixed with it.
    if let Some(Ok(mut file)) = file {
        let _ = file.write_all(line.as_bytes());
    }
}

/// The package whose tests these are, which cargo tells those that it starts.
#[expect(clippy::disallowed_methods, reason = "cargo says it so")]
fn package() -> String {
    std::env::var("CARGO_PKG_NAME").unwrap_or_default()
}

/// The name of this program without what cargo puts behind it.
fn target() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(&*name, |(target, _)| target).to_owned()
}

/// The file of the records, in the directory that holds the directory of the test programs.
fn records() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("skipped-tests"))
}

#[cfg(test)]
mod tests;
