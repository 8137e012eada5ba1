//! Sessions whose skills run at the model's service: the API is the same as for other sessions, and no call with possible
//! effects is
//! sent twice.

use std::sync::{Arc, Mutex};

use conjure::artifact::{FileSource, RegistrationSource};
use conjure::config::ExecutorKind;
use conjure::conversation::TurnStop;
use conjure::hosted::{HostedFiles, HostedSkill, HostedSupport};
use conjure::model::{ModelErrorKind, ModelStream};
use conjure::session::SessionStatus;
use conjure::{
    Config, Model, ModelError, ProcessEnv, Request, RuntimeError, RuntimeOptions, SessionSpec, Settings,
};
use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};
use conjure_base::ContainerId;
use conjure_conversation::ModelEvent;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::runtime::fixture::{Fixture, answer, ask, follow, soon, tenant};

/// A service that runs skills: on `hang` it hangs, on `lose` it loses its container; otherwise it responds from one.
#[derive(Clone, Default)]
struct Service(Arc<Mutex<Vec<Request>>>);

impl Service {
    fn requests(&self) -> Vec<Request> {
        self.0.lock().unwrap().clone()
    }
}

impl Model for Service {
    fn stream(&self, request: Request) -> ModelStream {
        self.0.lock().unwrap().push(request.clone());
        let texts = request.messages.iter().rev().map(|message| message.text()).collect::<Vec<_>>();
        if texts[0] == "hang" {
            return stream::pending().boxed();
        }
        if texts[0] == "lose" && request.container.is_some() {
            let expired = ModelError::new(ModelErrorKind::ContainerGone, "it has expired");
            return stream::iter([Err(expired)]).boxed();
        }
        let count = self.0.lock().unwrap().len();
        let mut answer = answer(&request);
        answer.container = Some(request.container.unwrap_or_else(|| ContainerId::new(format!("c_{count}"))));
        stream::iter([Ok(ModelEvent::Finished(Box::new(answer)))]).boxed()
    }

    fn hosted_support(&self) -> HostedSupport {
        HostedSupport::Skills
    }

    fn hosted_files(&self) -> HostedFiles {
        HostedFiles::None
    }
}

