//! Remote files of deleted sessions: they are deleted at the model's service, and files of others stay.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use conjure::artifact::RegistrationSource;
use conjure::config::ExecutorKind;
use conjure::hosted::HostedSkill;
use conjure::runtime::DeletionReport;
use conjure::{
    Block, Clock as _, Config, Message, ProcessEnv, Runtime, RuntimeError, RuntimeOptions, Session,
    SessionError, SessionId, SessionSpec, Settings, SystemClock, TenantPolicy,
};
use conjure_anthropic::Client;
use conjure_anthropic::fake::{FakeMessages, FakeToolRun, Refusal, Reply};
use conjure_anthropic::hosted::FileId;
use conjure_conversation::ApiErrorKind;
use serde_json::Value;

use crate::runtime::fixture::{Fixture, ask, soon, tenant};

/// Longer than any name or id, so that it is found wherever it was written.
pub(crate) const KEY: &str = "sk-key-that-nobody-writes-down";
pub(crate) const TASK: &str = "service-files";

/// A service that produces a file in every turn.
pub(crate) async fn service() -> FakeMessages {
    let run =
        || -> Reply { FakeToolRun::new("make").with_file("table.xlsx", "cells").saying("Made.").into() };
    FakeMessages::builder().hosting().turns((0..20).map(|_| run())).start().await.unwrap()
}

pub(crate) fn options(fixture: &Fixture, service: &str, key: &str) -> RuntimeOptions {
    let settings = Settings {
        base_url: Some(service.to_owned()),
        data: Some(fixture.data()),
        executor: Some(ExecutorKind::Local),
        ..Settings::default()
    };
    let config = Config::from_layers(settings, &ProcessEnv::default(), None).unwrap();
    RuntimeOptions::from(config).anthropic(key.into())
}

async fn start(fixture: &Fixture, fake: &FakeMessages) -> Runtime {
    Runtime::spawn(options(fixture, &fake.base_url(), KEY)).await.unwrap()
}

pub(crate) fn spec(who: &str) -> SessionSpec {
    SessionSpec::new(tenant(who)).model("m").hosted([HostedSkill::anthropic("xlsx")])
}

/// A session with an artifact and a produced file.
pub(crate) async fn session_with_files(runtime: &Runtime, who: &str) -> Session {
    let session = runtime.open(spec(who)).await.unwrap();
    let sales = RegistrationSource::content("region,2024\nnorth,3\n", "text/csv");
    session.artifacts().register("sales.csv", sales).await.unwrap();
    assert_eq!(ask(&session, "make a table").await, "Made.");
    session
}

pub(crate) fn files(fake: &FakeMessages) -> BTreeSet<FileId> {
    fake.files().into_iter().collect()
}

/// The files that came to be in the meantime.
fn since(fake: &FakeMessages, before: &BTreeSet<FileId>) -> BTreeSet<FileId> {
    files(fake).difference(before).cloned().collect()
}

/// The response of an outage to every request. It forbids retries.
pub(crate) fn outage(kind: ApiErrorKind, status: u16) -> Option<Reply> {
    let refusal = Refusal::new(kind, "it says no").with_status(status);
    Some(Reply::error(refusal).with_header("x-should-retry", "false"))
}

pub(crate) fn is_down() -> Option<Reply> {
    outage(ApiErrorKind::Api, 500)
}

