//! Sessions that change their model between two turns: the conversation and the sandbox stay, and the change is permanent.

use std::collections::BTreeSet;
use std::sync::Arc;

use conjure::artifact::{FileSource, RegistrationSource};
use conjure::config::ExecutorKind;
use conjure::conversation::Rejection;
use conjure::hosted::HostedSkill;
use conjure::model::{BlockKind, ModelErrorKind, Script, ScriptFormat, ScriptedModel};
use conjure::session::{SessionBody, SessionEventKind};
use conjure::{
    Block, Model, ModelError, Request, Runtime, RuntimeError, RuntimeOptions, Session, SessionError,
    SessionSpec, model_fn,
};
use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Reply};

use crate::runtime::fixture::{Fixture, answer, ask, soon, spec, tenant};

/// As the fixture's model, with a name before its words.
fn named(name: &'static str) -> impl Model {
    model_fn(move |request: Request| async move {
        let mut response = answer(&request);
        if let [block] = &mut response.content[..]
            && let BlockKind::Text(text) = block.kind()
        {
            *block = Block::text(format!("{name} {text}"));
        }
        Ok(response)
    })
}

fn options(fixture: &Fixture, names: &[&'static str]) -> RuntimeOptions {
    names.iter().fold(fixture.options(), |options, name| options.model(*name, named(name)))
}

async fn changes(runtime: &Runtime, session: &Session) -> Vec<(Option<String>, String)> {
    let events = runtime.events(session.tenant(), session.id(), 0).await.unwrap();
    let changed = events.into_iter().filter_map(|event| match event.kind {
        SessionEventKind::SessionModelChanged { from, to, .. } => Some((from, to)),
        _ => None,
    });
    changed.collect()
}

fn is_refused(changed: Result<(), SessionError>) -> bool {
    matches!(changed, Err(SessionError::Rejected(Rejection::TurnRunning)))
}

#[tokio::test]
async fn another_model_continues_in_the_same_sandbox() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = Runtime::spawn(options(&fixture, &["one", "two"])).await.unwrap();
    let session = runtime.open(spec().model("one")).await.unwrap();
    ask(&session, "$ echo kept > note").await;
    let executor = session.executor().await.unwrap();
    session.set_model("two").await.unwrap();
    assert_eq!(ask(&session, "$ cat note").await, "two it says: kept\n");
    assert!(Arc::ptr_eq(&executor, &session.executor().await.unwrap()), "it has the same sandbox");
    assert_eq!(changes(&runtime, &session).await, [(Some("one".to_owned()), "two".to_owned())]);
    let summary = runtime.summary(&tenant("acme"), session.id()).await.unwrap();
    let SessionBody::Ok(contents) = summary.body else { panic!("{summary:?}") };
    assert_eq!(contents.model.as_deref(), Some("two"));
    let profile = runtime.profile(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((profile.model.as_deref(), profile.base_prompt.as_str()), (Some("two"), "Be brief."));
    runtime.shutdown(soon()).await.unwrap();
}

/// The model that it had first need not be there any more; the one that it has must.
#[tokio::test]
async fn a_session_is_revived_with_the_model_that_it_has() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = Runtime::spawn(options(&fixture, &["one", "two"])).await.unwrap();
    let session = runtime.open(spec().model("one")).await.unwrap();
    ask(&session, "hello").await;
    session.set_model("two").await.unwrap();
    session.close().await.unwrap();
    assert_eq!(ask(&session, "and now").await, "two heard: and now");
    runtime.shutdown(soon()).await.unwrap();

    let runtime = Runtime::spawn(options(&fixture, &["two"])).await.unwrap();
    let revived = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(ask(&revived, "still there").await, "two heard: still there");
    runtime.shutdown(soon()).await.unwrap();
    let runtime = Runtime::spawn(options(&fixture, &["one"])).await.unwrap();
    let error = runtime.session(&tenant("acme"), session.id()).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::UnknownModel { name, .. } if name == "two"), "{error}");
    runtime.shutdown(soon()).await.unwrap();
}