fn spec() -> SessionSpec {
    SessionSpec::new(tenant("acme"))
        .hosted([HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1").with_version("2")])
}

#[tokio::test]
async fn a_hosted_session_asks_for_its_skills_in_one_container_over_turns_and_restarts() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let service = Service::default();
    let options = || fixture.options().model("hosted", service.clone());
    let runtime = conjure::Runtime::spawn(options()).await.unwrap();
    let session = runtime.open(spec().model("hosted")).await.unwrap();
    assert_eq!(ask(&session, "one").await, "heard: one");
    assert_eq!(ask(&session, "two").await, "heard: two");
    runtime.shutdown(soon()).await.unwrap();

    let runtime = conjure::Runtime::spawn(options()).await.unwrap();
    let session = runtime.session(session.tenant(), session.id()).await.unwrap();
    assert_eq!(ask(&session, "three").await, "heard: three");
    let requests = service.requests();
    let containers: Vec<Option<&str>> =
        requests.iter().map(|request| request.container.as_ref().map(ContainerId::as_str)).collect();
    assert_eq!(containers, [None, Some("c_1"), Some("c_1")]);
    for request in &requests {
        assert_eq!(
            *request.hosted,
            [HostedSkill::anthropic("xlsx"), HostedSkill::custom("skill_1").with_version("2")]
        );
        assert!(request.tools.is_empty(), "nothing runs here: {:?}", request.tools);
    }
    // Without a sandbox the call returns an error.
    assert!(session.executor().await.is_err());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn hosted_and_own_skills_go_together() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let service = Service::default();
    let runtime = conjure::Runtime::spawn(fixture.options().model("hosted", service.clone())).await.unwrap();
    let session = runtime.open(spec().skills(["greeting"]).model("hosted")).await.unwrap();
    let answer = ask(&session, "$ echo mixed").await;
    assert_eq!(answer.trim(), "it says: mixed");
    let request = &service.requests()[0];
    assert_eq!(request.hosted.len(), 2);
    assert!(request.tools.iter().any(|tool| tool.name == "bash_tool"));
    assert!(request.instructions.iter().any(|text| text.contains("greeting")));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn an_expired_container_is_replaced_and_the_model_told() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let service = Service::default();
    let runtime = conjure::Runtime::spawn(fixture.options().model("hosted", service.clone())).await.unwrap();
    let session = runtime.open(spec().model("hosted")).await.unwrap();
    ask(&session, "one").await;
    let answer = ask(&session, "lose").await;
    assert!(
        answer.contains("lose") && answer.contains("has expired, and a fresh one takes its place"),
        "{answer}"
    );
    let containers: Vec<bool> =
        service.requests().iter().map(|request| request.container.is_some()).collect();
    assert_eq!(containers, [false, true, false]);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_turn_of_a_killed_process_is_unknown_and_resumes_on_request() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let service = Service::default();
    let runtime = conjure::Runtime::spawn(fixture.options().model("hosted", service.clone())).await.unwrap();
    let session = runtime.open(spec().model("hosted")).await.unwrap();
    let mut turn = session.send("hang").await.unwrap();
    while service.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    session.kill();
    let (stop, _) = follow(&mut turn).await;
    let TurnStop::ModelFailed(error) = stop else { panic!("{stop:?}") };
    assert_eq!(error.kind, ModelErrorKind::OutcomeUnknown);
    assert!(error.message.contains("send a message to go on"), "{error}");
    assert_eq!(service.requests().len(), 1, "the request was not repeated");
    assert_eq!(session.snapshot().await.unwrap().status, SessionStatus::Idle);
    assert!(ask(&session, "go on").await.contains("go on"));
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn the_model_is_told_of_a_call_that_was_interrupted() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let service = Service::default();
    let runtime = conjure::Runtime::spawn(fixture.options().model("hosted", service.clone())).await.unwrap();
    let session = runtime.open(spec().model("hosted")).await.unwrap();
    let mut turn = session.send("hang").await.unwrap();
    while service.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    session.interrupt().await.unwrap();
    assert_eq!(follow(&mut turn).await.0, TurnStop::Interrupted);
    ask(&session, "go on").await;
    let text = service.requests().pop().unwrap().messages[0].text();
    let lines: Vec<&str> = text.lines().collect();
    let ["hang", told, "go on"] = lines[..] else { panic!("{text}") };
    assert!(told.contains("was under way when it broke off") && told.contains("Check before"), "{told}");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn unhostable_sessions_are_rejected_and_leave_nothing() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let error = runtime.open(spec()).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::NotHosting { model } if model == "echo"), "{error}");
    assert!(error.hint().unwrap().contains("RuntimeOptions::anthropic"));
    runtime.shutdown(soon()).await.unwrap();
    let runtime =
        conjure::Runtime::spawn(fixture.options().model("hosted", Service::default())).await.unwrap();
    let nine = (0..9).map(|number| HostedSkill::custom(format!("skill_{number}")));
    let spec = SessionSpec::new(tenant("acme")).hosted(nine).model("hosted");
    let error = runtime.open(spec).await.unwrap_err();
    assert!(
        error.to_string().contains("9 hosted skills are too many for one request, which takes 8"),
        "{error}"
    );
    runtime.shutdown(soon()).await.unwrap();
}

/// A runtime whose models are those of this fake of the service.
pub(crate) async fn of_service(fixture: &Fixture, fake: &FakeMessages) -> conjure::Runtime {
    let settings = Settings {
        base_url: Some(fake.base_url()),
        data: Some(fixture.data()),
        executor: Some(ExecutorKind::Local),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::default(), None).unwrap();
    conjure::Runtime::spawn(RuntimeOptions::from(config).anthropic("any-key".into())).await.unwrap()
}

