//! Containers of a host whose process nobody can know, because it was in another pid namespace, as when the host itself runs
//! in a container that is started again: the lock in its data directory tells.

use std::future::pending;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{DataDir, Docker, DockerOptions, ExecutionContext, Sandbox};
use test_support::KillOnDrop;

use crate::container_fixture::ContainerFixture;
use crate::support::{host, rerun, soon, test_parameters, until};

/// The part: a host with a sandbox, until it is killed.
#[tokio::test]
async fn part_a_host_in_its_own_namespace() {
    let Some(parameters) = test_parameters() else { return };
    let [engine, image, mark, dir] = parameters.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let options = DockerOptions {
        engine: vec![engine.parse().unwrap()],
        image: image.to_owned(),
        labels: [("conjure-test".to_owned(), mark.to_owned())].into(),
        ..DockerOptions::default()
    };
    let dir = Path::new(dir);
    let data = DataDir::open(&dir.join("data")).unwrap();
    let connector = Docker::new(options, host()).with_data(data.clone());
    let workspace = data.workspace().unwrap();
    let context = ExecutionContext::new(workspace.path());
    let _open = Sandbox::open(&connector, &context, Arc::new(SystemClock), soon(60)).await.unwrap();
    std::fs::write(dir.join("ready"), "").unwrap();
    pending::<()>().await;
}

#[tokio::test]
async fn an_unknown_host_counts_as_alive_while_its_lock_is_held() {
    let Some(fixture) = ContainerFixture::new() else { return };
    if !rustix::process::geteuid().is_root() {
        test_support::skip("only root can make a pid namespace for it", "run the tests as root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = fixture.options();
    let (engine, mark) = (&options.engine[0], &options.labels["conjure-test"]);
    let parameters = format!("{engine}\n{}\n{mark}\n{}", options.image, dir.path().display());
    let apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut host = rerun(&apart, "orphans::part_a_host_in_its_own_namespace", &parameters);
    let host = host.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let host = KillOnDrop(host);
    until("it has a sandbox", || dir.path().join("ready").exists()).await;

    // As the next start would have it, but the host still lives.
    let data = || DataDir::open(&dir.path().join("data")).unwrap();
    let next = fixture.connector().with_data(data());
    next.sweep().await.unwrap();
    assert_eq!(fixture.containers().await.len(), 1);
    drop(host);
    // A host with another data directory cannot know.
    fixture.connector().sweep().await.unwrap();
    assert_eq!(fixture.containers().await.len(), 1);
    let deadline = soon(120);
    let mut removed = 0;
    while !fixture.containers().await.is_empty() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", fixture.containers().await);
        // The kernel may just be ending it.
        removed += fixture.connector().with_data(data()).sweep().await.unwrap().removed;
    }
    assert_eq!(removed, 1);
}
