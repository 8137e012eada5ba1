//! Nothing of a container is left, whoever goes first.

use std::fs;
use std::time::Duration;

use conjure_sandbox::{Docker, ExecutionContext, Executor, SandboxErrorKind};
use futures_util::FutureExt as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{until, until_nobody_goes_on};
use crate::world::{World, open};

#[tokio::test]
async fn a_container_goes_with_its_sandbox() {
    let Some(world) = World::new() else { return };
    let it = world.container().await;
    it.sandbox.cleanup().await;
    assert!(world.containers().await.is_empty(), "when it was cleaned up");
    drop(world.container().await);
    world.until_nothing_is_left().await;
}

#[test]
fn a_container_goes_with_the_runtime() {
    let Some(world) = World::new() else { return };
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let connector = world.connector();
    let it = first.block_on(world.container_with(&connector, |_| {}));
    drop(first);
    runtime().block_on(until_given_up(&world, &connector));
    drop(it);
    // And one that is being made.
    let second = runtime();
    let workspace = tempfile::tempdir().unwrap();
    let connector = world.connector();
    second.block_on(async {
        let context = ExecutionContext::new(workspace.path());
        connector.check_environment().await.unwrap();
        let opened = tokio::time::timeout(Duration::from_millis(20), open(&connector, &context)).await;
        drop(opened);
    });
    drop(second);
    runtime().block_on(until_given_up(&world, &connector));
}

/// Ends when the engine has no container of this test any more. Who has no runtime waits for a slow engine for a while only, or gets no
/// answer: then it holds the container no longer, and a sweep removes it. One that is held, no sweep removes.
async fn until_given_up(world: &World, connector: &Docker) {
    for _ in 0..200 {
        if world.containers().await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        connector.sweep().await.unwrap();
    }
    world.until_nothing_is_left().await;
}

/// Dropped at every moment of its making, as far as moments can be had: nothing is left, and nothing is in the way of
/// the next one.
#[tokio::test]
async fn an_opening_that_is_dropped_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let connector = world.connector();
    connector.check_environment().await.unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext::new(workspace.path());
    for after in [0, 1, 3, 5, 8, 12, 20, 40, 60, 90, 130, 180, 250] {
        let opened = tokio::time::timeout(Duration::from_millis(after), open(&connector, &context)).await;
        drop(opened);
    }
    until_nobody_goes_on().await;
    world.until_nothing_is_left().await;
    let sandbox = open(&connector, &context).await.unwrap();
    sandbox.cleanup().await;
    assert!(world.containers().await.is_empty());
}

#[tokio::test]
async fn a_container_that_is_killed_or_removed_is_lost_and_replaced() {
    let Some(world) = World::new() else { return };
    for is_removed in [false, true] {
        let it = world.container().await;
        let name = world.inspected().await.id.unwrap();
        let engine = world.engine().await;
        let (ran, done) = tokio::join!(it.run(&["sleep", "1000"]), async {
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
        world.until_nothing_is_left().await;
    }
    let it = world.container().await;
    assert_eq!(it.sh("echo again").await, "again\n");
    it.sandbox.cleanup().await;
}

#[tokio::test]
async fn many_at_once_queue_and_all_come_and_go() {
    let Some(world) = World::new() else { return };
    let connector = world.connector();
    let made = futures_util::future::join_all((0..8).map(|_| world.container_with(&connector, |_| {}))).await;
    assert_eq!(world.containers().await.len(), 8);
    let said = futures_util::future::join_all(made.iter().map(|it| it.sh("echo here"))).await;
    assert!(said.iter().all(|text| text == "here\n"));
    futures_util::future::join_all(made.iter().map(|it| it.sandbox.cleanup())).await;
    assert!(world.containers().await.is_empty());
}

/// Nothing runs in it any more, which the host sees by itself. The engine learns of it later, and removes the container behind
/// that.
#[tokio::test]
async fn a_workspace_is_given_back_before_the_container_is_removed() {
    let Some(world) = World::new() else { return };
    let it = world.container().await;
    let first = world.inspected().await.state.unwrap().pid.unwrap();
    // A background process, which goes with the first one.
    it.sh("(while :; do echo >> beat; done) >/dev/null 2>&1 &").await;
    let beat = || fs::metadata(it.workspace.path().join("beat")).map_or(0, |beat| beat.len());
    until("it beats", || beat() > 0).await;
    kill_process(Pid::from_raw(first.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    let lost = it.sandbox.wait_ended().await;
    // The engine's words, where the host came too late to see by itself that memory had sufficed.
    let reasons = ["its first process ended", "killed by signal 9"];
    assert!(reasons.iter().any(|reason| lost.to_string().contains(reason)), "{lost}");
    it.sandbox.stop().await;
    let last = beat();
    assert!(it.sandbox.cleanup().now_or_never().is_none(), "its removal is under way");
    it.sandbox.cleanup().await;
    assert!(world.containers().await.is_empty());
    assert_eq!(beat(), last);
}
