//! The quota as the kernel's own limit. Hosts that are not root cannot have it, nor can machines without loop devices.

use std::fs;
use std::path::Path;

use conjure_sandbox::{
    Boundary, Command, CommandEnd, DataDir, DiskLimit, ExecutionContext, Executor as _, Limits,
    SandboxErrorKind,
};

use crate::fixture::{MIB, is_root, open};
use crate::support::{options, text};

fn context(workspace: &Path) -> ExecutionContext {
    let limits = Limits::default().with_disk(8 * MIB).unwrap().with_inodes(400).unwrap();
    ExecutionContext { limits: limits.with_disk_limit(DiskLimit::Kernel), ..ExecutionContext::new(workspace) }
}

fn is_mount(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

fn can_loop() -> bool {
    Path::new("/dev/loop-control").exists() && Path::new("/usr/sbin/mke2fs").exists()
}

fn skip() {
    test_support::skip(
        "only root can have file systems of its own, with `mke2fs` and loop devices",
        "apt-get install e2fsprogs; run the tests as root",
    );
}

#[tokio::test]
async fn the_kernel_enforces_the_limit_and_the_workspace_outlives_the_sandbox() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(&dir.path().join("data")).unwrap();
    let workspace = data.named_workspace("session").unwrap();
    let context = context(&workspace);
    if !is_root() || !can_loop() {
        let error = open(&data, &context).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::NotEnforced, "{error}");
        skip();
        return;
    }
    // The existing files of the session count too.
    fs::create_dir(workspace.join("before")).unwrap();
    fs::write(workspace.join("before/file"), "before").unwrap();
    let sandbox = open(&data, &context).await.unwrap();
    assert_eq!(sandbox.isolation().disk, Boundary::Enforced);
    let run = async |script| sandbox.run(Command::bash(script), options()).await.unwrap();
    assert_eq!(text(&run("cat before/file && echo more >> before/file && rm -r before").await), "before");
    // The error is immediate, and no process is killed.
    let outcome =
        run("fallocate -l 7M a && fallocate -l 1G b; fallocate -n -l 1G c; fallocate -l 7M d; echo on").await;
    assert_eq!(outcome.end, CommandEnd::Exited(0));
    assert!(text(&outcome).contains("No space left") && text(&outcome).ends_with("on\n"), "{outcome:?}");
    let outcome = run("rm -f a b c d; i=0; while mkdir d$i 2> /dev/null; do i=$((i+1)); done; echo $i").await;
    let created: u64 = text(&outcome).trim().parse().unwrap();
    assert!((350..=420).contains(&created), "{created} directories");
    // Directories can be renamed into others, and files are seen by the host, whose they are.
    let outcome = run("rm -r d1?? && mv d1 d2/ && echo text > d2/d1/file && ls | wc -l && df -h .").await;
    assert_eq!(outcome.end, CommandEnd::Exited(0), "{}", text(&outcome));
    sandbox.cleanup().await;
    assert_eq!(fs::read_to_string(workspace.join("d2/d1/file")).unwrap(), "text\n");

    // Another sandbox of the session, also of another host.
    assert_eq!(data.named_workspace("session").unwrap(), workspace);
    let sandbox = open(&data, &context).await.unwrap();
    let outcome = sandbox.run(Command::bash("cat d2/d1/file"), options()).await.unwrap();
    assert_eq!(text(&outcome), "text\n");
    sandbox.cleanup().await;

    // It is removed with the workspace.
    assert!(is_mount(&workspace));
    assert!(data.remove_workspace("session").unwrap());
    assert!(!is_mount(&workspace) && !workspace.exists());
}

#[tokio::test]
async fn a_deleted_workspace_leaves_no_mount() {
    if !is_root() || !can_loop() {
        skip();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(&dir.path().join("data")).unwrap();
    let workspace = data.workspace().unwrap();
    let path = workspace.path().to_owned();
    let sandbox = open(&data, &context(&path)).await.unwrap();
    sandbox.create_file("file", b"x", options()).await.unwrap();
    assert!(is_mount(&path));
    sandbox.cleanup().await;
    drop(workspace);
    assert!(!is_mount(&path) && !path.exists());
}

/// A missing limit is reported.
#[tokio::test]
async fn an_unenforceable_kernel_limit_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(&dir.path().join("data")).unwrap();
    let own_dir = tempfile::tempdir().unwrap();
    assert_eq!(
        open(&data, &context(own_dir.path())).await.unwrap_err().kind(),
        SandboxErrorKind::Unsupported
    );
    if is_root() && can_loop() {
        // Files above the limit stay where they are.
        let full = data.named_workspace("full").unwrap();
        fs::write(full.join("file"), vec![b'x'; 32 << 20]).unwrap();
        let error = open(&data, &context(&full)).await.unwrap_err();
        assert_eq!(error.kind(), SandboxErrorKind::NotEnforced, "{error}");
        assert_eq!(fs::metadata(full.join("file")).unwrap().len(), 32 << 20);
    }
}
