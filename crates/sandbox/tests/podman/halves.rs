//! Containers that are half there: in Podman's database, and not in its storage.

use std::cell::Cell;
use std::collections::HashMap;

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder,
};
use conjure_sandbox::{ExecutionContext, Executor};
use tokio::runtime::Builder;

use crate::engine::stores;
use crate::world::{World, open};

/// How often one is made at most, for one that becomes half.
const TRIES: u32 = 500;

/// Makes a container as the connector with these labels would, and never starts it.
async fn make(world: &World, labels: &HashMap<String, String>, number: u32) -> Result<String, Error> {
    let name = Some(format!("conjure-{}-{number}", labels["conjure.instance"]));
    let options = CreateContainerOptions { name, ..CreateContainerOptions::default() };
    let body = ContainerCreateBody {
        image: Some(world.options().image),
        labels: Some(labels.clone()),
        cmd: Some(["sleep", "1000"].map(str::to_owned).to_vec()),
        ..ContainerCreateBody::default()
    };
    Ok(world.engine().await.create_container(Some(options), body).await?.id)
}

/// What the engine answers to one that removes a container by its name.
async fn remove(world: &World, name: &str) -> Result<(), Error> {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    world.engine().await.remove_container(name, Some(options)).await
}

/// Makes a container and removes it while it is made, until Podman has one that is half there. `None`: it has none.
async fn half(world: &World, labels: &HashMap<String, String>) -> Option<String> {
    let engine = world.engine().await;
    for number in 2000..2000 + TRIES {
        let name = format!("conjure-{}-{number}", labels["conjure.instance"]);
        let is_made = Cell::new(false);
        let making = async {
            let made = make(world, labels, number).await;
            is_made.set(true);
            made
        };
        let removing = async { while remove(world, &name).await.is_err() && !is_made.get() {} };
        let (made, ()) = tokio::join!(making, removing);
        match engine.inspect_container(&name, None::<InspectContainerOptions>).await {
            Err(Error::DockerResponseServerError { status_code: 500, message })
                if message.contains("container not known") =>
            {
                return Some(name);
            }
            // It was removed as a whole, or not at all.
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => {}
            found => {
                found.unwrap_or_else(|error| panic!("{error}, and it was made so: {made:?}"));
                remove(world, &name).await.unwrap();
            }
        }
    }
    None
}

/// Docker's clients are told of no container with the same label any more, while that one is there.
#[tokio::test]
async fn one_that_is_half_there_is_swept_and_hides_none_that_are_whole() {
    let Some(world) = World::new() else { return };
    let connector = world.connector();
    let version = connector.check_environment().await.unwrap().version;
    let it = world.container_with(&connector, |_| {}).await;
    // Which are the connector's own, and no other sweeps them.
    let labels = world.inspected().await.config.unwrap().labels.unwrap();
    make(&world, &labels, 1001).await.unwrap();
    let Some(half) = half(&world, &labels).await else {
        assert!(!version.starts_with("4."), "Podman {version} had none that is half there");
        eprintln!("SKIPPED: of Podman {version} none is half there");
        it.sandbox.cleanup().await;
        connector.sweep().await.unwrap();
        return;
    };
    let filters = HashMap::from([("label", vec!["conjure.managed-by=conjure"])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let told = world.engine().await.list_containers(Some(options)).await.unwrap_err();
    assert!(told.to_string().contains("container not known"), "{told}");
    let names: Vec<_> = world.containers().await.into_iter().flat_map(|it| it.names.unwrap()).collect();
    assert!(names.len() == 3 && names.contains(&half), "{names:?}");
    let swept = connector.sweep().await.unwrap();
    assert!(swept.removed == 2 && swept.failures.is_empty(), "{swept:?}");
    assert_eq!(world.containers().await.len(), 1);
    it.sandbox.cleanup().await;
    assert!(world.containers().await.is_empty());
}

/// Podman would keep what it has not made yet, and nobody would remove that.
#[test]
fn an_opening_that_goes_with_the_runtime_when_there_is_storage_alone_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let connector = world.connector();
    let it = first.block_on(world.container_with(&connector, |_| {}));
    let labels = first.block_on(world.inspected()).config.unwrap().labels.unwrap();
    let workspace = tempfile::tempdir().unwrap();
    let context = ExecutionContext::new(workspace.path());
    for number in 1..=10 {
        let name = format!("conjure-{}-{number}", labels["conjure.instance"]);
        let (connector, context) = (connector.clone(), context.clone());
        let short = runtime();
        let opening = short.spawn(async move { open(&connector, &context).await.map(drop) });
        // The moment is short, so nothing is waited for in between.
        while !stores(&name) {
            assert!(!opening.is_finished(), "there is no {name}");
            std::thread::yield_now();
        }
        drop(short);
    }
    first.block_on(async {
        it.sandbox.cleanup().await;
        // Later than all that was begun.
        open(&connector, &context).await.unwrap().cleanup().await;
        world.until_nothing_is_left().await;
    });
}
