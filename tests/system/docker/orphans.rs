//! Containers of a host whose process nobody can know, because it was in another pid namespace, as when the host itself runs
//! in a container that is started again: the lock in its data folder tells.

use std::future::pending;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{DataDir, Docker, DockerOptions, ExecutionContext, Sandbox};

use crate::support::{again, host, soon, told, until};
use crate::world::World;

/// Ends the child when the test fails in between.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The part: a host with a sandbox, until it is killed.
#[tokio::test]
async fn part_a_host_in_a_namespace_of_its_own() {
    let Some(told) = told() else { return };
    let [engine, image, mark, folder] = told.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let options = DockerOptions {
        engine: vec![engine.parse().unwrap()],
        image: image.to_owned(),
        labels: [("conjure-test".to_owned(), mark.to_owned())].into(),
        ..DockerOptions::default()
    };
    let folder = Path::new(folder);
    let data = DataDir::open(&folder.join("data")).unwrap();
    let connector = Docker::new(options, host()).with_data(data.clone());
    let workspace = data.workspace().unwrap();
    let context = ExecutionContext::new(workspace.path());
    let _open = Sandbox::open(&connector, &context, Arc::new(SystemClock), soon(60)).await.unwrap();
    std::fs::write(folder.join("ready"), "").unwrap();
    pending::<()>().await;
}

#[tokio::test]
async fn a_host_that_cannot_be_known_lives_as_long_as_its_lock() {
    let Some(world) = World::new() else { return };
    if !rustix::process::geteuid().is_root() {
        test_support::skip("only root can make a pid namespace for it", "run the tests as root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let options = world.options();
    let (engine, mark) = (&options.engine[0], &options.labels["conjure-test"]);
    let told = format!("{engine}\n{}\n{mark}\n{}", options.image, folder.path().display());
    let apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut host = again(&apart, "orphans::part_a_host_in_a_namespace_of_its_own", &told);
    let host = host.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let host = Killed(host);
    until("it has a sandbox", || folder.path().join("ready").exists()).await;

    // As the next start would have it, but the host still lives.
    let data = || DataDir::open(&folder.path().join("data")).unwrap();
    let next = world.connector().with_data(data());
    next.sweep().await.unwrap();
    assert_eq!(world.containers().await.len(), 1);
    drop(host);
    // Who has another data folder cannot know.
    world.connector().sweep().await.unwrap();
    assert_eq!(world.containers().await.len(), 1);
    let deadline = soon(120);
    let mut removed = 0;
    while !world.containers().await.is_empty() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", world.containers().await);
        // The kernel may just be ending it.
        removed += world.connector().with_data(data()).sweep().await.unwrap().removed;
    }
    assert_eq!(removed, 1);
}
