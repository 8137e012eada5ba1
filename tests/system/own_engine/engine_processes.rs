//! The processes of an engine and of a container are killed.

use std::cell::Cell;

use bollard::query_parameters::KillContainerOptions;
use conjure_sandbox::{CallOptions, Command, CommandEnd, Docker, Executor, SandboxError, SandboxErrorKind};
use rustix::process::Signal;

use crate::engine::{OwnEngine, Part, pause};
use crate::load::{Container, assert_told, assert_works, container, ends};
use crate::support::{bearing, first_in_namespace, sigkill, soon, until};

/// Does harm to a container in a call that ends after this many seconds, and says how the call ended. Where that was before it had
/// begun, as on a slow machine, it is made once more with the next number.
async fn harm_during_call(
    connector: &Docker,
    seconds: &[u64],
    harm: impl AsyncFn(&Container),
) -> (Container, Result<CommandEnd, SandboxError>) {
    for seconds in seconds {
        let it = container(connector).await.unwrap();
        let started = it.workspace.path().join("begun");
        let command = Command::new(["sh", "-c", "echo > begun; busybox sleep 1000; :", mark(&it)]);
        let is_over = Cell::new(false);
        let calling = async {
            let ended = ends("a call", it.sandbox.run(command, CallOptions::until(soon(*seconds)))).await;
            is_over.set(true);
            ended
        };
        let harming = async {
            until("it runs", || started.exists() || is_over.get()).await;
            if !is_over.get() {
                harm(&it).await;
            }
        };
        let (ended, ()) = tokio::join!(calling, harming);
        if started.exists() {
            return (it, ended.map(|outcome| outcome.end));
        }
        it.sandbox.cleanup().await;
    }
    panic!("no command begins");
}

/// The marker in the arguments of a container's command.
fn mark(container: &Container) -> &str {
    container.workspace.path().to_str().unwrap()
}

#[tokio::test]
async fn a_container_with_a_killed_process_is_lost_and_replaced() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    for part in ["shim", "guest", "container"] {
        let harm = async |container: &Container| match part {
            "shim" => engine.signal(Part::Shim, Signal::KILL),
            "guest" => {
                sigkill(first_in_namespace(bearing(mark(container))[0].pid));
            }
            _ => {
                let id = engine.containers().await.swap_remove(0).id.unwrap();
                engine.client().kill_container(&id, None::<KillContainerOptions>).await.unwrap();
            }
        };
        let (container, ended) = harm_during_call(&connector, &[600], harm).await;
        let lost = ended.unwrap_err();
        assert_eq!(lost.kind(), SandboxErrorKind::Lost, "{part}: {lost}");
        assert_works(&connector, container.workspace.path()).await;
        ends("a cleanup", container.sandbox.cleanup()).await;
        engine.until_nothing_is_left().await;
    }
}

/// It is a service of the engine's, which the engine starts again: what runs may survive that, and is never left hanging.
#[tokio::test]
async fn containers_of_a_killed_containerd_end_in_time_and_leave_nothing() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    let before = engine.pids(Part::Containerd);
    let harm = async |_: &Container| engine.signal(Part::Containerd, Signal::KILL);
    let (it, ended) = harm_during_call(&connector, &[12, 120, 600], harm).await;
    match ended {
        Ok(end) => assert_eq!(end, CommandEnd::TimedOut),
        Err(error) => assert_told(&error),
    }
    until("it is there again", || engine.pids(Part::Containerd).iter().any(|pid| !before.contains(pid)))
        .await;
    ends("a cleanup", it.sandbox.cleanup()).await;
    assert_works(&connector, it.workspace.path()).await;
    engine.until_nothing_is_left().await;
}

#[tokio::test]
async fn a_container_paused_in_a_call_blocks_nobody_beyond_the_deadline() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    let harm = async |_: &Container| {
        let id = engine.containers().await.swap_remove(0).id.unwrap();
        engine.client().pause_container(&id).await.unwrap();
    };
    let (it, ended) = harm_during_call(&connector, &[12, 120, 600], harm).await;
    let lost = ended.unwrap_err();
    assert_eq!(lost.kind(), SandboxErrorKind::Lost, "{lost}");
    ends("a cleanup", it.sandbox.cleanup()).await;
    engine.until_nothing_is_left().await;
    assert_works(&connector, it.workspace.path()).await;
    pause().await;
    assert!(engine.containers().await.is_empty());
}
