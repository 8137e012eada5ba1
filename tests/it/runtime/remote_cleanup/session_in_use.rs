//! A session that is used after each listing of its remote files is still deleted.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use conjure::artifact::{DeleteError, DeleteOutcome};
use conjure::config::ExecutorKind;
use conjure::hosted::{HostedFiles, HostedSupport, ServiceAccount, ServiceFileDeletion, ServiceFiles};
use conjure::model::ModelStream;
use conjure::{Block, Model, Request, Runtime};
use conjure_anthropic::Messages;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::runtime::fixture::{Fixture, ask, soon, tenant};
use crate::runtime::remote_cleanup::deletion::{
    KEY, client, files, leftovers, options, service, session_with_files,
};

/// How often it is looked.
const LOOKS: u32 = 8;

/// A model of the service that uses the session as soon as its events were read.
struct InterferingModel {
    service: Messages,
    using: Arc<Interference>,
}

#[derive(Debug)]
struct Interference {
    times: AtomicU32,
    use_it: UnboundedSender<()>,
    used: Mutex<mpsc::Receiver<()>>,
}

impl Model for InterferingModel {
    fn stream(&self, request: Request) -> ModelStream {
        self.service.stream(request)
    }

    fn hosted_support(&self) -> HostedSupport {
        self.service.hosted_support()
    }

    fn hosted_files(&self) -> HostedFiles {
        let HostedFiles::Available(files) = self.service.hosted_files() else { return HostedFiles::Unknown };
        let files = files.downcast::<ServiceFiles>().unwrap();
        let (removal, using) = (Arc::clone(&files.deletion), Arc::clone(&self.using));
        ServiceFiles { deletion: Arc::new(InterferingDeletion { removal, using }), ..(*files).clone() }.into()
    }
}

#[derive(Debug)]
struct InterferingDeletion {
    removal: Arc<dyn ServiceFileDeletion>,
    using: Arc<Interference>,
}

impl ServiceFileDeletion for InterferingDeletion {
    /// Asked for when the files are known, and before the record is deleted.
    fn account(&self) -> ServiceAccount {
        let Interference { times, use_it, used } = &*self.using;
        if times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| times.checked_sub(1)).is_ok() {
            use_it.send(()).unwrap();
            tokio::task::block_in_place(|| used.lock().unwrap().recv().unwrap());
        }
        self.removal.account()
    }

    fn uploaded_id(&self, block: &Block) -> Option<String> {
        self.removal.uploaded_id(block)
    }

    fn produced_ids(&self, answer: &[Block]) -> Vec<String> {
        self.removal.produced_ids(answer)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DeleteOutcome, DeleteError>> {
        self.removal.delete(id)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_of_a_session_in_use_does_not_claim_to_be_complete() {
    for times in [LOOKS - 1, LOOKS] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        let (use_it, mut uses) = unbounded_channel();
        let (has_used, used) = mpsc::channel();
        let using = Arc::new(Interference { times: AtomicU32::new(0), use_it, used: Mutex::new(used) });
        let service = client(&fake, KEY).messages(conjure_anthropic::ModelOptions::new("m")).unwrap();
        let model = InterferingModel { service, using: Arc::clone(&using) };
        let options = options(&fixture, &fake.base_url(), KEY).model("m", model);
        let runtime = Runtime::spawn(options).await.unwrap();
        let session = session_with_files(&runtime, "acme").await;
        using.times.store(times, Ordering::SeqCst);
        let use_it = async {
            while uses.recv().await.is_some() {
                assert_eq!(ask(&session, "once more").await, "Made.");
                has_used.send(()).unwrap();
            }
        };
        let whose = tenant("acme");
        let deletion = tokio::select! {
            deletion = runtime.delete(&whose, session.id()) => deletion.unwrap(),
            () = use_it => panic!("the model is there"),
        };
        assert_eq!(using.times.load(Ordering::SeqCst), 0);
        if times < LOOKS {
            assert!(deletion.is_complete() && files(&fake).is_empty(), "{deletion:?}");
        } else {
            assert_eq!(files(&fake).len(), 1, "it was created after the last check");
            assert!(!deletion.is_complete() && leftovers(&deletion).is_empty(), "{deletion:?}");
            let [leftovers] = deletion.files.as_slice() else { panic!("{deletion:?}") };
            assert_eq!(leftovers.session, session.id());
        }
        runtime.shutdown(soon()).await.unwrap();
    }
}
