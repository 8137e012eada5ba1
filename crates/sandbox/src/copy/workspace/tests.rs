//! There and back, between a directory and a sandbox of this machine that does not know it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, SystemClock};

use super::*;
use crate::{Command, ExecutionContext, Executor as _, Local, Sandbox};

/// A sandbox, its directory, and the host's.
struct Fixture {
    sandbox: Sandbox,
    inside: tempfile::TempDir,
    host: tempfile::TempDir,
    workspace: WorkspaceCopy,
}

fn options() -> CallOptions {
    CallOptions::until(SystemClock.deadline(Duration::from_secs(60)))
}

impl Fixture {
    /// With what a script made on the host.
    async fn new(script: &str) -> Self {
        let (inside, host) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let host_variables = std::env::vars_os();
        let local = Local::without_isolation(host_variables);
        let context = |dir: &Path| ExecutionContext::new(dir);
        let open = |dir: ExecutionContext| {
            let local = &local;
            async move {
                let deadline = SystemClock.deadline(Duration::from_secs(60));
                Sandbox::open(local, &dir, Arc::new(SystemClock), deadline).await.unwrap()
            }
        };
        let making = open(context(host.path())).await;
        run(&making, script).await;
        making.cleanup().await;
        let sandbox = open(context(inside.path())).await;
        let host_path = host.path().to_owned();
        let workspace = WorkspaceCopy::copy_in(&sandbox.guest, host_path, 1 << 30, &options()).await.unwrap();
        Self { sandbox, inside, host, workspace }
    }

    async fn run(&self, script: &str) {
        run(&self.sandbox, script).await;
    }

    async fn copy_out_page(&self) -> CopyOutReport {
        self.workspace.copy_out(&self.sandbox.guest, &options()).await.unwrap()
    }

    fn host(&self, path: &str) -> String {
        fs::read_to_string(self.host.path().join(path)).unwrap()
    }

    /// What brings nothing and leaves nothing.
    async fn is_brought(&self) {
        assert_eq!(self.copy_out_page().await, CopyOutReport::default());
    }
}

async fn run(sandbox: &Sandbox, script: &str) {
    let outcome = sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(outcome.end, crate::CommandEnd::Exited(0), "{outcome:?}");
}

fn left(report: &CopyOutReport) -> Vec<&str> {
    report.skipped.iter().map(|left| left.path.as_str()).collect()
}

#[tokio::test]
async fn what_changed_its_kind_comes_as_it_is_now() {
    let fixture = Fixture::new("mkdir -p a/deep/er c; echo 1 > a/deep/x; echo 2 > b; echo 3 > c/x").await;
    fixture.run("rm -r a b; echo file > a; mkdir b; echo in > b/x; echo 9 > z").await;
    let report = fixture.copy_out_page().await;
    assert_eq!((report.files, left(&report)), (3, vec![]));
    assert_eq!(
        (fixture.host("a"), fixture.host("b/x"), fixture.host("c/x")),
        ("file\n".into(), "in\n".into(), "3\n".into())
    );
    assert_eq!(fixture.host("z"), "9\n");
    fixture.is_brought().await;
    // And back.
    fixture.run("rm -r a b; mkdir -p a/deep; echo 1 > a/deep/x; echo 2 > b").await;
    assert_eq!(fixture.copy_out_page().await.skipped, []);
    assert_eq!((fixture.host("a/deep/x"), fixture.host("b")), ("1\n".into(), "2\n".into()));
    fixture.is_brought().await;
}

#[tokio::test]
async fn one_that_cannot_come_holds_up_no_other() {
    let fixture = Fixture::new("mkdir a; echo 1 > a/x; echo 2 > b").await;
    // What the host made meanwhile is not removed for it.
    fs::write(fixture.host.path().join("a/own"), "the host's").unwrap();
    symlink("/nowhere", fixture.host.path().join("d")).unwrap();
    fixture.run("rm -r a; echo file > a; mkdir d; echo in > d/x; echo late > z; rm b; ln -s a b").await;
    for files in [1, 0] {
        let report = fixture.copy_out_page().await;
        assert_eq!((report.files, left(&report)), (files, vec!["a", "b", "d", "d/x"]));
        assert!(report.skipped[0].reason.contains("`a/own`"), "{}", report.skipped[0].reason);
    }
    assert_eq!(
        (fixture.host("z"), fixture.host("a/x"), fixture.host("a/own")),
        ("late\n".into(), "1\n".into(), "the host's".into())
    );
    fs::remove_file(fixture.host.path().join("a/own")).unwrap();
    fs::remove_file(fixture.host.path().join("d")).unwrap();
    assert_eq!(left(&fixture.copy_out_page().await), ["b"]);
    assert_eq!((fixture.host("a"), fixture.host("d/x")), ("file\n".into(), "in\n".into()));
}

