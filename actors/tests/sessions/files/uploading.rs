//! Artifacts on their way to the model's service: what fails is told once, and tried again only where that may help.

use std::sync::{Arc, Mutex};

use conjure_actors::artifacts::ContentPinner;
use conjure_actors::session::SessionComponents;
use conjure_actors::supervision::Failure;
use conjure_artifact::{ArtifactError, ArtifactUpload, ArtifactUploader, RegistrationSource, Retryable};
use conjure_conversation::{Artifact, ArtifactContent, Block, Role};
use conjure_journal::Epoch;
use conjure_store::Store;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::files::{artifact_services, equipped};
use crate::scenario::{Host, Scenario, answered, follow, options};
use crate::support::memory;

/// A service that takes `good`, will never take `bad`, and takes `late` the second time.
#[derive(Debug, Clone)]
struct Service {
    calls: Arc<Mutex<Vec<String>>>,
    store: Store,
    dir: Arc<tempfile::TempDir>,
}

impl ArtifactUpload for Service {
    fn upload<'a>(
        &'a self,
        artifact: &'a Artifact,
        _: std::fs::File,
    ) -> BoxFuture<'a, Result<Block, ArtifactError>> {
        let name = artifact.name.to_string();
        let number = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(name.clone());
            calls.iter().filter(|other| **other == name).count()
        };
        let failure = |retry| ArtifactError::UploadFailed {
            name: artifact.name.clone(),
            reason: "https://service.test/ says no".to_owned(),
            retry,
        };
        let result = match name.as_str() {
            "bad" => Err(failure(Retryable::No)),
            "late" if number == 1 => Err(failure(Retryable::Yes)),
            _ => {
                let json = format!(r#"{{"type":"container_upload","file_id":"file_{name}"}}"#);
                Ok(Block::from_json(json).unwrap())
            }
        };
        std::future::ready(result).boxed()
    }
}

impl ContentPinner for Service {
    fn pin(&self, _: Epoch, _: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn retain(&self, _: Epoch, _: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        std::future::ready(Ok(())).boxed()
    }
}

#[tokio::test]
async fn a_failed_upload_is_reported_once_and_a_permanent_one_is_not_retried() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let store = Store::open(&dir.path().join("store")).unwrap();
    let service = Service { calls: Arc::default(), store, dir };
    assert!(service.dir.path().exists());
    let scenario = Scenario::default();
    let upload = service.clone();
    let factory = equipped(&scenario, move |key, parts| {
        let artifacts = artifact_services(key, &upload.store, Arc::default(), upload.clone());
        let uploads = ArtifactUploader::new(upload.store.clone(), Arc::new(upload.clone()));
        SessionComponents { artifacts: Some(artifacts), uploads: Some(uploads), ..parts }
    });
    let host = Host::with_factory(memory(), scenario, options("first"), factory).await;
    let session = host.open().await;
    for name in ["good", "bad", "late"] {
        session.artifacts().register(name, RegistrationSource::content(name, "text/csv")).await.unwrap();
    }
    for text in ["one", "two", "three"] {
        let mut turn = session.send(text).await.unwrap();
        assert_eq!(follow(&mut turn).await.1, answered());
    }
    let mut calls = service.calls.lock().unwrap().clone();
    calls.sort();
    assert_eq!(calls, ["bad", "good", "late", "late"]);
    let requests = host.scenario.requests.lock().unwrap().clone();
    let users = requests[2].messages.iter().filter(|message| message.role == Role::User);
    let sent = serde_json::to_string(&users.collect::<Vec<_>>()).unwrap();
    for (part, count) in [
        ("The artifact `bad` could not be put into the container: the service did not take it.", 1),
        ("The artifact `late` could not", 1),
        ("file_good", 1),
        ("file_late", 1),
        ("service.test", 0),
    ] {
        assert_eq!(sent.matches(part).count(), count, "{part}: {sent}");
    }
    host.shutdown().await;
}