/// Each script knows only its own answers, and what it expects of the request.
#[tokio::test]
async fn two_scripted_models_answer_in_one_session() {
    let script =
        |text: &str| ScriptedModel::new(Script::from_text(text, ScriptFormat::Yaml, "here").unwrap());
    let first = script("version: 1\nturns:\n- content: I am the first.\n");
    let second = script("version: 1\nturns:\n- content: I am the second.\n- content: And the last.\n");
    let fixture = Fixture::new(ExecutorKind::Local);
    let options = fixture.options().model("first", first).model("second", second);
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = runtime.open(spec().model("first")).await.unwrap();
    assert_eq!(ask(&session, "who are you").await, "I am the first.");
    session.set_model("second").await.unwrap();
    for message in ["I am the second.", "And the last."] {
        assert_eq!(ask(&session, "and you").await, message);
    }
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_change_is_refused_while_a_turn_runs_and_where_the_model_cannot_be_had() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let silent = model_fn(|_| std::future::pending());
    let runtime = Runtime::spawn(options(&fixture, &["one"]).model("silent", silent)).await.unwrap();
    let session = runtime.open(spec().model("silent")).await.unwrap();
    let turn = session.send("hello").await.unwrap();
    for _ in 0..20 {
        assert!(is_refused(session.set_model("one").await));
        tokio::task::yield_now().await;
    }
    session.interrupt().await.unwrap();
    turn.end().await.unwrap();
    let refused = session.set_model("eleven").await.unwrap_err();
    let SessionError::ModelRefused { model, reason } = &refused else { panic!("{refused}") };
    assert_eq!(model, "eleven");
    assert!(
        reason.contains("there is no model `eleven`") && reason.contains("there are echo, one"),
        "{reason}"
    );
    assert!(changes(&runtime, &session).await.is_empty());
    session.set_model("one").await.unwrap();
    assert!(ask(&session, "and now").await.starts_with("one heard: "));
    runtime.shutdown(soon()).await.unwrap();
}

/// Remote files of the session are requested from their own service, and deleted there.
#[tokio::test]
async fn hosted_skills_stay_with_models_whose_services_run_them() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let run =
        || -> Reply { FakeToolRun::new("make").with_file("table.xlsx", "cells").saying("Made.").into() };
    let fake = FakeMessages::builder().hosting().turns((0..4).map(|_| run())).start().await.unwrap();
    let broken = model_fn(|_| async { Err(ModelError::new(ModelErrorKind::Script, "nobody calls it")) });
    let options = crate::runtime::remote_cleanup::deletion::options(&fixture, &fake.base_url(), "sk-key");
    let runtime = Runtime::spawn(options.model("plain", broken)).await.unwrap();
    let spec = SessionSpec::new(tenant("acme")).model("m").hosted([HostedSkill::anthropic("xlsx")]);
    let session = runtime.open(spec).await.unwrap();
    let sales = RegistrationSource::content("region,2024\n", "text/csv");
    session.artifacts().register("sales.csv", sales).await.unwrap();
    assert_eq!(ask(&session, "make a table").await, "Made.");
    let refused = session.set_model("plain").await.unwrap_err();
    let SessionError::ModelRefused { reason, .. } = &refused else { panic!("{refused}") };
    assert!(reason.contains("runs no hosted skills"), "{reason}");

    session.set_model("m2").await.unwrap();
    assert_eq!(ask(&session, "make another").await, "Made.");
    let models: BTreeSet<String> = fake
        .requests()
        .iter()
        .filter_map(|request| {
            let body: serde_json::Value = serde_json::from_slice(request.body()).ok()?;
            Some(body["model"].as_str()?.to_owned())
        })
        .collect();
    assert_eq!(models, ["m".to_owned(), "m2".to_owned()].into());
    let hosted = session.files().await.unwrap();
    let hosted = hosted.iter().filter(|file| file.source == FileSource::Hosted).count();
    assert_eq!(hosted, 2, "one of each model");
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert!(deletion.is_complete(), "{deletion:?}");
    assert!(fake.files().is_empty(), "{:?}", fake.files());
    runtime.shutdown(soon()).await.unwrap();
}

/// The effort is recorded with the session, and sent to its service with each call.
#[tokio::test]
async fn a_session_sends_effort_and_speed_to_its_service() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = FakeMessages::builder()
        .turns((0..3).map(|_| Reply::blocks(vec![Block::text("Done.")])))
        .start()
        .await
        .unwrap();
    let options = || crate::runtime::remote_cleanup::deletion::options(&fixture, &fake.base_url(), "sk-key");
    let runtime = Runtime::spawn(options()).await.unwrap();
    let spec = SessionSpec::new(tenant("acme")).model("m").effort("high").fast(true);
    let session = runtime.open(spec).await.unwrap();
    assert_eq!(ask(&session, "go").await, "Done.");
    runtime.shutdown(soon()).await.unwrap();
    let runtime = Runtime::spawn(options()).await.unwrap();
    let revived = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(ask(&revived, "and now").await, "Done.");
    revived.set_model("m2").await.unwrap();
    assert_eq!(ask(&revived, "and with another").await, "Done.");
    runtime.shutdown(soon()).await.unwrap();
    let mut requests = fake.requests();
    let of_other = requests.pop().unwrap();
    let body: serde_json::Value = serde_json::from_slice(of_other.body()).unwrap();
    assert_eq!((body.get("output_config"), body.get("speed")), (None, None), "another model may refuse them");
    assert_eq!(requests.len(), 2);
    for request in requests {
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!((&body["output_config"]["effort"], &body["speed"]), (&"high".into(), &"fast".into()));
        let betas = request.header("anthropic-beta").unwrap();
        assert!(betas.contains("fast-mode-2026-02-01"), "{betas}");
    }
}