#[tokio::test]
async fn permissions_and_empty_directories_travel_both_ways() {
    let fixture = Fixture::new(
        "mkdir -p empty/deep own/in; chmod 750 own; echo x > own/in/f; echo y > run; chmod 755 run",
    )
    .await;
    let mode = |of: &tempfile::TempDir, name: &str| {
        fs::metadata(of.path().join(name)).unwrap().permissions().mode() & 0o7777
    };
    assert!(fixture.inside.path().join("empty/deep").is_dir());
    assert_eq!((mode(&fixture.inside, "own"), mode(&fixture.inside, "own/in")), (0o750, 0o755));
    assert_eq!(mode(&fixture.inside, "run"), 0o755);
    fixture.is_brought().await;
    fixture.run("echo more >> run; mkdir -p new/empty; chmod 700 new/empty; echo s > s; chmod 4751 s; chmod 600 own/in/f").await;
    assert_eq!(fixture.copy_out_page().await.files, 3);
    assert_eq!(
        (mode(&fixture.host, "run"), mode(&fixture.host, "s"), mode(&fixture.host, "own/in/f")),
        (0o755, 0o751, 0o600)
    );
    assert_eq!((mode(&fixture.host, "new"), mode(&fixture.host, "new/empty")), (0o755, 0o700));
    fixture.is_brought().await;
}

#[tokio::test]
async fn many_files_are_no_reason_to_bring_none() {
    let fixture = Fixture::new("echo 1 > given").await;
    // Their paths are more than fits into a frame.
    fixture
        .run(
            "x=$(printf 'x%.0s' {1..200}); mkdir -p many/$x/$x/$x/$x; touch many/$x/$x/$x/$x/$x-{1..600}
         echo result > z; mkdir -p $(printf 'd/%.0s' {1..70}); echo lost > $(printf 'd/%.0s' {1..70})/lost",
        )
        .await;
    let report = fixture.copy_out_page().await;
    assert_eq!((report.files, left(&report)), (601, vec![&*format!("{}d", "d/".repeat(63))]));
    assert_eq!(fixture.host("z"), "result\n");
    assert_eq!(fixture.copy_out_page().await.files, 0);
}

#[tokio::test]
async fn what_was_not_given_is_told_once() {
    let fixture = Fixture::new("echo 1 > a; ln -s a link; mkfifo pipe; echo 2 > $'not\\xff'").await;
    let mut told = fixture.workspace.take_model_notice().unwrap();
    for part in [
        "`link` (it is a link)",
        "`pipe` (it is not a regular file)",
        "`not\u{fffd}` (its name is not UTF-8)",
    ] {
        assert!(told.contains(part), "{told}");
        told = told.replace(part, "");
    }
    assert_eq!(fixture.workspace.take_model_notice(), None);
    assert_eq!(Fixture::new("echo 1 > a").await.workspace.take_model_notice(), None);
}

#[tokio::test]
async fn pages_have_an_end() {
    let fixture = Fixture::new("touch a b c d e").await;
    for (max_bytes, pager, told) in [(5, 1, 0), (4, 2, 1), (2, 2, 1), (100, 1, 0)] {
        let (mut walk, mut seen, mut unlisted) = (TreePager::new(max_bytes), 0, Vec::new());
        while let Some(page) = walk.next(&fixture.sandbox.guest, &options()).await.unwrap() {
            seen += 1;
            unlisted.extend(page.unlisted);
        }
        assert_eq!((seen, unlisted.len()), (pager, told), "{max_bytes}: {unlisted:?}");
        assert!(unlisted.iter().all(|left| left.reason.contains("more than")), "{unlisted:?}");
    }
}
