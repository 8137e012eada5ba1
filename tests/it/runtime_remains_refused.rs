//! Files that a service does not delete, for good or for now, whoever asks: they keep back no others.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use conjure::{
    Block, ExecutorKind, FileRemoval, HostedFiles, Hosting, Model, ModelStream, RemovalError, Removed,
    Request, Runtime, RuntimeOptions, ServiceAccount, ServiceFiles,
};
use conjure_anthropic::Messages;
use conjure_anthropic::fake::FakeMessages;
use futures_util::future::BoxFuture;

use crate::runtime_bed::{Host, soon, tenant};
use crate::runtime_remains::{
    KEY, age, carried, client, files, is_down, left, notes, options, service, worked,
};

/// Why a file is not deleted; `None`: the service is asked.
type Fate = fn(&str) -> Option<RemovalError>;

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

    fn hosting(&self) -> Hosting {
        self.service.hosting()
    }

    fn hosted_files(&self) -> HostedFiles {
        let HostedFiles::There(files) = self.service.hosted_files() else { return HostedFiles::Unsaid };
        let files = files.downcast::<ServiceFiles>().unwrap();
        let (removal, asked) = (Arc::clone(&files.removal), Arc::clone(&self.asked));
        let removal = Refusing { removal, fate: self.fate, asked };
        ServiceFiles { removal: Arc::new(removal), ..(*files).clone() }.into()
    }
}

#[derive(Debug)]
struct Refusing {
    removal: Arc<dyn FileRemoval>,
    fate: Fate,
    asked: Asked,
}

impl FileRemoval for Refusing {
    fn account(&self) -> ServiceAccount {
        self.removal.account()
    }

    fn given(&self, block: &Block) -> Option<String> {
        self.removal.given(block)
    }

    fn made(&self, answer: &[Block]) -> Vec<String> {
        self.removal.made(answer)
    }

    fn remove<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Removed, RemovalError>> {
        self.asked.lock().unwrap().push(id.to_owned());
        match (self.fate)(id) {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.removal.remove(id),
        }
    }
}

fn stubborn(host: &Host, fake: &FakeMessages, fate: Fate) -> (RuntimeOptions, Asked) {
    let service = client(fake, KEY).messages(conjure_anthropic::Options::new("m")).unwrap();
    let asked = Asked::default();
    let model = Stubborn { service, fate, asked: Arc::clone(&asked) };
    (options(host, &fake.base_url(), KEY).model("m", model), asked)
}

/// What was asked for since this was called last.
fn taken(asked: &Asked) -> BTreeSet<String> {
    std::mem::take(&mut *asked.lock().unwrap()).into_iter().collect()
}

#[tokio::test]
async fn a_file_that_the_service_does_not_delete_keeps_no_other_and_is_given_up_alone() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, asked) = stubborn(&host, &fake, |id| {
        id.ends_with("000001").then(|| RemovalError::Refused { reason: "not this one".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = worked(&runtime, "acme").await;
    let kept = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((left(&deletion), files(&fake)), ([kept.clone()].into(), [kept.clone()].into()));
    assert_eq!(deletion.left[0].reason, "not this one");
    assert_eq!(taken(&asked).len(), 2);
    age(&host, 20);
    carried(&runtime).await.unwrap_err();
    assert_eq!((notes(&host).len(), taken(&asked)), (0, [kept.as_str().to_owned()].into()));
    assert_eq!((carried(&runtime).await, files(&fake)), (Ok(0), [kept].into()));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_was_deleted_beside_one_for_which_the_key_was_refused_is_known_to_be_gone() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, _) = stubborn(&host, &fake, |id| {
        id.ends_with("000001").then(|| RemovalError::KeyRefused { reason: "who are you?".to_owned() })
    });
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = worked(&runtime, "acme").await;
    let kept = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((left(&deletion), files(&fake)), ([kept.clone()].into(), [kept].into()));
    assert_eq!(deletion.left[0].reason, "who are you?");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn one_file_of_which_the_service_fails_holds_up_no_other() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = Runtime::spawn(options(&host, &fake.base_url(), KEY)).await.unwrap();
    for _ in 0..3 {
        worked(&runtime, "acme").await;
    }
    fake.add_hosted_fault(is_down().unwrap());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!((left(&deletion).len(), left(&deletion)), (1, files(&fake)));
    assert!(deletion.left[0].reason.contains("500"), "{deletion:?}");
    assert_eq!(carried(&runtime).await, Ok(1));
    assert!(files(&fake).is_empty() && notes(&host).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_service_that_fails_file_after_file_is_left_alone_and_asked_for_others_first_the_next_time() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, asked) = stubborn(&host, &fake, |_| None);
    let runtime = Runtime::spawn(options).await.unwrap();
    for _ in 0..3 {
        worked(&runtime, "acme").await;
    }
    fake.set_hosted_outage(is_down());
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert_eq!(left(&deletion), files(&fake));
    let first = taken(&asked);
    assert_eq!(first.len(), 4, "two, and two more");
    let reasons: Vec<bool> = deletion.left.iter().map(|left| left.reason.contains("500")).collect();
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
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    let (options, asked) =
        stubborn(&host, &fake, |_| Some(RemovalError::Unreachable { reason: "nobody is there".to_owned() }));
    let runtime = Runtime::spawn(options).await.unwrap();
    for _ in 0..3 {
        let session = worked(&runtime, "acme").await;
        runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    }
    assert_eq!((taken(&asked).len(), notes(&host).len()), (6, 3));
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
