//! A host that is killed, and a disk that is full. Each test runs this program again: as the host, or where it may mount.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use conjure_sandbox::{
    Command, ContentDir, ContentItem, DataDir, ExecutionContext, Executor, SandboxError, SandboxErrorKind,
    SharedFolder,
};
use conjure_store::FileMode;
use futures_util::{FutureExt as _, future};

use crate::bed::{Bed, is_root, names, open};
use crate::support::{again, bearing, options, text, told, until};

/// Ends the child when the test fails in between.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The part: a host with a sandbox in which something runs, which tells of it and lives until it is killed.
#[tokio::test]
async fn part_a_host_that_is_killed() {
    let Some(path) = told() else { return };
    let data = DataDir::open(Path::new(&path)).unwrap();
    let workspace = data.workspace().unwrap();
    let kept = data.workspace().unwrap();
    fs::write(kept.path().join("file"), "kept").unwrap();
    kept.keep().unwrap();
    let sandbox = open(&data, &ExecutionContext::new(workspace.path())).await.unwrap();
    let bed = Bed { sandbox, workspace, data, _folder: tempfile::tempdir().unwrap() };
    bed.install_content(bed.tree("skill", &[("SKILL.md", "# Hello")])).await.unwrap();
    bed.run("mkdir -m 000 closed; seq 100000").await;
    let mark = format!("{path}-sleeper");
    let sleeper = format!("exec -a {mark} sleep 1000");
    let sleeping = bed.run(&sleeper).map(drop);
    let telling = async {
        until("it runs", || !bearing(&mark).is_empty()).await;
        println!("\nREADY");
    };
    future::join(sleeping, telling).await;
}

/// S3: nothing runs on, and what is on the disk goes when the folder is opened again.
#[tokio::test]
async fn what_a_killed_host_leaves_is_swept() {
    if told().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let mut host = again(&[], "bad_days::part_a_host_that_is_killed", path.to_str().unwrap())
        // What it has in the temporary folder, its death must not leave there.
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .map(Killed)
        .unwrap();
    let said = BufReader::new(host.0.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap() == "READY"), "the host did not come so far");
    let sandboxes = path.join("sandboxes");
    assert_eq!(names(&sandboxes).len(), 1);
    assert_eq!(names(&path.join("workspaces")).len(), 2);
    // While it lives, nobody takes anything from it.
    drop(DataDir::open(&path).unwrap());
    assert_eq!(names(&sandboxes).len(), 1);
    drop(host);
    until("nothing of it runs", || bearing(path.to_str().unwrap()).is_empty()).await;
    let data = DataDir::open(&path).unwrap();
    assert_eq!(names(&sandboxes), [""; 0]);
    let left = names(&path.join("workspaces"));
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read(path.join("workspaces").join(&left[0]).join("workspace/file")).unwrap(), b"kept");
    let workspace = data.workspace().unwrap();
    assert!(open(&data, &ExecutionContext::new(workspace.path())).await.is_ok());
}

/// The part, where it may mount: a disk that is full at each step of making a sandbox and giving it something.
#[tokio::test]
async fn part_a_full_disk() {
    let Some(path) = told() else { return };
    let path = Path::new(&path);
    let skill = tempfile::tempdir().unwrap();
    fs::create_dir_all(skill.path().join("a/b")).unwrap();
    fs::write(skill.path().join("a/b/SKILL.md"), "# Hello").unwrap();
    let shared = SharedFolder::new(skill.path(), "/mnt/skills/one");
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

async fn on_a_small_disk(path: &Path, shared: &SharedFolder) -> Result<(), SandboxError> {
    let data = DataDir::open(path)?;
    let made = in_a_small_data_folder(&data, shared).await;
    for folder in ["sandboxes", "workspaces", "store/temporary"] {
        assert_eq!(names(&path.join(folder)), [""; 0], "{made:?}");
    }
    made
}

async fn in_a_small_data_folder(data: &DataDir, shared: &SharedFolder) -> Result<(), SandboxError> {
    let workspace = data.workspace()?;
    let large = vec![b'x'; 64 * 1024];
    let read_only = vec![shared.clone()];
    let context = ExecutionContext { read_only, ..ExecutionContext::new(workspace.path()) };
    let sandbox = open(data, &context).await?;
    let store = data.store();
    let given = match store.insert_bytes(&large, FileMode::Plain) {
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
    let seen = sandbox.run(look, options()).await?;
    assert_eq!(text(&seen), if given.is_ok() { "# Hellofile\n" } else { "# Hello" });
    sandbox.cleanup().await;
    given
}

#[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
fn mount(path: &Path, how: &str) {
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", how, "none"]).arg(path).status();
    assert!(mounted.unwrap().success());
}

#[expect(clippy::disallowed_methods, reason = "tests mount and unmount")]
fn unmount(path: &Path) {
    // What a process outside of this one holds for a moment still is let go of with the namespace.
    let unmounted = std::process::Command::new("umount").arg("--lazy").arg(path).status();
    assert!(unmounted.unwrap().success());
}

#[tokio::test]
async fn a_full_disk_is_told_as_that_at_every_step_and_leaves_nothing() {
    if told().is_some() {
        return;
    }
    if !is_root() {
        test_support::skip("only root may mount a small disk", "run the tests as root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    fs::create_dir(&path).unwrap();
    // The mounts go with the namespace.
    let unshare = ["unshare", "--mount", "--propagation", "private"];
    let outcome = again(&unshare, "bad_days::part_a_full_disk", path.to_str().unwrap()).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&outcome.stdout), String::from_utf8_lossy(&outcome.stderr));
    assert!(outcome.status.success() && said.contains("\nWELL: "), "{said}");
    assert_eq!(names(&path), [""; 0]);
}