pub(crate) fn notes(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(fixture.data().join("remote-cleanup")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

fn deletions(fake: &FakeMessages) -> usize {
    fake.requests().iter().filter(|request| request.method() == "DELETE").count()
}

/// Runs the maintenance task that deletes remote files, and returns how many it deleted.
pub(crate) async fn carried(runtime: &Runtime) -> Result<u64, String> {
    runtime.maintenance().run(TASK, soon()).await.map_err(|error| error.to_string())
}

async fn is_gone(runtime: &Runtime, who: &str, id: SessionId) {
    let error = runtime.session(&tenant(who), id).await.map(drop).unwrap_err();
    assert!(matches!(error, RuntimeError::NotFound { .. }), "{error}");
}

pub(crate) fn leftovers(deletion: &DeletionReport) -> BTreeSet<FileId> {
    let ids = deletion.files.iter().flat_map(|leftovers| &leftovers.files);
    ids.map(|id| FileId::new(id.as_str())).collect()
}

#[tokio::test]
async fn files_are_deleted_with_their_session_and_others_stay() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let foreign = fake.put_file("theirs.csv", "not of any session");
    let runtime = start(&fixture, &fake).await;
    // The same content, by turns, of two tenants.
    let other = session_with_files(&runtime, "globex").await;
    let before = files(&fake);
    let session = session_with_files(&runtime, "acme").await;
    session.artifacts().unregister("sales.csv").await.unwrap();
    let replacement = RegistrationSource::content("region,2025\n", "text/csv");
    session.artifacts().register("sales.csv", replacement).await.unwrap();
    ask(&session, "again").await;
    session.artifacts().unregister("sales.csv").await.unwrap();
    assert_eq!(
        since(&fake, &before).len(),
        4,
        "two uploads, also of what it has no more, and two that were made"
    );
    ask(&other, "again").await;

    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert!(deletion.is_complete(), "{deletion:?}");
    assert_eq!(files(&fake).len(), 4, "an upload, two that were made, and one of nobody's");
    assert!(files(&fake).is_superset(&before) && fake.file(&foreign).is_some());
    assert!(notes(&fixture).is_empty());
    assert_eq!(carried(&runtime).await, Ok(0));
    assert_eq!(deletions(&fake), 4);
    // The other one continues with its files, and takes them along in the end.
    assert_eq!(other.files().await.unwrap().len(), 2);
    assert_eq!(ask(&other, "is it there?").await, "Made.");
    assert!(runtime.delete(&tenant("globex"), other.id()).await.unwrap().is_complete());
    assert_eq!(files(&fake), [foreign].into());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn files_of_an_imported_history_are_not_deleted() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = start(&fixture, &fake).await;
    let first = session_with_files(&runtime, "acme").await;
    let file_ids = files(&fake);
    let sent =
        fake.requests().into_iter().rfind(|request| request.path().starts_with("/v1/messages")).unwrap();
    let sent: Value = serde_json::from_slice(sent.body()).unwrap();
    let mut history: Vec<Message> = serde_json::from_value(sent["messages"].clone()).unwrap();
    let made = file_ids.iter().next_back().unwrap();
    let result = serde_json::json!({"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": {
        "type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0,
        "content": [{"type": "bash_code_execution_output", "file_id": made.as_str()}]}});
    let call = serde_json::json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {}});
    let block = |value: Value| Block::from_json(value.to_string()).unwrap();
    history.push(Message::assistant(vec![block(call), block(result), Block::text("Made.")]));
    let second = runtime.open(spec("acme").history(history)).await.unwrap();
    ask(&second, "go on").await;
    assert_eq!(files(&fake).len(), 3);
    assert!(runtime.delete(&tenant("acme"), second.id()).await.unwrap().is_complete());
    assert_eq!(files(&fake), file_ids);
    drop(first);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn an_unavailable_service_blocks_no_deletion_and_cleanup_continues_across_restarts() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = start(&fixture, &fake).await;
    let session = session_with_files(&runtime, "acme").await;
    let other = session_with_files(&runtime, "globex").await;
    fake.set_hosted_outage(is_down());
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    let [leftovers] = deletion.files.as_slice() else { panic!("{deletion:?}") };
    assert_eq!(
        (leftovers.session, leftovers.model.as_deref(), leftovers.files.len()),
        (session.id(), Some("m"), 2)
    );
    assert_eq!(
        leftovers.service.as_deref().map(|service| service.trim_end_matches('/')),
        Some(&*fake.base_url())
    );
    assert!(leftovers.reason.contains("500"), "{leftovers}");
    is_gone(&runtime, "acme", session.id()).await;
    assert!(!fixture.data().join("tenants/acme/workspaces").join(session.id().stored_name()).exists());
    let [note] = notes(&fixture).try_into().unwrap();
    assert!(!std::fs::read_to_string(&note).unwrap().contains(KEY));
    // It is tried, and then let be for a while.
    let failed = carried(&runtime).await.unwrap_err();
    assert!(failed.contains("500"), "{failed}");
    runtime.shutdown(soon()).await.unwrap();

    let runtime = start(&fixture, &fake).await;
    carried(&runtime).await.unwrap_err();
    assert_eq!((files(&fake).len(), notes(&fixture)), (4, vec![note]));
    runtime.shutdown(soon()).await.unwrap();
    fake.set_hosted_outage(None);
    let runtime = start(&fixture, &fake).await;
    // The start tries at once, by itself.
    until(|| notes(&fixture).is_empty()).await;
    assert_eq!(files(&fake).len(), 2);
    let other = runtime.session(&tenant("globex"), other.id()).await.unwrap();
    assert_eq!(ask(&other, "go on").await, "Made.");
    runtime.shutdown(soon()).await.unwrap();
}

