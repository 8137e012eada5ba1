//! Files that a service does not delete, for good or for now, whoever asks: they keep back no others.

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
    KEY, age, carried, client, files, is_down, left, notes, options, service, worked,
};

/// Why a file is not deleted; `None`: the service is asked.
type Fate = fn(&str) -> Option<DeleteError>;

/// A model of the service that does not delete some of its files.
struct Stubborn {
    service: Messages,
    fate: Fate,
    asked: Asked,
}

/// The files that were to be deleted.
type Asked = Arc<Mutex<Vec<String>>>;

impl Model for Stubborn {
    fn stream(&self, request: Request) -> ModelStream {
        self.service.stream(request)
    }

    fn hosted_support(&self) -> HostedSupport {
        self.service.hosted_support()
    }

    fn hosted_files(&self) -> HostedFiles {
        let HostedFiles::Available(files) = self.service.hosted_files() else { return HostedFiles::Unknown };
        let files = files.downcast::<ServiceFiles>().unwrap();
        let (removal, asked) = (Arc::clone(&files.deletion), Arc::clone(&self.asked));
        let removal = Refusing { removal, fate: self.fate, asked };
        ServiceFiles { deletion: Arc::new(removal), ..(*files).clone() }.into()
    }
}

#[derive(Debug)]
struct Refusing {
    removal: Arc<dyn ServiceFileDeletion>,
    fate: Fate,
    asked: Asked,
}

impl ServiceFileDeletion for Refusing {
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
        self.asked.lock().unwrap().push(id.to_owned());
        match (self.fate)(id) {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.removal.delete(id),
        }
    }
}

fn stubborn(fixture: &Fixture, fake: &FakeMessages, fate: Fate) -> (RuntimeOptions, Asked) {
    let service = client(fake, KEY).messages(conjure_anthropic::ModelOptions::new("m")).unwrap();
    let asked = Asked::default();
    let model = Stubborn { service, fate, asked: Arc::clone(&asked) };
    (options(fixture, &fake.base_url(), KEY).model("m", model), asked)
}

/// What was asked for since this was called last.
fn taken(asked: &Asked) -> BTreeSet<String> {
    std::mem::take(&mut *asked.lock().unwrap()).into_iter().collect()
}

#[tokio::test]
async fn a_file_that_the_service_does_not_delete_keeps_no_other_and_is_given_up_alone() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, asked) = stubborn(&fixture, &fake, |id| {
        id.ends_with("000001").then(|| DeleteError::Refused { reason: "not this one".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = worked(&runtime, "acme").await;
    let kept = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((left(&deletion), files(&fake)), ([kept.clone()].into(), [kept.clone()].into()));
    assert_eq!(deletion.files[0].reason, "not this one");
    assert_eq!(taken(&asked).len(), 2);
    age(&fixture, 20);
    carried(&runtime).await.unwrap_err();
    assert_eq!((notes(&fixture).len(), taken(&asked)), (0, [kept.as_str().to_owned()].into()));
    assert_eq!((carried(&runtime).await, files(&fake)), (Ok(0), [kept].into()));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_was_deleted_beside_one_for_which_the_key_was_refused_is_known_to_be_gone() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, _) = stubborn(&fixture, &fake, |id| {
        id.ends_with("000001").then(|| DeleteError::KeyRefused { reason: "who are you?".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = worked(&runtime, "acme").await;
    let kept = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((left(&deletion), files(&fake)), ([kept.clone()].into(), [kept].into()));
    assert_eq!(deletion.files[0].reason, "who are you?");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn one_file_of_which_the_service_fails_holds_up_no_other() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
    for _ in 0..3 {
        worked(&runtime, "acme").await;
    }
    fake.add_hosted_fault(is_down().unwrap());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!((left(&deletion).len(), left(&deletion)), (1, files(&fake)));
    assert!(deletion.files[0].reason.contains("500"), "{deletion:?}");
    assert_eq!(carried(&runtime).await, Ok(1));
    assert!(files(&fake).is_empty() && notes(&fixture).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_service_that_fails_file_after_file_is_left_alone_and_asked_for_others_first_the_next_time() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, asked) = stubborn(&fixture, &fake, |_| None);
    let runtime = Runtime::spawn(options).await.unwrap();
    for _ in 0..3 {
        worked(&runtime, "acme").await;
    }
    fake.set_hosted_outage(is_down());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!(left(&deletion), files(&fake));
    let first = taken(&asked);
    assert_eq!(first.len(), 4, "two, and two more");
    let reasons: Vec<bool> = deletion.files.iter().map(|left| left.reason.contains("500")).collect();
    assert_eq!(reasons, [true, true, false]);
    carried(&runtime).await.unwrap_err();
    let second = taken(&asked);
    assert_eq!((second.len(), first.union(&second).count()), (4, 6));
    fake.set_hosted_outage(None);
    assert_eq!(carried(&runtime).await, Ok(6));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_was_only_skipped_while_a_service_was_silent_waits_for_nothing() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, asked) = stubborn(&fixture, &fake, |_| {
        Some(DeleteError::Unreachable { reason: "nobody is there".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    for _ in 0..3 {
        let session = worked(&runtime, "acme").await;
        runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    }
    assert_eq!((taken(&asked).len(), notes(&fixture).len()), (6, 3));
    let mut all = BTreeSet::new();
    for _ in 0..3 {
        carried(&runtime).await.unwrap_err();
        let its = taken(&asked);
        assert_eq!(its.len(), 2, "it is silent, so it is not asked for others");
        all.extend(its);
    }
    assert_eq!(all.len(), 6, "each has had its turn");
    runtime.shutdown(soon()).await.unwrap();
}
