//! What hosted sessions are given and what they make: under which key it goes, what becomes of failures, and that a session can be spoken to
//! while something is on its way.

use std::sync::Arc;

use conjure::{
    ArtifactSource as Source, Config, Environment, ExecutorKind, HostedFiles, HostedSkill, Hosting, Model,
    ModelStream, Request, Runtime, RuntimeError, RuntimeOptions, SessionSpec, Settings,
};
use conjure_anthropic::fake::{FakeMessages, HostedRun, Refusal, Reply};
use conjure_conversation::{ApiErrorKind, ModelEvent};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use crate::runtime_bed::{Host, ask, soon, tenant};
use crate::runtime_hosted::of_service;

fn spec() -> SessionSpec {
    SessionSpec::new(tenant("acme")).model("m").hosted([HostedSkill::anthropic("xlsx")])
}

fn run() -> Reply {
    HostedRun::new("true").saying("Done.").into()
}

/// A service that runs hosted skills, in so many turns.
async fn service(turns: usize) -> FakeMessages {
    FakeMessages::builder().hosting().turns((0..turns).map(|_| run())).start().await.unwrap()
}

fn sales() -> Source {
    Source::content("region,2024\nnorth,3\n", "text/csv")
}

/// The bodies of the requests for answers.
fn asked(fake: &FakeMessages) -> Vec<Value> {
    let requests = fake.requests().into_iter().filter(|request| request.path().starts_with("/v1/messages"));
    requests.map(|request| serde_json::from_slice(request.body()).unwrap()).collect()
}

/// The content of the files that a request puts into its container.
fn given(fake: &FakeMessages, request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    let ids = blocks.filter(|block| block["type"] == "container_upload");
    let content = ids.map(|block| fake.file(&block["file_id"].as_str().unwrap().into()).unwrap());
    content.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
}

fn uploads(fake: &FakeMessages) -> usize {
    let requests = fake.requests();
    requests
        .iter()
        .filter(|request| request.path().starts_with("/v1/files") && request.method() == "POST")
        .count()
}

const NOT_GIVEN: &str = "could not be put into the container";

#[tokio::test]
async fn an_upload_of_which_nobody_knows_whether_it_arrived_is_made_again_in_the_next_turn() {
    let host = Host::new(ExecutorKind::Local);
    let fake = service(3).await;
    let runtime = of_service(&host, &fake).await;
    let session = runtime.open(spec()).await.unwrap();
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    fake.add_hosted_fault(Reply::error(Refusal::new(ApiErrorKind::Api, "internal").with_status(500)));
    for words in ["one", "two", "three"] {
        ask(&session, words).await;
    }
    assert_eq!(uploads(&fake), 2);
    let requests = asked(&fake);
    assert_eq!(given(&fake, &requests[0]), Vec::<String>::new());
    for request in &requests[1..] {
        assert_eq!(given(&fake, request), ["region,2024\nnorth,3\n"]);
        assert_eq!(request.to_string().matches(NOT_GIVEN).count(), 1, "{request}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn what_a_session_is_given_goes_to_the_account_of_its_own_model() {
    let host = Host::new(ExecutorKind::Local);
    let (hosts, tenants) = (service(1).await, service(1).await);
    let settings = Settings {
        base_url: Some(hosts.base_url()),
        data: Some(host.data()),
        executor: Some(ExecutorKind::Local),
        ..Settings::default()
    };
    let config = Config::layered(settings, &Environment::default(), None).unwrap();
    let own =
        conjure_anthropic::Config::new("tenants-key".to_owned().into()).with_base_url(tenants.base_url());
    let own = conjure_anthropic::Client::new(&own).unwrap();
    let own = own.messages(conjure_anthropic::Options::new("m")).unwrap();
    let options = RuntimeOptions::from(config).model("own", own).anthropic("hosts-key".into());
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().model("own")).await.unwrap();
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    ask(&session, "one").await;
    assert_eq!(hosts.requests().len(), 0, "the host's account has nothing of it");
    assert_eq!(uploads(&tenants), 1);
    for request in tenants.requests() {
        assert_eq!(request.header("x-api-key"), Some("tenants-key"), "{}", request.path());
    }
    assert_eq!(given(&tenants, &asked(&tenants)[0]), ["region,2024\nnorth,3\n"]);
    runtime.shutdown(soon()).await.unwrap();
}

/// A service that answers, and has such files.
struct Bare(HostedFiles);

impl Model for Bare {
    fn stream(&self, request: Request) -> ModelStream {
        let answer = crate::runtime_bed::answer(&request);
        stream::iter([Ok(ModelEvent::Finished(Box::new(answer)))]).boxed()
    }

    fn hosting(&self) -> Hosting {
        Hosting::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        self.0.clone()
    }
}

#[tokio::test]
async fn a_model_says_where_its_files_are_or_has_no_hosted_sessions() {
    let host = Host::new(ExecutorKind::Local);
    let options = host.options().model("silent", Bare(HostedFiles::Unsaid));
    let options = options.model("other", Bare(HostedFiles::There(Arc::new("a folder"))));
    let runtime = Runtime::spawn(options.model("none", Bare(HostedFiles::Nowhere))).await.unwrap();
    for name in ["silent", "other"] {
        let error = runtime.open(spec().model(name)).await.unwrap_err();
        assert!(matches!(&error, RuntimeError::NoHostedFiles { model } if model == name), "{error}");
    }
    // Where there are none, whoever counts on one is told.
    let session = runtime.open(spec().model("none")).await.unwrap();
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    let said = ask(&session, "one").await;
    assert!(said.contains("`sales.csv`") && said.contains(NOT_GIVEN), "{said}");
    assert!(!ask(&session, "two").await.contains(NOT_GIVEN), "once");
    runtime.shutdown(soon()).await.unwrap();
}
