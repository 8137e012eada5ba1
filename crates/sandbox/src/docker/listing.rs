//! The containers that an engine has, so that one which is half there hides none of the others.
//!
//! Podman has each in two places, its database and its storage, and its answer to Docker's clients fails as a whole where one
//! is in the first alone (4.3): for a moment while it is removed, and for ever where its storage was removed under it. What it
//! answers by its own API it knows from the database.

use std::collections::HashMap;

use bollard::Docker as Client;
use bollard::errors::Error;
use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptions;
use futures_util::TryStreamExt as _;
use serde::Deserialize;

use super::facts::EngineKind;
use super::failure::is_outrun;
use super::podman::{asking, encoded};

/// A container that an engine has, whole or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) labels: HashMap<String, String>,
}

/// As Podman tells of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    id: String,
    names: Option<Vec<String>>,
    labels: Option<HashMap<String, String>>,
}

/// All containers that bear this label, whatever their state.
pub(super) async fn labelled(client: &Client, kind: EngineKind, label: &str) -> Result<Vec<Found>, Error> {
    match kind {
        EngineKind::Docker => as_docker_tells(client, label).await,
        EngineKind::Podman => match as_podman_tells(client, label).await {
            // Who stands before it may let Docker's questions through alone.
            Err(error @ Error::DockerResponseServerError { .. }) if !is_outrun(&error) => {
                as_docker_tells(client, label).await
            }
            told => told,
        },
    }
}

async fn as_docker_tells(client: &Client, label: &str) -> Result<Vec<Found>, Error> {
    let options = ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), vec![label.to_owned()])])),
        ..ListContainersOptions::default()
    };
    let found = |it: ContainerSummary| {
        let name = first(it.names.unwrap_or_default());
        Some(Found { id: it.id?, name, labels: it.labels.unwrap_or_default() })
    };
    Ok(client.list_containers(Some(options)).await?.into_iter().filter_map(found).collect())
}

async fn as_podman_tells(client: &Client, label: &str) -> Result<Vec<Found>, Error> {
    let filters = serde_json::json!({ "label": [label] }).to_string();
    let asking = asking(client, &format!("/containers/json?all=true&filters={}", encoded(&filters)));
    // Of the client's questions, one whose answer it does not read.
    let answer = asking.export_container("").try_fold(Vec::new(), async |mut whole, piece| {
        whole.extend_from_slice(&piece);
        Ok(whole)
    });
    let told: Vec<Told> = serde_json::from_slice(&answer.await?)?;
    let found = |it: Told| {
        let name = first(it.names.unwrap_or_default());
        Found { id: it.id, name, labels: it.labels.unwrap_or_default() }
    };
    Ok(told.into_iter().map(found).collect())
}

/// Docker puts a slash before it.
fn first(names: Vec<String>) -> String {
    names.into_iter().next().map(|name| name.trim_start_matches('/').to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::scripted::{Reply, scripted, scripted_podman};
    use super::*;

    const HALF: Reply = Reply::Refusal(500, "getting container from store \"1\": container not known");

    /// As both tell of the same container.
    const DOCKERS: &str = r#"[{"Id":"1","Names":["/a"],"Labels":{"b":"c"},"Created":1,"State":"created"}]"#;
    const PODMANS: &str = r#"[{"Id":"1","Names":["a"],"Labels":{"b":"c"},"Created":"2026-11-22T23:29:45Z","Command":["sleep"],
                              "State":"created","Mounts":[],"Ports":null,"Size":null},
                             {"Id":"2","Names":null,"Labels":null}]"#;

    fn found(id: &str, name: &str, labels: &[(&str, &str)]) -> Found {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Found { id: id.to_owned(), name: name.to_owned(), labels }
    }

    #[tokio::test]
    async fn podman_is_asked_for_what_its_database_has() {
        let (engine, _folder) = scripted_podman(|request| match request {
            it if it.contains(
                "/libpod/containers/json?all=true&filters=%7B%22label%22:%5B%22b%3Dc%22%5D%7D ",
            ) =>
            {
                Reply::Answer(PODMANS.to_owned())
            }
            _ => HALF,
        })
        .await;
        let both = [found("1", "a", &[("b", "c")]), found("2", "", &[])];
        assert_eq!(engine.labelled("b=c").await.unwrap(), both);
    }

    #[tokio::test]
    async fn who_lets_only_the_questions_of_docker_through_is_asked_these() {
        let (engine, _folder) = scripted_podman(|request| match request {
            it if it.contains("/libpod/") => Reply::Refusal(403, "forbidden"),
            _ => Reply::Answer(DOCKERS.to_owned()),
        })
        .await;
        assert_eq!(engine.labelled("b=c").await.unwrap(), [found("1", "a", &[("b", "c")])]);
    }

    #[tokio::test]
    async fn a_list_that_a_container_leaves_is_asked_for_again() {
        let told = Mutex::new(vec![Reply::Answer(DOCKERS.to_owned()), HALF, HALF]);
        let (engine, _folder) = scripted(move |_| told.lock().unwrap().pop().unwrap_or(HALF)).await;
        assert_eq!(engine.labelled("b=c").await.unwrap(), [found("1", "a", &[("b", "c")])]);
    }

    #[tokio::test]
    async fn what_an_engine_does_not_list_is_told_in_its_words() {
        let (engine, _folder) = scripted_podman(|_| Reply::Refusal(500, "the disk is gone")).await;
        let error = engine.labelled("b=c").await.unwrap_err();
        assert!(error.to_string().contains("does not list containers: the disk is gone"), "{error}");
    }
}
