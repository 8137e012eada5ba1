//! Inputs and outputs of hosted sessions: the key of each transfer, failures, and messages during a transfer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure::artifact::{
    ArtifactError, Fetch, FetchFuture, FetchRequest, FetchedContent, RegistrationSource, Retryable,
};
use conjure::config::ExecutorKind;
use conjure::conversation::{CompactionPolicy, Limit, TurnStop};
use conjure::hosted::{HostedFiles, HostedSkill, HostedSupport};
use conjure::model::ModelStream;
use conjure::{
    Block, Config, Limits, Model, ProcessEnv, Request, Response, Runtime, RuntimeError, RuntimeOptions,
    Session, SessionSpec, Settings, StopReason, Usage,
};
use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Refusal, Reply};
use conjure_base::ContainerId;
use conjure_conversation::{ApiErrorKind, ArtifactContent, ModelEvent};
use conjure_store::FileMode;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::runtime::fixture::{Fixture, ask, follow, soon, tenant};
use crate::runtime::hosted::sessions::of_service;

fn spec() -> SessionSpec {
    SessionSpec::new(tenant("acme")).model("m").hosted([HostedSkill::anthropic("xlsx")])
}

fn run() -> Reply {
    FakeToolRun::new("true").saying("Done.").into()
}

/// A service that runs hosted skills, in this many turns.
async fn service(turns: usize) -> FakeMessages {
    FakeMessages::builder().hosting().turns((0..turns).map(|_| run())).start().await.unwrap()
}

fn sales() -> RegistrationSource {
    RegistrationSource::content("region,2024\nnorth,3\n", "text/csv")
}

/// The bodies of the requests for answers.
fn model_requests(fake: &FakeMessages) -> Vec<Value> {
    let requests = fake.requests().into_iter().filter(|request| request.path().starts_with("/v1/messages"));
    requests.map(|request| serde_json::from_slice(request.body()).unwrap()).collect()
}

/// The content of the files that a request puts into its container.
fn uploaded_texts(fake: &FakeMessages, request: &Value) -> Vec<String> {
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
async fn an_upload_with_unknown_outcome_is_repeated_in_the_next_turn() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service(3).await;
    let runtime = of_service(&fixture, &fake).await;
    let session = runtime.open(spec()).await.unwrap();
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    fake.add_hosted_fault(Reply::error(Refusal::new(ApiErrorKind::Api, "internal").with_status(500)));
    for text in ["one", "two", "three"] {
        ask(&session, text).await;
    }
    assert_eq!(uploads(&fake), 2);
    let requests = model_requests(&fake);
    assert_eq!(uploaded_texts(&fake, &requests[0]), Vec::<String>::new());
    for request in &requests[1..] {
        assert_eq!(uploaded_texts(&fake, request), ["region,2024\nnorth,3\n"]);
        assert_eq!(request.to_string().matches(NOT_GIVEN).count(), 1, "{request}");
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn artifacts_are_uploaded_to_the_account_of_the_sessions_model() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let (hosts, tenants) = (service(1).await, service(1).await);
    let settings = Settings {
        base_url: Some(hosts.base_url()),
        data: Some(fixture.data()),
        executor: Some(ExecutorKind::Local),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::default(), None).unwrap();
    let own =
        conjure_anthropic::Config::new("tenants-key".to_owned().into()).with_base_url(tenants.base_url());
    let own = conjure_anthropic::Client::new(&own).unwrap();
    let own = own.messages(conjure_anthropic::ModelOptions::new("m")).unwrap();
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
    assert_eq!(uploaded_texts(&tenants, &model_requests(&tenants)[0]), ["region,2024\nnorth,3\n"]);
    runtime.shutdown(soon()).await.unwrap();
}

/// A service that answers, and has such files.
struct ModelWithFiles(HostedFiles);

impl Model for ModelWithFiles {
    fn stream(&self, request: Request) -> ModelStream {
        let answer = crate::runtime::fixture::answer(&request);
        stream::iter([Ok(ModelEvent::Finished(Box::new(answer)))]).boxed()
    }

    fn hosted_support(&self) -> HostedSupport {
        HostedSupport::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        self.0.clone()
    }
}

#[tokio::test]
async fn a_model_without_file_support_has_no_hosted_sessions() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let options = fixture.options().model("silent", ModelWithFiles(HostedFiles::Unknown));
    let options = options.model("other", ModelWithFiles(HostedFiles::Available(Arc::new("a directory"))));
    let runtime = Runtime::spawn(options.model("none", ModelWithFiles(HostedFiles::None))).await.unwrap();
    for name in ["silent", "other"] {
        let error = runtime.open(spec().model(name)).await.unwrap_err();
        assert!(matches!(&error, RuntimeError::NoHostedFiles { model } if model == name), "{error}");
    }
    // Without hosted sessions, a request for one fails.
    let session = runtime.open(spec().model("none")).await.unwrap();
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    let answer = ask(&session, "one").await;
    assert!(answer.contains("`sales.csv`") && answer.contains(NOT_GIVEN), "{answer}");
    assert!(!ask(&session, "two").await.contains(NOT_GIVEN), "once");
    runtime.shutdown(soon()).await.unwrap();
}

