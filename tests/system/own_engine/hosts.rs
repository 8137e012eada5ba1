//! The host is killed at any moment, alone or together with the engine: the sweep of the next start leaves nothing.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::StartContainerOptions;
use conjure_base::{Clock as _, SystemClock};
use conjure_sandbox::{Command, DataDir, Docker, DockerOptions, ExecutionContext, Executor, Sandbox};
use futures_util::future::join_all;
use rustix::process::Signal;
use test_support::KillOnDrop;

use crate::engine::{OwnEngine, Part, pause};
use crate::support::{host, options, rerun, signal, soon, test_parameters, until};

/// How often a host is killed.
const KILLS: u64 = 10;

/// A host on this engine, which keeps what it has in this directory.
fn host_on(engine: &OwnEngine, dir: &Path) -> KillOnDrop {
    let parameters = format!("{} {}", engine.address(), dir.display());
    let mut host = rerun(&[], "hosts::part_a_killed_host", &parameters);
    let host = host.env("TMPDIR", dir).stdout(Stdio::null()).stderr(Stdio::null());
    KillOnDrop(host.spawn().unwrap())
}

/// The part: a host that opens sandboxes, calls, and closes them, for ever; one of them stays open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_a_killed_host() {
    let Some(parameters) = test_parameters() else { return };
    let (address, dir) = parameters.split_once(' ').unwrap();
    let data = DataDir::open(&Path::new(dir).join("data")).unwrap();
    let of_engine = DockerOptions {
        engine: vec![address.parse().unwrap()],
        image: "busybox:own".to_owned(),
        ..DockerOptions::default()
    };
    let connector = Docker::new(of_engine, host()).with_data(data.clone());
    let named_workspace = data.workspace().unwrap();
    let context = ExecutionContext::new(named_workspace.path());
    let _open = Sandbox::open(&connector, &context, Arc::new(SystemClock), soon(600)).await.unwrap();
    let busy = |number: u32| {
        let (connector, data) = (connector.clone(), data.clone());
        async move {
            for round in 0_u32.. {
                let workspace = data.workspace().unwrap();
                let context = ExecutionContext::new(workspace.path());
                let clock = Arc::new(SystemClock);
                let sandbox = Sandbox::open(&connector, &context, clock, soon(600)).await.unwrap();
                let command = Command::new(["sh", "-c", "echo x > made"]);
                sandbox.run(command, options()).await.unwrap();
                fs::write(Path::new(dir).join(format!("progress-{number}-{round}")), "").unwrap();
                match round % 3 {
                    0 => sandbox.cleanup().await,
                    1 => drop(sandbox),
                    _ => drop(sandbox.run(Command::new(["busybox", "sleep", "1"]), options()).await),
                }
            }
        }
    };
    join_all((0..2).map(busy)).await;
}

/// Checks that the sweep of the next start leaves nothing of the killed host.
async fn assert_swept(engine: &OwnEngine, dir: &Path) {
    let data = DataDir::open(&dir.join("data")).unwrap();
    let connector = engine.connector().with_data(data);
    // The engine may still be executing the last request of the killed host.
    let deadline = SystemClock.deadline(Duration::from_secs(600));
    loop {
        let swept = connector.sweep().await.unwrap();
        let busy = swept.failures.iter().find(|failure| !failure.is_retryable());
        assert!(busy.is_none(), "{busy:?}");
        if engine.containers().await.is_empty() {
            break;
        }
        assert!(!SystemClock.remaining(deadline).is_zero(), "{:?}", engine.containers().await);
        pause().await;
    }
    for name in ["sandboxes", "workspaces"] {
        let leftovers: Vec<_> = fs::read_dir(dir.join("data").join(name)).unwrap().flatten().collect();
        assert!(leftovers.is_empty(), "{name}: {leftovers:?}");
    }
}

#[tokio::test]
async fn leftovers_of_hosts_killed_at_any_moment_are_swept_by_the_next() {
    let Some(engine) = OwnEngine::new().await else { return };
    let dir = engine.dir("host");
    for kill in 0..KILLS {
        let host = host_on(&engine, &dir);
        let has_begun = || {
            fs::read_dir(&dir)
                .unwrap()
                .flatten()
                .any(|it| it.file_name().to_string_lossy().starts_with("progress"))
        };
        // Some of them before they have a container at all.
        if kill % 5 != 0 {
            until("it has called", has_begun).await;
        }
        // Not for time to pass, but for another moment each time.
        tokio::time::sleep(Duration::from_millis(kill * 137 % 400)).await;
        drop(host);
        assert_swept(&engine, &dir).await;
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("progress") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

/// Containers of a dead host, in every state that an engine knows: running, paused, never started, ended, and half removed.
#[tokio::test]
async fn leftovers_of_a_killed_host_and_engine_are_swept_in_any_state() {
    let Some(engine) = OwnEngine::new().await else { return };
    let dir = engine.dir("host");
    let host = host_on(&engine, &dir);
    until("it has called", || dir.join("progress-0-1").exists() && dir.join("progress-1-1").exists()).await;
    // Stopped, so that it keeps what it has.
    signal(i32::try_from(host.0.id()).unwrap(), Signal::STOP);
    let labels = labels(&engine).await;
    assert!(!engine.pids(Part::Guest).is_empty());
    engine.make(1001, &labels).await;
    let half_removed = engine.make(1002, &labels).await;
    engine.end(Signal::KILL).await;
    drop(host);
    let file = engine.data().join("containers").join(&half_removed).join("config.v2.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["State"]["Dead"] = true.into();
    fs::write(&file, config.to_string()).unwrap();
    engine.start().await;
    let mut states: Vec<_> =
        engine.containers().await.into_iter().filter_map(|container| container.status).collect();
    states.sort();
    for state in ["Created", "Dead", "Exited"] {
        assert!(states.iter().any(|container| container.starts_with(state)), "{state}: {states:?}");
    }
    let paused = engine.make(1003, &labels).await;
    let running = engine.make(1004, &labels).await;
    for id in [&paused, &running] {
        engine.client().start_container(id, None::<StartContainerOptions>).await.unwrap();
    }
    engine.client().pause_container(&paused).await.unwrap();
    let swept = engine.connector().sweep().await.unwrap();
    assert!(swept.failures.is_empty() && swept.alive == 0, "{swept:?}");
    assert!(engine.containers().await.is_empty());
    until("no guest runs", || engine.pids(Part::Guest).is_empty()).await;
}

/// Those of a container that runs.
async fn labels(engine: &OwnEngine) -> HashMap<String, String> {
    let all = engine.containers().await;
    let is_up = |container: &&ContainerSummary| {
        container.status.as_deref().is_some_and(|status| status.starts_with("Up"))
    };
    all.iter().find(is_up).unwrap().labels.clone().unwrap()
}
