//! Files whose deletion the service rejects, permanently or temporarily: they block no other deletion.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use conjure::artifact::{DeleteError, DeleteOutcome};
use conjure::config::ExecutorKind;
use conjure::hosted::{HostedFiles, HostedSupport, ServiceAccount, ServiceFileDeletion, ServiceFiles};
use conjure::model::ModelStream;
use conjure::{Block, Model, Request, Runtime, RuntimeOptions};
use conjure_anthropic::Messages;
use conjure_anthropic::fake::FakeMessages;
use futures_util::future::BoxFuture;

use crate::runtime::fixture::{Fixture, soon, tenant};
use crate::runtime::remote_cleanup::deletion::{
    KEY, age, carried, client, files, is_down, leftovers, notes, options, service, session_with_files,
};

/// The reason why a file is not deleted; with `None` the request is sent to the service.
type DeleteRule = fn(&str) -> Option<DeleteError>;

/// A model of the service that does not delete some of its files.
struct RefusingModel {
    service: Messages,
    rule: DeleteRule,
    requested: DeletedIds,
}

/// The files that were to be deleted.
type DeletedIds = Arc<Mutex<Vec<String>>>;

impl Model for RefusingModel {
    fn stream(&self, request: Request) -> ModelStream {
        self.service.stream(request)
    }

    fn hosted_support(&self) -> HostedSupport {
        self.service.hosted_support()
    }

    fn hosted_files(&self) -> HostedFiles {
        let HostedFiles::Available(files) = self.service.hosted_files() else { return HostedFiles::Unknown };
        let files = files.downcast::<ServiceFiles>().unwrap();
        let (removal, requested) = (Arc::clone(&files.deletion), Arc::clone(&self.requested));
        let removal = RefusingDeletion { removal, rule: self.rule, requested };
        ServiceFiles { deletion: Arc::new(removal), ..(*files).clone() }.into()
    }
}

#[derive(Debug)]
struct RefusingDeletion {
    removal: Arc<dyn ServiceFileDeletion>,
    rule: DeleteRule,
    requested: DeletedIds,
}

impl ServiceFileDeletion for RefusingDeletion {
    fn account(&self) -> ServiceAccount {
        self.removal.account()
    }

    fn uploaded_id(&self, block: &Block) -> Option<String> {
        self.removal.uploaded_id(block)
    }

    fn produced_ids(&self, answer: &[Block]) -> Vec<String> {
        self.removal.produced_ids(answer)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DeleteOutcome, DeleteError>> {
        self.requested.lock().unwrap().push(id.to_owned());
        match (self.rule)(id) {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.removal.delete(id),
        }
    }
}

fn refusing_options(
    fixture: &Fixture,
    fake: &FakeMessages,
    rule: DeleteRule,
) -> (RuntimeOptions, DeletedIds) {
    let service = client(fake, KEY).messages(conjure_anthropic::ModelOptions::new("m")).unwrap();
    let requested = DeletedIds::default();
    let model = RefusingModel { service, rule, requested: Arc::clone(&requested) };
    (options(fixture, &fake.base_url(), KEY).model("m", model), requested)
}

/// The ids whose deletion was requested since the last call.
fn take_deleted_ids(requested: &DeletedIds) -> BTreeSet<String> {
    std::mem::take(&mut *requested.lock().unwrap()).into_iter().collect()
}

#[tokio::test]
async fn an_undeletable_file_blocks_no_other_and_is_abandoned_alone() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, requested) = refusing_options(&fixture, &fake, |id| {
        id.ends_with("000001").then(|| DeleteError::Refused { reason: "not this one".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = session_with_files(&runtime, "acme").await;
    let retained = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((leftovers(&deletion), files(&fake)), ([retained.clone()].into(), [retained.clone()].into()));
    assert_eq!(deletion.files[0].reason, "not this one");
    assert_eq!(take_deleted_ids(&requested).len(), 2);
    age(&fixture, 20);
    carried(&runtime).await.unwrap_err();
    assert_eq!(
        (notes(&fixture).len(), take_deleted_ids(&requested)),
        (0, [retained.as_str().to_owned()].into())
    );
    assert_eq!((carried(&runtime).await, files(&fake)), (Ok(0), [retained].into()));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn files_deleted_before_a_rejected_key_are_recorded_as_deleted() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, _) = refusing_options(&fixture, &fake, |id| {
        id.ends_with("000001").then(|| DeleteError::KeyRefused { reason: "who are you?".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = session_with_files(&runtime, "acme").await;
    let retained = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((leftovers(&deletion), files(&fake)), ([retained.clone()].into(), [retained].into()));
    assert_eq!(deletion.files[0].reason, "who are you?");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_failing_deletion_blocks_no_other() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
    for _ in 0..3 {
        session_with_files(&runtime, "acme").await;
    }
    fake.add_hosted_fault(is_down().unwrap());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!((leftovers(&deletion).len(), leftovers(&deletion)), (1, files(&fake)));
    assert!(deletion.files[0].reason.contains("500"), "{deletion:?}");
    assert_eq!(carried(&runtime).await, Ok(1));
    assert!(files(&fake).is_empty() && notes(&fixture).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_repeatedly_failing_service_is_skipped_and_other_files_come_first_next_time() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, requested) = refusing_options(&fixture, &fake, |_| None);
    let runtime = Runtime::spawn(options).await.unwrap();
    for _ in 0..3 {
        session_with_files(&runtime, "acme").await;
    }
    fake.set_hosted_outage(is_down());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!(leftovers(&deletion), files(&fake));
    let first = take_deleted_ids(&requested);
    assert_eq!(first.len(), 4, "two, and two more");
    let reasons: Vec<bool> =
        deletion.files.iter().map(|leftovers| leftovers.reason.contains("500")).collect();
    assert_eq!(reasons, [true, true, false]);
    carried(&runtime).await.unwrap_err();
    let second = take_deleted_ids(&requested);
    assert_eq!((second.len(), first.union(&second).count()), (4, 6));
    fake.set_hosted_outage(None);
    assert_eq!(carried(&runtime).await, Ok(6));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn files_skipped_during_an_outage_have_no_backoff() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, requested) = refusing_options(&fixture, &fake, |_| {
        Some(DeleteError::Unreachable { reason: "nobody is there".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    for _ in 0..3 {
        let session = session_with_files(&runtime, "acme").await;
        runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    }
    assert_eq!((take_deleted_ids(&requested).len(), notes(&fixture).len()), (6, 3));
    let mut all = BTreeSet::new();
    for _ in 0..3 {
        carried(&runtime).await.unwrap_err();
        let file_ids = take_deleted_ids(&requested);
        assert_eq!(file_ids.len(), 2, "the service is silent, so no other request is sent");
        all.extend(file_ids);
    }
    assert_eq!(all.len(), 6, "each has had its turn");
    runtime.shutdown(soon()).await.unwrap();
}