/// A fetcher with one page, which counts its requests.
struct CountingFetcher(Arc<AtomicU32>);

impl Fetch for CountingFetcher {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if !request.url.ends_with("/data.csv") {
                let (url, reason) = (request.url.to_owned(), "the server said 404".to_owned());
                return Err(ArtifactError::FetchFailed { url, reason, retry: Retryable::No });
            }
            let inserted = request.store.insert_bytes(b"a,b\n", FileMode::Plain).unwrap();
            let content = ArtifactContent { digest: inserted.digest, size: inserted.size };
            Ok(FetchedContent { content, content_type: "text/csv".to_owned(), name: "data.csv".to_owned() })
        })
    }
}

#[tokio::test]
async fn url_contents_are_uploaded_and_a_failure_is_reported_once() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service(2).await;
    let asked_for = Arc::new(AtomicU32::new(0));
    let settings = Settings {
        base_url: Some(fake.base_url()),
        data: Some(fixture.data()),
        executor: Some(ExecutorKind::Local),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::default(), None).unwrap();
    let options = RuntimeOptions::from(config).fetch(CountingFetcher(Arc::clone(&asked_for)));
    let runtime = Runtime::spawn(options.anthropic("any-key".into())).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    let artifacts = session.artifacts();
    artifacts.register("api", RegistrationSource::url("https://example.com/data.csv")).await.unwrap();
    artifacts.register("gone", RegistrationSource::url("https://example.com/gone.csv")).await.unwrap();
    ask(&session, "one").await;
    ask(&session, "two").await;
    assert_eq!(asked_for.load(Ordering::SeqCst), 2, "each once");
    assert_eq!(uploads(&fake), 1);
    for request in model_requests(&fake) {
        assert_eq!(uploaded_texts(&fake, &request), ["a,b\n"]);
        let text = request["messages"].to_string();
        assert_eq!(text.matches(NOT_GIVEN).count(), 1, "{text}");
        assert!(text.contains("`gone`") && text.contains("the server said 404"), "{text}");
    }
    // The resolved content is recorded, as for a request of a tool.
    let known = session.artifacts().list().await.unwrap();
    let sizes: Vec<_> = known.iter().map(|artifact| (artifact.name.as_str(), artifact.size())).collect();
    assert_eq!(sizes, [("api", Some(4)), ("gone", None)]);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_session_responds_during_an_upload_and_its_time_limit_applies() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service(0).await;
    let runtime = of_service(&fixture, &fake).await;
    let limits = Limits { wall_clock: Some(Duration::from_secs(15)), ..Limits::default() };
    let session = runtime.open(spec().limits(limits)).await.unwrap();
    let mut turn = upload_without_end(&session, &fake).await;
    session.artifacts().register("more.csv", sales()).await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Limit(Limit::WallClock));
    assert_eq!(model_requests(&fake).len(), 0, "the model was not called");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn messages_during_an_upload_are_accepted_before_it_ends() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service(1).await;
    let runtime = of_service(&fixture, &fake).await;
    let session = runtime.open(spec()).await.unwrap();
    let mut turn = upload_without_end(&session, &fake).await;
    // The upload does not end, so these do not wait for it.
    session.artifacts().register("more.csv", sales()).await.unwrap();
    let mut next = session.send("two").await.unwrap();
    session.interrupt().await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Interrupted);
    // The queued message comes next, with its uploads.
    let (stop, text) = follow(&mut next).await;
    assert!(matches!(stop, TurnStop::Answered(_)), "{stop}");
    assert_eq!(text, "Done.");
    assert_eq!(uploaded_texts(&fake, &model_requests(&fake)[0]).len(), 2);
    runtime.shutdown(soon()).await.unwrap();
}