pub(crate) async fn until(is_so: impl Fn() -> bool) {
    let deadline = soon();
    while !is_so() {
        assert!(!SystemClock.remaining(deadline).is_zero(), "it does not come to that");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn cleanup_backs_off_while_a_service_fails_and_then_completes() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = start(&fixture, &fake).await;
    let session = session_with_files(&runtime, "acme").await;
    fake.set_hosted_outage(is_down());
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    let mut tries = Vec::new();
    for run in 0..8 {
        let before = deletions(&fake);
        let outcome = carried(&runtime).await;
        let is_tried = deletions(&fake) > before;
        assert_eq!(outcome.is_err(), is_tried, "{outcome:?}");
        tries.extend(is_tried.then_some(run));
    }
    assert_eq!(tries, [0, 1, 3, 7]);
    fake.set_hosted_outage(None);
    for _ in 0..7 {
        assert_eq!(carried(&runtime).await, Ok(0));
    }
    assert_eq!(carried(&runtime).await, Ok(2));
    assert!(files(&fake).is_empty() && notes(&fixture).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

/// Changes the cleanup note of a deleted session in its file, as if time had passed.
pub(crate) fn age(fixture: &Fixture, refusals: u32) {
    let [path] = notes(fixture).try_into().unwrap();
    let mut note: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(note["refusals"].as_u64().unwrap() > 0);
    (note["refusals"], note["since"]) = (refusals.into(), 0.into());
    std::fs::write(&path, note.to_string()).unwrap();
}

#[tokio::test]
async fn a_rejected_key_is_abandoned_after_some_time_and_not_before() {
    for (kind, status) in [(ApiErrorKind::Authentication, 401), (ApiErrorKind::Permission, 403)] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let fake = service().await;
        let runtime = start(&fixture, &fake).await;
        let session = session_with_files(&runtime, "acme").await;
        fake.set_hosted_outage(outage(kind, status));
        let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
        assert!(deletion.files[0].reason.contains(&status.to_string()), "{deletion:?}");
        assert_eq!(leftovers(&deletion), files(&fake));
        age(&fixture, 18);
        assert!(carried(&runtime).await.is_err());
        assert_eq!(notes(&fixture).len(), 1, "it is the nineteenth time");
        assert!(carried(&runtime).await.is_err());
        assert_eq!(notes(&fixture).len(), 1, "the twentieth is heard, and the next is the last");
        runtime.shutdown(soon()).await.unwrap();
        let runtime = start(&fixture, &fake).await;
        until(|| notes(&fixture).is_empty()).await;
        assert_eq!(files(&fake).len(), 2, "they stay");
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_missing_file_under_another_key_proves_nothing() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = start(&fixture, &fake).await;
    let session = session_with_files(&runtime, "acme").await;
    fake.set_hosted_outage(is_down());
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    // The account of another key has none of them.
    fake.set_hosted_outage(outage(ApiErrorKind::NotFound, 404));
    let other = || Runtime::spawn(options(&fixture, &fake.base_url(), "sk-another"));
    let runtime = other().await.unwrap();
    let before = deletions(&fake);
    let error = carried(&runtime).await.unwrap_err();
    assert!(error.contains("the current key has no such file"), "{error}");
    assert!(deletions(&fake) > before);
    assert_eq!(notes(&fixture).len(), 1);
    runtime.shutdown(soon()).await.unwrap();
    // At another service are other files, of whatever ids.
    let other_service = service().await;
    let theirs: Vec<FileId> = (0..9).map(|_| other_service.put_file("theirs", "theirs")).collect();
    let runtime = Runtime::spawn(options(&fixture, &other_service.base_url(), KEY)).await.unwrap();
    let error = carried(&runtime).await.unwrap_err();
    assert!(error.contains(&other_service.base_url()), "{error}");
    assert_eq!((deletions(&other_service), other_service.files()), (0, theirs));
    runtime.shutdown(soon()).await.unwrap();
    // Under the previous key the service reports them as deleted.
    let runtime = start(&fixture, &fake).await;
    until(|| notes(&fixture).is_empty()).await;
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn remote_files_are_deleted_once_a_runtime_has_their_model() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = start(&fixture, &fake).await;
    let session = session_with_files(&runtime, "acme").await;
    let plain = runtime.open(SessionSpec::new(tenant("acme")).model("m")).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    let runtime = fixture.start().await;
    let deletion = runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!((deletion.files[0].service.as_deref(), leftovers(&deletion)), (None, files(&fake)));
    assert!(deletion.files[0].reason.contains("`m`"), "{deletion:?}");
    assert!(runtime.delete(&tenant("acme"), plain.id()).await.unwrap().is_complete());
    is_gone(&runtime, "acme", session.id()).await;
    runtime.shutdown(soon()).await.unwrap();
    let runtime = start(&fixture, &fake).await;
    until(|| notes(&fixture).is_empty()).await;
    assert!(files(&fake).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_new_key_of_the_same_account_deletes_the_old_keys_files() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = start(&fixture, &fake).await;
    let session = session_with_files(&runtime, "acme").await;
    fake.set_hosted_outage(is_down());
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    runtime.shutdown(soon()).await.unwrap();
    fake.set_hosted_outage(None);
    let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), "sk-new")).await.unwrap();
    until(|| notes(&fixture).is_empty()).await;
    assert!(files(&fake).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_not_deleted_keeps_its_files() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let [first, second] = [start(&fixture, &fake).await, start(&fixture, &fake).await];
    let session = session_with_files(&first, "acme").await;
    let in_use = second.delete(&tenant("acme"), session.id()).await.unwrap_err();
    assert!(matches!(in_use, RuntimeError::Session(SessionError::TakenOver { .. })), "{in_use}");
    // A note of a session that is recorded counts for nothing.
    let note = serde_json::json!({"format": 1, "tenant": "acme", "since": 0, "refusals": 0, "left": [
        {"session": session.id(), "model": "m", "account": null, "files": fake.files()}]});
    let path = fixture.data().join("remote-cleanup").join(format!("{}.json", session.id().stored_name()));
    std::fs::write(&path, note.to_string()).unwrap();
    assert_eq!(carried(&second).await, Ok(0));
    assert_eq!((files(&fake).len(), deletions(&fake)), (2, 0));
    assert_eq!(ask(&session, "go on").await, "Made.");
    assert!(first.delete(&tenant("acme"), session.id()).await.unwrap().is_complete());
    assert!(files(&fake).is_empty() && notes(&fixture).is_empty());
    first.shutdown(soon()).await.unwrap();
    second.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn expired_sessions_delete_their_remote_files_in_the_background() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let options = options(&fixture, &fake.base_url(), KEY).retention(Duration::ZERO);
    let runtime = Runtime::spawn(options).await.unwrap();
    let session = session_with_files(&runtime, "acme").await;
    session.close().await.unwrap();
    drop(session);
    until(|| runtime.health().known_sessions == 0).await;
    let maintenance = runtime.maintenance();
    assert_eq!(maintenance.run("retention", soon()).await, Ok(0));
    assert_eq!(maintenance.run("retention", soon()).await, Ok(1));
    assert_eq!(files(&fake).len(), 2);
    assert_eq!(carried(&runtime).await, Ok(2));
    assert!(files(&fake).is_empty() && notes(&fixture).is_empty());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_runtime_in_memory_deletes_its_remote_files_and_no_notes_of_others() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let keeping = start(&fixture, &fake).await;
    let persistent = session_with_files(&keeping, "acme").await;
    fake.set_hosted_outage(is_down());
    keeping.delete(&tenant("acme"), persistent.id()).await.unwrap();
    fake.set_hosted_outage(None);
    let ephemeral = options(&fixture, &fake.base_url(), KEY).ephemeral();
    let ephemeral = Runtime::spawn(ephemeral).await.unwrap();
    let session = session_with_files(&ephemeral, "acme").await;
    assert!(ephemeral.delete(&tenant("acme"), session.id()).await.unwrap().is_complete());
    assert_eq!(carried(&ephemeral).await, Ok(0));
    assert_eq!((files(&fake).len(), notes(&fixture).len()), (2, 1));
    // It retries failed deletions while it lives.
    let session = session_with_files(&ephemeral, "acme").await;
    fake.set_hosted_outage(is_down());
    assert_eq!(ephemeral.delete(&tenant("acme"), session.id()).await.unwrap().files.len(), 1);
    fake.set_hosted_outage(None);
    assert_eq!(carried(&ephemeral).await, Ok(2));
    ephemeral.shutdown(soon()).await.unwrap();
    assert_eq!(carried(&keeping).await, Ok(2));
    assert!(files(&fake).is_empty() && notes(&fixture).is_empty());
    keeping.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn files_are_deleted_with_their_tenant_and_others_stay() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let own_policy = TenantPolicy::new().anthropic("sk-of-acme".into());
    let options = options(&fixture, &fake.base_url(), KEY).tenant(tenant("acme"), own_policy);
    let runtime = Runtime::spawn(options).await.unwrap();
    let other = session_with_files(&runtime, "globex").await;
    let before = files(&fake);
    let sessions = [session_with_files(&runtime, "acme").await, session_with_files(&runtime, "acme").await];
    let plain = runtime.open(SessionSpec::new(tenant("acme")).model("m")).await.unwrap();
    let earlier = session_with_files(&runtime, "acme").await;
    fake.set_hosted_outage(is_down());
    runtime.delete(&tenant("acme"), earlier.id()).await.unwrap();
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    let expected = since(&fake, &before);
    assert_eq!(
        (expected.len(), leftovers(&deletion)),
        (6, expected),
        "with leftovers of an earlier deletion"
    );
    for id in sessions.iter().map(Session::id).chain([plain.id()]) {
        is_gone(&runtime, "acme", id).await;
    }
    assert!(!fixture.data().join("tenants/acme").exists());
    // All local files are deleted, and remote files are still left.
    fake.set_hosted_outage(None);
    let from = fake.requests().len();
    let deletion = runtime.delete_tenant(&tenant("acme")).await.unwrap();
    assert!(deletion.is_complete(), "{deletion:?}");
    assert_eq!((files(&fake), notes(&fixture).len()), (before, 0));
    for request in &fake.requests()[from..] {
        assert_eq!(request.header("x-api-key"), Some("sk-of-acme"));
    }
    assert_eq!(ask(&other, "go on").await, "Made.");
    // A later tenant of that name starts empty, and loses nothing.
    let second = session_with_files(&runtime, "acme").await;
    assert_eq!(carried(&runtime).await, Ok(0));
    assert_eq!(second.files().await.unwrap().len(), 1);
    runtime.shutdown(soon()).await.unwrap();
}

pub(crate) fn client(fake: &FakeMessages, key: &str) -> Client {
    Client::new(&conjure_anthropic::Config::new(key.into()).with_base_url(fake.base_url())).unwrap()
}
