//! Files that a service does not delete, whoever asks: they keep back no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conjure::{
    Block, ExecutorKind, FileRemoval, HostedFiles, Hosting, Model, ModelStream, RemovalError, Removed,
    Request, Runtime, ServiceAccount, ServiceFiles,
};
use conjure_anthropic::Messages;
use futures_util::future::BoxFuture;

use crate::runtime_bed::{Host, soon, tenant};
use crate::runtime_remains::{KEY, age, carried, client, files, left, notes, options, service, worked};

/// A model of the service that never deletes the first of its files, and is asked for that for as long as one asks.
struct Stubborn {
    service: Messages,
    asked: Arc<AtomicU32>,
}

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
        let removal = Refusing { removal: Arc::clone(&files.removal), asked: Arc::clone(&self.asked) };
        ServiceFiles { removal: Arc::new(removal), ..(*files).clone() }.into()
    }
}

#[derive(Debug)]
struct Refusing {
    removal: Arc<dyn FileRemoval>,
    asked: Arc<AtomicU32>,
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
        if id.ends_with("000001") {
            self.asked.fetch_add(1, Ordering::SeqCst);
            return Box::pin(async { Err(RemovalError::Refused { reason: "not this one".to_owned() }) });
        }
        self.removal.remove(id)
    }
}

#[tokio::test]
async fn a_file_that_the_service_does_not_delete_keeps_no_other_and_is_given_up_alone() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service().await;
    let asked = Arc::new(AtomicU32::new(0));
    let options = || {
        let service = client(&fake, KEY).messages(conjure_anthropic::Options::new("m")).unwrap();
        options(&host, &fake.base_url(), KEY).model("m", Stubborn { service, asked: Arc::clone(&asked) })
    };
    let runtime = Runtime::spawn(options()).await.unwrap();
    let session = worked(&runtime, "acme").await;
    let kept = fake.files()[0].clone();
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((left(&deletion), files(&fake)), ([kept.clone()].into(), [kept.clone()].into()));
    assert_eq!(deletion.left[0].reason, "not this one");
    age(&host, 20);
    carried(&runtime).await.unwrap_err();
    assert_eq!((notes(&host).len(), asked.load(Ordering::SeqCst)), (0, 2));
    assert_eq!((carried(&runtime).await, files(&fake)), (Ok(0), [kept].into()));
    runtime.shutdown(soon()).await.unwrap();
}
