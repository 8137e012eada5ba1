//! Nothing is left of a container, in any order of ends.

use std::fs;
use std::time::Duration;

use conjure_sandbox::{Docker, ExecutionContext, Executor, SandboxErrorKind};
use futures_util::FutureExt as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::container_fixture::{ContainerFixture, open};
use crate::support::{until, until_no_process_runs};

#[tokio::test]
async fn a_container_is_removed_with_its_sandbox() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let container = fixture.container().await;
    container.sandbox.cleanup().await;
    assert!(fixture.containers().await.is_empty(), "when it was cleaned up");
    drop(fixture.container().await);
    fixture.until_nothing_is_left().await;
}

#[test]
fn a_container_is_removed_with_the_runtime() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let connector = fixture.connector();
    let container = first.block_on(fixture.container_with(&connector, |_| {}));
    drop(first);
    runtime().block_on(until_given_up(&fixture, &connector));
    drop(container);
    // And one that is being made.
    let second = runtime();
    let workspace = tempfile::tempdir().unwrap();
    let connector = fixture.connector();
    second.block_on(async {
        let context = ExecutionContext::new(workspace.path());
        connector.check_environment().await.unwrap();
        let opened = tokio::time::timeout(Duration::from_millis(20), open(&connector, &context)).await;
        drop(opened);
    });
    drop(second);
    runtime().block_on(until_given_up(&fixture, &connector));
}

/// Ends when the engine has no container of this test any more. Who has no runtime waits for a slow engine for a while only, or gets no
/// answer: then it holds the container no longer, and a sweep removes it. One that is held, no sweep removes.
async fn until_given_up(fixture: &ContainerFixture, connector: &Docker) {
    for _ in 0..200 {
        if fixture.containers().await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        connector.sweep().await.unwrap();
    }
    fixture.until_nothing_is_left().await;
}

/// Dropped at every moment of its making, as far as moments can be had: nothing is left, and nothing is in the way of
/// the next one.
#[tokio::test]
async fn a_dropped_open_leaves_nothing() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    connector.check_environment().await.unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext::new(workspace.path());
    for after in [0, 1, 3, 5, 8, 12, 20, 40, 60, 90, 130, 180, 250] {
        let opened = tokio::time::timeout(Duration::from_millis(after), open(&connector, &context)).await;
        drop(opened);
    }
    until_no_process_runs().await;
    fixture.until_nothing_is_left().await;
    let sandbox = open(&connector, &context).await.unwrap();
    sandbox.cleanup().await;
    assert!(fixture.containers().await.is_empty());
}

#[tokio::test]
async fn a_container_that_is_killed_or_removed_is_lost_and_replaced() {
    let Some(fixture) = ContainerFixture::new() else { return };
    for is_removed in [false, true] {
        let container = fixture.container().await;
        let name = fixture.inspected().await.id.unwrap();
        let engine = fixture.engine().await;
        let (ran, done) = tokio::join!(container.run(&["sleep", "1000"]), async {
            if is_removed {
                let options =
                    bollard::query_parameters::RemoveContainerOptionsBuilder::new().force(true).build();
                engine.remove_container(&name, Some(options)).await
            } else {
                engine.kill_container(&name, None::<bollard::query_parameters::KillContainerOptions>).await
            }
        });
        done.unwrap();
        let lost = ran.unwrap_err();
        assert_eq!(lost.kind(), SandboxErrorKind::Lost, "{lost}");
        fixture.until_nothing_is_left().await;
    }
    let container = fixture.container().await;
    assert_eq!(container.sh("echo again").await, "again\n");
    container.sandbox.cleanup().await;
}

#[tokio::test]
async fn many_concurrent_containers_queue_and_all_are_removed() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    let sandboxes =
        futures_util::future::join_all((0..8).map(|_| fixture.container_with(&connector, |_| {}))).await;
    assert_eq!(fixture.containers().await.len(), 8);
    let outputs = futures_util::future::join_all(sandboxes.iter().map(|it| it.sh("echo here"))).await;
    assert!(outputs.iter().all(|text| text == "here\n"));
    futures_util::future::join_all(sandboxes.iter().map(|it| it.sandbox.cleanup())).await;
    assert!(fixture.containers().await.is_empty());
}

/// Nothing runs in it any more, which the host sees by itself. The engine learns of it later, and removes the container behind
/// that.
#[tokio::test]
async fn ownership_of_a_workspace_returns_before_the_container_is_removed() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let container = fixture.container().await;
    let first = fixture.inspected().await.state.unwrap().pid.unwrap();
    // A background process, which goes with the first one.
    container.sh("(while :; do echo >> beat; done) >/dev/null 2>&1 &").await;
    let beat = || fs::metadata(container.workspace.path().join("beat")).map_or(0, |beat| beat.len());
    until("it beats", || beat() > 0).await;
    kill_process(Pid::from_raw(first.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    let lost = container.sandbox.wait_ended().await;
    // The engine's words, where the host came too late to see by itself that memory had sufficed.
    let reasons = ["its first process ended", "killed by signal 9"];
    assert!(reasons.iter().any(|reason| lost.to_string().contains(reason)), "{lost}");
    container.sandbox.stop().await;
    let last = beat();
    assert!(container.sandbox.cleanup().now_or_never().is_none(), "its removal is under way");
    container.sandbox.cleanup().await;
    assert!(fixture.containers().await.is_empty());
    assert_eq!(beat(), last);
}
