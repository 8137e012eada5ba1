//! A host that is killed, and a disk that is full. Each test runs this program again: as the host, or where it may mount.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use conjure_sandbox::{
    Command, ContentDir, ContentItem, DataDir, ExecutionContext, Executor, SandboxError, SandboxErrorKind,
    SharedDir,
};
use conjure_store::FileMode;
use futures_util::{FutureExt as _, future};
use test_support::KillOnDrop;

use crate::fixture::{Fixture, is_root, names, open};
use crate::support::{bearing, options, rerun, test_parameters, text, until};

/// The part: a host with a sandbox and a running command. It reports that, and runs until it is killed.
#[tokio::test]
async fn part_a_killed_host() {
    let Some(path) = test_parameters() else { return };
    let data = DataDir::open(Path::new(&path)).unwrap();
    let workspace = data.workspace().unwrap();
    let named_workspace = data.workspace().unwrap();
    fs::write(named_workspace.path().join("file"), "kept").unwrap();
    named_workspace.keep().unwrap();
    let sandbox = open(&data, &ExecutionContext::new(workspace.path())).await.unwrap();
    let fixture = Fixture { sandbox, workspace, data, _dir: tempfile::tempdir().unwrap() };
    fixture.install_content(fixture.tree("skill", &[("SKILL.md", "# Hello")])).await.unwrap();
    fixture.run("mkdir -m 000 closed; seq 100000").await;
    let mark = format!("{path}-sleeper");
    let sleeper = format!("exec -a {mark} sleep 1000");
    let sleeping = fixture.run(&sleeper).map(drop);
    let requests = async {
        until("it runs", || !bearing(&mark).is_empty()).await;
        println!("\nREADY");
    };
    future::join(sleeping, requests).await;
}

/// No process continues, and the files are removed when the directory is opened again.
#[tokio::test]
async fn leftovers_of_a_killed_host_are_swept() {
    if test_parameters().is_some() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let mut host = rerun(&[], "host_failures::part_a_killed_host", path.to_str().unwrap())
        // Its death must leave nothing in the temporary directory.
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .map(KillOnDrop)
        .unwrap();
    let stdout = BufReader::new(host.0.stdout.take().unwrap());
    assert!(stdout.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    let sandboxes = path.join("sandboxes");
    assert_eq!(names(&sandboxes).len(), 1);
    assert_eq!(names(&path.join("workspaces")).len(), 2);
    // While it runs, no other process removes its files.
    drop(DataDir::open(&path).unwrap());
    assert_eq!(names(&sandboxes).len(), 1);
    drop(host);
    until("nothing of it runs", || bearing(path.to_str().unwrap()).is_empty()).await;
    let data = DataDir::open(&path).unwrap();
    assert_eq!(names(&sandboxes), [""; 0]);
    let remaining = names(&path.join("workspaces"));
    assert_eq!(remaining.len(), 1, "{remaining:?}");
    assert_eq!(
        fs::read(path.join("workspaces").join(&remaining[0]).join("workspace/file")).unwrap(),
        b"kept"
    );
    let workspace = data.workspace().unwrap();
    assert!(open(&data, &ExecutionContext::new(workspace.path())).await.is_ok());
}

/// The part, where it may mount: a disk that is full at each step of making a sandbox and giving it something.
#[tokio::test]
async fn part_a_full_disk() {
    let Some(path) = test_parameters() else { return };
    let path = Path::new(&path);
    let skill = tempfile::tempdir().unwrap();
    fs::create_dir_all(skill.path().join("a/b")).unwrap();
    fs::write(skill.path().join("a/b/SKILL.md"), "# Hello").unwrap();
    let shared = SharedDir::new(skill.path(), "/mnt/skills/one");
    let mut steps = Vec::new();
    // One more file fits each time.
    for inodes in 1..200 {
        mount(path, &format!("size=4m,nr_inodes={inodes}"));
        let outcome = on_a_small_disk(path, &shared).await;
        unmount(path);
        match outcome {
            Ok(()) => {
                assert!(steps.len() > 10, "so few steps: {steps:?}");
                // And one without room for what is in the files.
                mount(path, "size=32k,nr_inodes=1000");
                let error = on_a_small_disk(path, &shared).await.unwrap_err();
                unmount(path);
                assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{error}");
                println!("\nWELL: {}", steps.len());
                return;
            }
            Err(error) => {
                assert_eq!(error.kind(), SandboxErrorKind::NoSpace, "{inodes} inodes: {error}");
                steps.push(error.to_string());
            }
        }
    }
    panic!("it never succeeds: {steps:?}");
}

async fn on_a_small_disk(path: &Path, shared: &SharedDir) -> Result<(), SandboxError> {
    let data = DataDir::open(path)?;
    let result = in_a_small_data_dir(&data, shared).await;
    for dir in ["sandboxes", "workspaces", "store/temporary"] {
        assert_eq!(names(&path.join(dir)), [""; 0], "{result:?}");
    }
    result
}

async fn in_a_small_data_dir(data: &DataDir, shared: &SharedDir) -> Result<(), SandboxError> {
    let workspace = data.workspace()?;
    let large = vec![b'x'; 64 * 1024];
    let read_only = vec![shared.clone()];
    let context = ExecutionContext { read_only, ..ExecutionContext::new(workspace.path()) };
    let sandbox = open(data, &context).await?;
    let store = data.store();
    let insertion = match store.insert_bytes(&large, FileMode::Plain) {
        Ok(inserted) => {
            let file =
                ContentItem::file(ContentDir::Artifacts, "file", store, inserted.digest, FileMode::Plain);
            sandbox.install_content(file, options()).await.map(drop)
        }
        Err(error) => {
            assert_eq!(error.kind(), conjure_store::StoreErrorKind::NoSpace, "{error}");
            Err(SandboxError::new(SandboxErrorKind::NoSpace, error.to_string()))
        }
    };
    // A full disk is no reason not to run.
    let look = Command::bash("cat /mnt/skills/one/a/b/SKILL.md; ls /artifacts");
    let outcome = sandbox.run(look, options()).await?;
    assert_eq!(text(&outcome), if insertion.is_ok() { "# Hellofile\n" } else { "# Hello" });
    sandbox.cleanup().await;
    insertion
}

#[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
fn mount(path: &Path, how: &str) {
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", how, "none"]).arg(path).status();
    assert!(mounted.unwrap().success());
}

#[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
fn unmount(path: &Path) {
    // Mounts that another process still holds are released with the namespace.
    let unmounted = std::process::Command::new("umount").arg("--lazy").arg(path).status();
    assert!(unmounted.unwrap().success());
}

#[tokio::test]
async fn a_full_disk_is_reported_at_every_step_and_leaves_nothing() {
    if test_parameters().is_some() {
        return;
    }
    if !is_root() {
        test_support::skip("only root may mount a small disk", "run the tests as root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    fs::create_dir(&path).unwrap();
    // The mounts go with the namespace.
    let unshare = ["unshare", "--mount", "--propagation", "private"];
    let outcome =
        rerun(&unshare, "host_failures::part_a_full_disk", path.to_str().unwrap()).output().unwrap();
    let output =
        format!("{}{}", String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    assert!(outcome.status.success() && output.contains("\nWELL: "), "{output}");
    assert_eq!(names(&path), [""; 0]);
}
