//! Partial containers: in Podman's database, and not in its storage.

use std::collections::HashMap;

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptionsBuilder,
};
use conjure_sandbox::{ExecutionContext, Executor};
use tokio::runtime::Builder;

use crate::container_fixture::{ContainerFixture, open};
use crate::engine::{remove_from_storage, stores};

/// Makes a container as the connector with these labels would, and never starts it.
async fn make(
    fixture: &ContainerFixture,
    labels: &HashMap<String, String>,
    number: u32,
) -> Result<String, Error> {
    let name = Some(format!("conjure-{}-{number}", labels["conjure.instance"]));
    let options = CreateContainerOptions { name, ..CreateContainerOptions::default() };
    let body = ContainerCreateBody {
        image: Some(fixture.options().image),
        labels: Some(labels.clone()),
        cmd: Some(["sleep", "1000"].map(str::to_owned).to_vec()),
        ..ContainerCreateBody::default()
    };
    Ok(fixture.engine().await.create_container(Some(options), body).await?.id)
}

/// Makes a container, and has Podman's storage lose it. `None`: this Podman has one database for whoever has the storage, and has
/// lost it, too.
async fn create_partial(fixture: &ContainerFixture, labels: &HashMap<String, String>) -> Option<String> {
    make(fixture, labels, 2000).await.unwrap();
    let name = format!("conjure-{}-2000", labels["conjure.instance"]);
    remove_from_storage(&name);
    let engine = fixture.engine().await;
    match engine.inspect_container(&name, None::<InspectContainerOptions>).await.unwrap_err() {
        Error::DockerResponseServerError { status_code: 404, .. } => None,
        half => {
            assert!(half.to_string().contains("container not known"), "{half}");
            Some(name)
        }
    }
}

/// Docker's clients are told of no container with the same label any more, while that one is there.
#[tokio::test]
async fn a_partial_container_is_swept_and_hides_no_complete_one() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let connector = fixture.connector();
    let version = connector.check_environment().await.unwrap().version;
    let container = fixture.container_with(&connector, |_| {}).await;
    // Which are the connector's own, and no other sweeps them.
    let labels = fixture.inspected().await.config.unwrap().labels.unwrap();
    make(&fixture, &labels, 1001).await.unwrap();
    let Some(half) = create_partial(&fixture, &labels).await else {
        assert!(!version.starts_with("4."), "Podman {version} had none that is half there");
        test_support::not_applicable(&format!("of Podman {version} none is half there"));
        container.sandbox.cleanup().await;
        connector.sweep().await.unwrap();
        return;
    };
    let filters = HashMap::from([("label", vec!["conjure.managed-by=conjure"])]);
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
    let error = fixture.engine().await.list_containers(Some(options)).await.unwrap_err();
    assert!(error.to_string().contains("container not known"), "{error}");
    let names: Vec<_> =
        fixture.containers().await.into_iter().flat_map(|container| container.names.unwrap()).collect();
    assert!(names.len() == 3 && names.contains(&half), "{names:?}");
    let swept = connector.sweep().await.unwrap();
    assert!(swept.removed == 2 && swept.failures.is_empty(), "{swept:?}");
    assert_eq!(fixture.containers().await.len(), 1);
    container.sandbox.cleanup().await;
    assert!(fixture.containers().await.is_empty());
}

/// Podman would keep what it has not made yet, and nobody would remove that.
#[test]
fn a_container_dropped_with_only_its_storage_leaves_nothing() {
    let Some(fixture) = ContainerFixture::new() else { return };
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let connector = fixture.connector();
    let container = first.block_on(fixture.container_with(&connector, |_| {}));
    let labels = first.block_on(fixture.inspected()).config.unwrap().labels.unwrap();
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
        container.sandbox.cleanup().await;
        // Later than all that was begun.
        open(&connector, &context).await.unwrap().cleanup().await;
        fixture.until_nothing_is_left().await;
    });
}