/// A turn with an upload to which the service does not respond.
async fn upload_without_end(session: &Session, fake: &FakeMessages) -> conjure::TurnHandle {
    session.artifacts().register("sales.csv", sales()).await.unwrap();
    fake.add_hosted_fault(Reply::silence());
    let turn = session.send("one").await.unwrap();
    tokio::time::timeout(Duration::from_secs(120), fake.until_received(1)).await.expect("no upload");
    turn
}

/// A service of hosted skills with additional local tools: its first response reports a produced file.
#[derive(Clone)]
struct MixedModel {
    seen: Arc<Mutex<Vec<Request>>>,
    made: String,
    files: conjure_anthropic::Messages,
}

impl MixedModel {
    fn answer(&self, request: &Request) -> Response {
        let block = |value: Value| Block::from_json(value.to_string()).unwrap();
        let mut response = Response {
            usage: Usage { input_tokens: 1_000, output_tokens: 1, ..Usage::default() },
            ..Response::new(Vec::new(), StopReason::EndTurn)
        };
        if request.hosted.is_empty() {
            response.content.push(Block::text("a summary"));
            return response;
        }
        response.container = Some(ContainerId::new("c_1"));
        let call = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        if call == 0 {
            let input = json!({"command": "make"});
            response.content.push(block(
                json!({"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": input}),
            ));
            let made = json!([{"type": "bash_code_execution_output", "file_id": self.made}]);
            let content = json!({"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": made});
            let kind = "bash_code_execution_tool_result";
            response.content.push(block(json!({"type": kind, "tool_use_id": "s1", "content": content})));
        }
        if call == 4 {
            response.content.push(Block::text("done"));
            return response;
        }
        let command = format!("echo {call}; head -c 3000 /dev/zero | tr '\\0' x");
        let input = json!({"command": command, "description": "goes on"});
        let id = format!("t{call}");
        response
            .content
            .push(block(json!({"type": "tool_use", "id": id, "name": "bash_tool", "input": input})));
        response.stop_reason = StopReason::ToolUse;
        response
    }
}

impl Model for MixedModel {
    fn stream(&self, request: Request) -> ModelStream {
        stream::iter([Ok(ModelEvent::Finished(Box::new(self.answer(&request))))]).boxed()
    }

    fn hosted_support(&self) -> HostedSupport {
        HostedSupport::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        self.files.hosted_files()
    }
}

#[tokio::test]
async fn a_file_is_listed_although_the_answer_that_names_it_was_summarised_in_its_turn() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service(0).await;
    let created = fake.put_file("report.xlsx", "cells").as_str().to_owned();
    let client = conjure_anthropic::Config::new("any-key".to_owned().into()).with_base_url(fake.base_url());
    let client = conjure_anthropic::Client::new(&client).unwrap();
    let files = client.messages(conjure_anthropic::ModelOptions::new("m")).unwrap();
    let mixed = MixedModel { seen: Arc::default(), made: created, files };
    let compaction = CompactionPolicy::with_threshold(500).with_kept_messages(1).with_regrowth(1_000_000);
    let options = fixture.options().model("mixed", mixed.clone()).compaction(compaction);
    let runtime = Runtime::spawn(options).await.unwrap();
    let spec = spec().model("mixed").skills(["greeting"]);
    let session = runtime.open(spec).await.unwrap();
    assert_eq!(ask(&session, "go").await, "done");
    let last = mixed.seen.lock().unwrap().pop().unwrap().messages;
    assert!(last[0].text().contains("a summary") && !format!("{last:?}").contains("file_id"), "{last:?}");
    let files = session.files().await.unwrap();
    assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["report.xlsx"]);
    runtime.shutdown(soon()).await.unwrap();
}
