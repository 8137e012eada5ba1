//! The quota of bytes and files.

use std::fs;

use conjure_sandbox::{
    Command, CommandEnd, DataDir, ExecutionContext, Executor, Limits, QuotaExcess, SandboxErrorKind,
};

use crate::fixture::{Fixture, MIB, fixture_with, open};
use crate::support::{options, text};

fn small(context: &mut ExecutionContext) {
    context.limits = Limits::default().with_disk(8 * MIB).unwrap().with_inodes(200).unwrap();
}

#[track_caller]
fn quota_excess(outcome: &conjure_sandbox::CommandOutcome) -> QuotaExcess {
    match outcome.end {
        CommandEnd::QuotaExceeded(excess) => excess,
        end => panic!("it ended otherwise: {end:?}: {}", text(outcome)),
    }
}

/// Removes what is in the way, and waits until programs may write again. A measurement while there is still too much ends the script.
async fn recover(fixture: &Fixture, script: &str) {
    let mut end = fixture.run(script).await.end;
    while let CommandEnd::QuotaExceeded(_) = end {
        end = fixture.run(script).await.end;
    }
    assert_eq!(end, CommandEnd::Exited(0));
    for _ in 0..10_000 {
        if fixture.run("trap '' XFSZ; echo x > probe && rm probe").await.end == CommandEnd::Exited(0) {
            return;
        }
    }
    panic!("nothing can be written though there is room");
}

#[tokio::test]
async fn exceeding_the_byte_quota_ends_the_call_with_a_report_and_is_recoverable() {
    let fixture = fixture_with(small).await;
    // No file may be as large as that by itself.
    let outcome =
        fixture.run("echo begun; for ((i = 0; ; i++)); do head -c 1M /dev/zero > big$i; done").await;
    let excess = quota_excess(&outcome);
    assert_eq!(excess.allowed.bytes, 8 * MIB);
    assert!(excess.used.bytes > 8 * MIB);
    assert_eq!(text(&outcome), "begun\n");
    let error = fixture.sandbox.create_file("more", b"x", options()).await.unwrap_err();
    assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{error}");
    recover(&fixture, "rm -f big*").await;
    assert_eq!(fixture.bash("head -c 1000000 /dev/zero > fits && stat -c %s fits").await, "1000000\n");
    fixture.sandbox.create_file("more", b"x", options()).await.unwrap();
}

#[tokio::test]
async fn exceeding_the_file_quota_ends_the_call_with_a_report_and_is_recoverable() {
    let fixture = fixture_with(small).await;
    let outcome = fixture.run("for ((i = 0; ; i++)); do mkdir -p d$i/e; done").await;
    let excess = quota_excess(&outcome);
    assert_eq!(excess.allowed.inodes, 200);
    assert!(excess.used.inodes > 200);
    recover(&fixture, "rm -rf d*").await;
    assert_eq!(fixture.bash("mkdir -p a/b/c && ls").await, "a\n");
}

/// In a directory of the user's own, what is there already is not the sandbox's.
#[tokio::test]
async fn in_a_users_own_directory_only_additions_count() {
    let own_dir = tempfile::tempdir().unwrap();
    fs::write(own_dir.path().join("large"), vec![b'x'; 10 << 20]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(&dir.path().join("data")).unwrap();
    let mut context = ExecutionContext::new(own_dir.path());
    small(&mut context);
    let sandbox = open(&data, &context).await.unwrap();
    sandbox.create_file("by-the-guest", b"x", options()).await.unwrap();
    let run = async |script| sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(text(&run("head -c 4000000 /dev/zero > some && echo written").await), "written\n");
    let outcome = run("for ((i = 0; ; i++)); do head -c 1M /dev/zero > big$i; done").await;
    assert!(quota_excess(&outcome).allowed.bytes > 18 * MIB, "{outcome:?}");
}

// ---------------------------------------------------------------------------------------------------------------
// Directories.