#[tokio::test]
async fn files_are_uploaded_and_downloaded_by_the_usual_calls() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let turns: [Reply; 3] = [
        FakeToolRun::new("python make.py").paused().into(),
        FakeToolRun::new("python make.py").with_file("table.xlsx", "cells").saying("Made it.").into(),
        FakeToolRun::new("cat table.xlsx").saying("It is there.").into(),
    ];
    let fake = FakeMessages::builder().hosting().turns(turns).start().await.unwrap();
    let runtime = of_service(&fixture, &fake).await;
    let spec = SessionSpec::new(tenant("acme")).model("m").hosted([HostedSkill::anthropic("xlsx")]);
    let session = runtime.open(spec).await.unwrap();
    let sales = RegistrationSource::content("region,2024\nnorth,3\n", "text/csv");
    session.artifacts().register("sales.csv", sales).await.unwrap();
    assert_eq!(ask(&session, "make a table").await, "Made it.");

    // The artifact is a file of the service, named in the user's message.
    let first =
        fake.requests().into_iter().find(|request| request.path().starts_with("/v1/messages")).unwrap();
    let sent: serde_json::Value = serde_json::from_slice(first.body()).unwrap();
    let block = &sent["messages"][0]["content"][1];
    assert_eq!(block["type"], "container_upload", "{sent}");
    let uploaded = fake.file(&block["file_id"].as_str().unwrap().into()).unwrap();
    assert_eq!(uploaded, "region,2024\nnorth,3\n");

    // The output is listed with its source, and read as a stream.
    let files = session.files().await.unwrap();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    assert_eq!((file.name.as_str(), file.size, file.source), ("table.xlsx", Some(5), FileSource::Hosted));
    let content = session.open_file(file).await.unwrap();
    let bytes: Vec<u8> = content.stream.map_ok(|piece| piece.to_vec()).try_concat().await.unwrap();
    assert_eq!(bytes, b"cells");

    // It is given once, lists once, and stays in one container, over a restart too.
    runtime.shutdown(soon()).await.unwrap();
    let runtime = of_service(&fixture, &fake).await;
    let session = runtime.session(session.tenant(), session.id()).await.unwrap();
    assert_eq!(ask(&session, "is it there?").await, "It is there.");
    assert_eq!(session.files().await.unwrap(), files);
    assert_eq!(fake.containers().len(), 1);
    let uploads = fake.requests().iter().filter(|request| request.path().starts_with("/v1/files")).count();
    assert_eq!(uploads, 1 + 1 + 2, "one upload, one look, and a look and a download");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_container_expired_between_turns_is_replaced_with_its_artifacts() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let run = || -> Reply { FakeToolRun::new("true").saying("Done.").into() };
    let fake = FakeMessages::builder().hosting().turns([run(), run(), run()]).start().await.unwrap();
    let runtime = of_service(&fixture, &fake).await;
    let spec = SessionSpec::new(tenant("acme")).model("m").hosted([HostedSkill::anthropic("xlsx")]);
    let session = runtime.open(spec).await.unwrap();
    let sales = RegistrationSource::content("1", "text/csv");
    session.artifacts().register("sales.csv", sales).await.unwrap();
    ask(&session, "one").await;
    fake.expire_containers();
    assert_eq!(ask(&session, "two").await, "Done.");
    let last = fake.requests().pop().unwrap();
    let sent: serde_json::Value = serde_json::from_slice(last.body()).unwrap();
    assert!(sent["container"]["id"].is_null(), "a fresh one: {}", sent["container"]);
    let content = sent["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
    assert!(content.contains("has expired, and a fresh one takes its place"), "{content}");
    assert!(content.contains("container_upload"), "{content}");
    runtime.shutdown(soon()).await.unwrap();
}
