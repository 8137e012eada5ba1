//! What an engine consists of dies, and what is in a container.

use std::cell::Cell;

use bollard::query_parameters::KillContainerOptions;
use conjure_sandbox::{CallOptions, Command, CommandEnd, Docker, Executor, SandboxError, SandboxErrorKind};
use rustix::process::Signal;

use crate::engine::{OwnEngine, Part, pause};
use crate::load::{Container, assert_told, assert_works, container, ends};
use crate::support::{bearing, first_in_namespace, kill_nine, soon, until};

/// Does harm to a container in a call that ends after so many seconds, and says how the call ended. Where that was before it had
/// begun, as on a slow machine, it is made once more with the next number.
async fn harmed(
    connector: &Docker,
    seconds: &[u64],
    harm: impl AsyncFn(&Container),
) -> (Container, Result<CommandEnd, SandboxError>) {
    for seconds in seconds {
        let it = container(connector).await.unwrap();
        let begun = it.workspace.path().join("begun");
        let command = Command::new(["sh", "-c", "echo > begun; busybox sleep 1000; :", mark(&it)]);
        let is_over = Cell::new(false);
        let calling = async {
            let ended = ends("a call", it.sandbox.run(command, CallOptions::until(soon(*seconds)))).await;
            is_over.set(true);
            ended
        };
        let harming = async {
            until("it runs", || begun.exists() || is_over.get()).await;
            if !is_over.get() {
                harm(&it).await;
            }
        };
        let (ended, ()) = tokio::join!(calling, harming);
        if begun.exists() {
            return (it, ended.map(|outcome| outcome.end));
        }
        it.sandbox.cleanup().await;
    }
    panic!("no command begins");
}

/// What the command in a container has in its arguments, and nothing else.
fn mark(it: &Container) -> &str {
    it.workspace.path().to_str().unwrap()
}

#[tokio::test]
async fn a_container_whose_shim_guest_or_itself_is_killed_is_lost_and_replaced() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    for part in ["shim", "guest", "container"] {
        let harm = async |it: &Container| match part {
            "shim" => engine.signal(Part::Shim, Signal::KILL),
            "guest" => {
                kill_nine(first_in_namespace(bearing(mark(it))[0].pid));
            }
            _ => {
                let id = engine.containers().await.swap_remove(0).id.unwrap();
                engine.client().kill_container(&id, None::<KillContainerOptions>).await.unwrap();
            }
        };
        let (it, ended) = harmed(&connector, &[600], harm).await;
        let lost = ended.unwrap_err();
        assert_eq!(lost.kind(), SandboxErrorKind::Lost, "{part}: {lost}");
        assert_works(&connector, it.workspace.path()).await;
        ends("a cleanup", it.sandbox.cleanup()).await;
        engine.until_nothing_is_left().await;
    }
}

/// It is a service of the engine's, which the engine starts again: what runs may survive that, and is never left hanging.
#[tokio::test]
async fn containers_whose_containerd_is_killed_end_in_time_and_leave_nothing() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    let before = engine.pids(Part::Containerd);
    let harm = async |_: &Container| engine.signal(Part::Containerd, Signal::KILL);
    let (it, ended) = harmed(&connector, &[12, 120, 600], harm).await;
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
async fn a_container_that_is_paused_in_a_call_holds_nobody_beyond_the_deadline() {
    let Some(engine) = OwnEngine::new().await else { return };
    let connector = engine.connector();
    let harm = async |_: &Container| {
        let id = engine.containers().await.swap_remove(0).id.unwrap();
        engine.client().pause_container(&id).await.unwrap();
    };
    let (it, ended) = harmed(&connector, &[12, 120, 600], harm).await;
    let lost = ended.unwrap_err();
    assert_eq!(lost.kind(), SandboxErrorKind::Lost, "{lost}");
    ends("a cleanup", it.sandbox.cleanup()).await;
    engine.until_nothing_is_left().await;
    assert_works(&connector, it.workspace.path()).await;
    pause().await;
    assert!(engine.containers().await.is_empty());
}
