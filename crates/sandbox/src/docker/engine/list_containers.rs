//! Lists containers by label, so that one broken container does not hide the others.
//!
//! Podman records each container in its database and in its storage. Its answer to Docker clients fails as a whole
//! when one is in the database only (4.3): briefly during a removal, and permanently if its storage was removed.
//! Podman's own API answers from the database.

use std::collections::HashMap;

use bollard::Docker as Client;
use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptions;
use futures_util::TryStreamExt as _;
use serde::Deserialize;

use super::engine_info::EngineKind;
use super::error_map::vanished_meanwhile;
use super::libpod::{encoded, libpod_client};

/// A container, complete or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) labels: HashMap<String, String>,
}

/// A container in Podman's own API.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PodmanContainer {
    id: String,
    names: Option<Vec<String>>,
    labels: Option<HashMap<String, String>>,
}

/// Lists all containers with this label, whatever their state.
pub(crate) async fn list_by_label(
    client: &Client,
    kind: EngineKind,
    label: &str,
) -> Result<Vec<ListedContainer>, Error> {
    match kind {
        EngineKind::Docker => list_docker(client, label).await,
        EngineKind::Podman => match list_podman(client, label).await {
            // A proxy in front of the engine may allow only Docker's requests.
            Err(error @ Error::DockerResponseServerError { .. }) if !vanished_meanwhile(&error) => {
                list_docker(client, label).await
            }
            result => result,
        },
    }
}

async fn list_docker(client: &Client, label: &str) -> Result<Vec<ListedContainer>, Error> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])])),
        ..ListContainersOptions::default()
    };
    let found = |it: ContainerSummary| {
        let name = first(it.names.unwrap_or_default());
        Some(ListedContainer { id: it.id?, name, labels: it.labels.unwrap_or_default() })
    };
    Ok(client.list_containers(Some(options)).await?.into_iter().filter_map(found).collect())
}

async fn list_podman(client: &Client, label: &str) -> Result<Vec<ListedContainer>, Error> {
    let filters = serde_json::json!({ "label": [label] }).to_string();
    let client = libpod_client(client, &format!("/containers/json?all=true&filters={}", encoded(&filters)));
    // A request of the client whose answer it does not parse.
    let answer = client.export_container("").try_fold(Vec::new(), async |mut whole, piece| {
        whole.extend_from_slice(&piece);
        Ok(whole)
    });
    let containers: Vec<PodmanContainer> = serde_json::from_slice(&answer.await?)?;
    let found = |it: PodmanContainer| {
        let name = first(it.names.unwrap_or_default());
        ListedContainer { id: it.id, name, labels: it.labels.unwrap_or_default() }
    };
    Ok(containers.into_iter().map(found).collect())
}

/// Docker prefixes the name with a slash.
fn first(names: Vec<String>) -> String {
    names.into_iter().next().map(|name| name.trim_start_matches('/').to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::docker::engine::fake_engine::{FakeReply, scripted, scripted_podman};

    const HALF: FakeReply =
        FakeReply::Refusal(500, "getting container from store \"1\": container not known");

    /// As both tell of the same container.
    const DOCKERS: &str = r#"[{"Id":"1","Names":["/a"],"Labels":{"b":"c"},"Created":1,"State":"created"}]"#;
    const PODMANS: &str = r#"[{"Id":"1","Names":["a"],"Labels":{"b":"c"},"Created":"2026-11-22T23:29:45Z","Command":["sleep"],
                              "State":"created","Mounts":[],"Ports":null,"Size":null},
                             {"Id":"2","Names":null,"Labels":null}]"#;

    fn found(id: &str, name: &str, labels: &[(&str, &str)]) -> ListedContainer {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ListedContainer { id: id.to_owned(), name: name.to_owned(), labels }
    }

    #[tokio::test]
    async fn podman_is_asked_for_what_its_database_has() {
        let (engine, _dir) = scripted_podman(|request| match request {
            it if it.contains(
                "/libpod/containers/json?all=true&filters=%7B%22label%22:%5B%22b%3Dc%22%5D%7D ",
            ) =>
            {
                FakeReply::Answer(PODMANS.to_owned())
            }
            _ => HALF,
        })
        .await;
        let both = [found("1", "a", &[("b", "c")]), found("2", "", &[])];
        assert_eq!(engine.list_by_label("b=c").await.unwrap(), both);
    }

    #[tokio::test]
    async fn who_lets_only_the_questions_of_docker_through_is_asked_these() {
        let (engine, _dir) = scripted_podman(|request| match request {
            it if it.contains("/libpod/") => FakeReply::Refusal(403, "forbidden"),
            _ => FakeReply::Answer(DOCKERS.to_owned()),
        })
        .await;
        assert_eq!(engine.list_by_label("b=c").await.unwrap(), [found("1", "a", &[("b", "c")])]);
    }

    #[tokio::test]
    async fn a_list_that_a_container_leaves_is_asked_for_again() {
        let replies = Mutex::new(vec![FakeReply::Answer(DOCKERS.to_owned()), HALF, HALF]);
        let (engine, _dir) = scripted(move |_| replies.lock().unwrap().pop().unwrap_or(HALF)).await;
        assert_eq!(engine.list_by_label("b=c").await.unwrap(), [found("1", "a", &[("b", "c")])]);
    }

    #[tokio::test]
    async fn what_an_engine_does_not_list_is_told_in_its_words() {
        let (engine, _dir) = scripted_podman(|_| FakeReply::Refusal(500, "the disk is gone")).await;
        let error = engine.list_by_label("b=c").await.unwrap_err();
        assert!(error.to_string().contains("does not list containers: the disk is gone"), "{error}");
    }
}
