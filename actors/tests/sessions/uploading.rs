//! Artifacts on their way to the model's service: what fails is told once, and tried again only where that may help.

use std::sync::{Arc, Mutex};

use conjure_actors::artifacts::{ArtifactParts, ContentKeeper};
use conjure_actors::session::{Fitting, Outfit, SessionParts};
use conjure_actors::supervision::Failure;
use conjure_artifact::{
    ArtifactError, ArtifactOptions, ArtifactUpload, Intake, Resolver, Retry, Source, Uploads,
};
use conjure_conversation::{Artifact, ArtifactContent, Block, Role};
use conjure_journal::Epoch;
use conjure_store::Store;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::support::memory;
use crate::world::{Host, Stage, answered, follow, options};

/// A service that takes `good`, will never take `bad`, and takes `late` the second time.
#[derive(Debug, Clone)]
struct Service {
    asked: Arc<Mutex<Vec<String>>>,
    store: Store,
    folder: Arc<tempfile::TempDir>,
}

impl ArtifactUpload for Service {
    fn upload<'a>(
        &'a self,
        artifact: &'a Artifact,
        _: std::fs::File,
    ) -> BoxFuture<'a, Result<Block, ArtifactError>> {
        let name = artifact.name.to_string();
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(name.clone());
            asked.iter().filter(|other| **other == name).count()
        };
        let failure = |retry| ArtifactError::UploadFailed {
            name: artifact.name.clone(),
            reason: "https://service.test/ says no".to_owned(),
            retry,
        };
        let result = match name.as_str() {
            "bad" => Err(failure(Retry::Useless)),
            "late" if number == 1 => Err(failure(Retry::MayHelp)),
            _ => {
                let json = format!(r#"{{"type":"container_upload","file_id":"file_{name}"}}"#);
                Ok(Block::from_json(json).unwrap())
            }
        };
        std::future::ready(result).boxed()
    }
}

impl ContentKeeper for Service {
    fn hold(&self, _: Epoch, _: ArtifactContent) -> BoxFuture<'_, Result<(), ArtifactError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn keep(&self, _: Epoch, _: Vec<ArtifactContent>) -> BoxFuture<'_, Result<(), Failure>> {
        std::future::ready(Ok(())).boxed()
    }
}

struct Bench {
    stage: Stage,
    service: Service,
}

impl Outfit for Bench {
    fn outfit<'a>(&'a self, fitting: Fitting<'a>) -> BoxFuture<'a, Result<SessionParts, Failure>> {
        async move {
            let tenant = fitting.key.tenant.clone();
            let parts = self.stage.outfit(fitting).await?;
            let (store, given) = (self.service.store.clone(), Arc::new(ArtifactOptions::default()));
            let artifacts = ArtifactParts {
                intake: Intake::new(Arc::clone(&given)),
                resolver: Resolver::new(tenant, store.clone(), given),
                keeper: Arc::new(self.service.clone()),
                room: Arc::new(()),
            };
            let uploads = Uploads::new(store, Arc::new(self.service.clone()));
            Ok(SessionParts { artifacts: Some(artifacts), uploads: Some(uploads), ..parts })
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_failure_is_told_once_and_what_is_never_taken_is_not_tried_again() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let store = Store::open(&folder.path().join("store")).unwrap();
    let service = Service { asked: Arc::default(), store, folder };
    assert!(service.folder.path().exists());
    let stage = Stage::default();
    let bench = Arc::new(Bench { stage: stage.clone(), service: service.clone() });
    let host = Host::fitted(memory(), stage, options("first"), bench).await;
    let session = host.open().await;
    for name in ["good", "bad", "late"] {
        session.artifacts().register(name, Source::content(name, "text/csv")).await.unwrap();
    }
    for words in ["one", "two", "three"] {
        let mut turn = session.send(words).await.unwrap();
        assert_eq!(follow(&mut turn).await.1, answered());
    }
    let mut asked = service.asked.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["bad", "good", "late", "late"]);
    let requests = host.stage.requests.lock().unwrap().clone();
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
