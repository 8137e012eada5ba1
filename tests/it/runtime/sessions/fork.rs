//! Forks of sessions: complete or absent, with their own workspace, and without a change to the original.

use std::path::PathBuf;

use conjure::artifact::RegistrationSource;
use conjure::config::ExecutorKind;
use conjure::session::{ForkError, ForkPoint, SecretNames, SessionEventKind, SessionSecrets};
use conjure::tenant::{Budget, Period, Quota};
use conjure::tool::Authorization;
use conjure::{Request, Runtime, RuntimeError, Session, SessionId, TenantPolicy, approver_fn, model_fn};
use conjure_conversation::{Block, Event, EventKind, Limits};
use conjure_journal::{Journal as _, NewEvent, SessionKey, SqliteJournal, SqliteOptions};
use futures_util::{FutureExt as _, StreamExt as _};

use crate::runtime::fixture::{Fixture, answer, ask, say, soon, spec, tenant};
use crate::runtime::open_failpoints::{OpenHalt, OpenStage, leftovers, on_disk, until_nothing_is_left};
use crate::runtime::remote_cleanup::deletion::{KEY, options, service, session_with_files};

async fn fork(runtime: &Runtime, session: &Session, point: ForkPoint) -> Result<Session, RuntimeError> {
    runtime.fork(&tenant("acme"), session.id(), point).await
}

fn reason(error: RuntimeError) -> ForkError {
    match error {
        RuntimeError::Fork { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// Has a fork run a command, behind a message with which the model reads the notes to it.
async fn run(forked: &Session, command: &str) -> String {
    ask(forked, "go on").await;
    let answer = ask(forked, command).await;
    assert!(answer.contains("This ran in a new sandbox"), "{answer}");
    answer.split_once("]\n").unwrap().1.to_owned()
}

/// The recorded user messages.
async fn user_messages(runtime: &Runtime, id: SessionId) -> Vec<String> {
    let events = runtime.events(&tenant("acme"), id, 0).await.unwrap();
    let messages = events.into_iter().filter_map(|event| match event.kind {
        SessionEventKind::UserMessage { content, .. } => Some(conjure::Message::user(content).text()),
        _ => None,
    });
    messages.collect()
}

async fn events(runtime: &Runtime, id: SessionId) -> u64 {
    runtime.summary(&tenant("acme"), id).await.unwrap().events
}

#[tokio::test]
async fn a_fork_continues_before_a_message_with_the_current_files() {
    for kind in [ExecutorKind::Jail, ExecutorKind::Local] {
        let fixture = Fixture::new(kind);
        let runtime = fixture.start().await;
        let original = runtime.open(spec()).await.unwrap();
        ask(
            &original,
            "$ echo one > note; mkdir directory; ln -s ../note directory/link; truncate -s 200M sparse",
        )
        .await;
        ask(&original, "$ echo two > note").await;
        let before = events(&runtime, original.id()).await;
        let undone = fork(&runtime, &original, ForkPoint::BeforeLastMessage).await.unwrap();
        assert_ne!(undone.id(), original.id());
        // The message is undone, its files are not.
        assert_eq!(user_messages(&runtime, undone.id()).await.len(), 1);
        let seen =
            run(&undone, "$ cat note; cat directory/link; ls -l sparse | cut -d' ' -f5; echo three > note")
                .await;
        assert_eq!(seen, "two\ntwo\n209715200\n");
        assert_eq!(ask(&original, "$ cat note").await, "it says: two\n", "its files are its own");
        assert!(events(&runtime, original.id()).await > before);
        let recorded = runtime.events(&tenant("acme"), undone.id(), 0).await.unwrap();
        let forked = recorded.iter().find_map(|event| match &event.kind {
            SessionEventKind::SessionForked { from_session_id, events } => Some((*from_session_id, *events)),
            _ => None,
        });
        assert!(matches!(forked, Some((from, _)) if from == original.id()), "{forked:?}");
        // It can be deleted, and the original continues.
        runtime.delete(&tenant("acme"), undone.id()).await.unwrap();
        assert_eq!(ask(&original, "$ cat note").await, "it says: two\n");
        runtime.shutdown(soon()).await.unwrap();
    }
}

#[tokio::test]
async fn a_passivated_session_is_forked_without_being_started() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let original = runtime.open(spec()).await.unwrap();
    ask(&original, "$ echo kept > note").await;
    let id = original.id();
    original.close().await.unwrap();
    drop(original);
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    let before = events(&runtime, id).await;
    let forked = runtime.fork(&tenant("acme"), id, ForkPoint::End).await.unwrap();
    assert_eq!(runtime.health().live_sessions, 1, "the fork alone is live");
    assert_eq!(run(&forked, "$ cat note").await, "kept\n");
    assert_eq!(events(&runtime, id).await, before, "nothing is recorded of it there");
    runtime.shutdown(soon()).await.unwrap();
    // Both are there after a restart.
    let runtime = fixture.start().await;
    for id in [id, forked.id()] {
        let revived = runtime.session(&tenant("acme"), id).await.unwrap();
        assert!(ask(&revived, "$ cat note").await.ends_with("]\nkept\n"));
    }
    runtime.shutdown(soon()).await.unwrap();
}

/// Without isolation the model knows the path of the workspace, and has said it before.
#[tokio::test]
async fn the_model_is_told_where_the_copy_of_its_workspace_is() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let original = runtime.open(spec()).await.unwrap();
    let path = ask(&original, "$ pwd").await;
    let forked = fork(&runtime, &original, ForkPoint::End).await.unwrap();
    let answer = ask(&forked, "hello").await;
    assert!(answer.starts_with("heard: [This conversation was copied"), "{answer}");
    assert!(answer.contains(&forked.id().stored_name()) && answer.ends_with("hello"), "{answer}");
    assert!(path.contains(&original.id().stored_name()), "{path}");
    runtime.shutdown(soon()).await.unwrap();
}

/// Where nothing is on the disk, the workspace is in a temporary directory.
#[tokio::test]
async fn a_session_in_memory_is_forked_too() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = Runtime::spawn(fixture.options().ephemeral()).await.unwrap();
    let original = runtime.open(spec()).await.unwrap();
    ask(&original, "$ echo kept > note").await;
    let forked = fork(&runtime, &original, ForkPoint::End).await.unwrap();
    assert_eq!(run(&forked, "$ cat note; echo changed > note").await, "kept\n");
    assert_eq!(ask(&original, "$ cat note").await, "it says: kept\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn forking_is_rejected_during_a_turn() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let silent = model_fn(|_| std::future::pending());
    let runtime = Runtime::spawn(fixture.options().model("silent", silent)).await.unwrap();
    let session = runtime.open(spec().model("silent")).await.unwrap();
    let turn = session.send("hello").await.unwrap();
    for point in [ForkPoint::End, ForkPoint::BeforeLastMessage, ForkPoint::Before(1)] {
        let refused = reason(fork(&runtime, &session, point).await.unwrap_err());
        assert_eq!(refused, ForkError::TurnRunning, "{point:?}");
    }
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]));
    session.interrupt().await.unwrap();
    turn.end().await.unwrap();
    let forked = fork(&runtime, &session, ForkPoint::BeforeLastMessage).await.unwrap();
    assert!(user_messages(&runtime, forked.id()).await.is_empty());
    let within = reason(fork(&runtime, &session, ForkPoint::Before(2)).await.unwrap_err());
    assert!(matches!(within, ForkError::WithinTurn { at: 2, start: 1, .. }), "{within:?}");
    runtime.shutdown(soon()).await.unwrap();
}

/// A turn that waits for a person is under way.
#[tokio::test]
async fn forking_is_rejected_during_an_approval_request() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let asking = approver_fn(|_| async { Authorization::Ask { reason: "may it?".to_owned() } });
    let runtime = Runtime::spawn(fixture.options().approver(asking)).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    let mut turn = session.send("$ echo hello").await.unwrap();
    while session.snapshot().await.unwrap().approvals.is_empty() {
        turn.next().await.unwrap().unwrap();
    }
    let refused = reason(fork(&runtime, &session, ForkPoint::End).await.unwrap_err());
    assert_eq!(refused, ForkError::TurnRunning);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_session_of_another_tenant_is_not_found_for_forking() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "hello").await;
    let error = runtime.fork(&tenant("globex"), session.id(), ForkPoint::End).await.unwrap_err();
    assert!(matches!(error, RuntimeError::NotFound { session: id } if id == session.id()), "{error}");
    assert!(runtime.session_ids(&tenant("globex")).await.unwrap().is_empty());
    assert!(!fixture.data().join("tenants/globex").exists(), "nothing is made for it");
    runtime.shutdown(soon()).await.unwrap();
}

/// The directory is the embedder's, not the session's.
#[tokio::test]
async fn a_directory_of_the_embedder_is_shared_and_not_copied() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let dir = tempfile::tempdir().unwrap();
    let runtime = fixture.start().await;
    let session = runtime.open(spec().workspace(dir.path())).await.unwrap();
    ask(&session, "$ echo one > note").await;
    let forked = fork(&runtime, &session, ForkPoint::End).await.unwrap();
    ask(&forked, "$ echo two > note").await;
    assert_eq!(ask(&session, "$ cat note").await, "it says: two\n");
    assert_eq!(std::fs::read_to_string(dir.path().join("note")).unwrap(), "two\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_fork_keeps_skills_and_artifacts_when_the_original_is_deleted() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().skills(["greeting"])).await.unwrap();
    let sales = RegistrationSource::content("region,2024\n", "text/csv");
    session.artifacts().register("sales", sales).await.unwrap();
    ask(&session, "hello").await;
    // The skill is another one by now.
    fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
    let forked = fork(&runtime, &session, ForkPoint::End).await.unwrap();
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    let id = forked.id();
    drop((session, forked));
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]));
    let forked = runtime.session(&tenant("acme"), id).await.unwrap();
    let mut content = forked.artifacts().open("file://sales").await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = content.stream.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(bytes, b"region,2024\n");
    let profile = runtime.profile(&tenant("acme"), id).await.unwrap();
    assert_eq!(profile.skills.len(), 1);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn usage_of_the_original_is_not_charged_again() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let policy = TenantPolicy::new().budget(Budget::default().tokens(Period::Total, 1_000_000));
    let runtime = Runtime::spawn(fixture.options().tenant(tenant("acme"), policy)).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "hello").await;
    let spent = async || runtime.tenant(&tenant("acme")).await.unwrap().usage.spent;
    let before = spent().await;
    assert!(before.iter().any(|spent| spent.used > 0), "{before:?}");
    let forked = fork(&runtime, &session, ForkPoint::End).await.unwrap();
    assert_eq!(spent().await, before);
    let usage = forked.snapshot().await.unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (1, 1), "the usage in its events");
    ask(&forked, "hello").await;
    let after = spent().await;
    assert_eq!(after[0].used, before[0].used * 2);
    runtime.shutdown(soon()).await.unwrap();
}

/// At the model's service, the fork has only what it made itself.
#[tokio::test]
async fn files_at_the_service_are_deleted_with_the_session_that_made_them() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let fake = service().await;
    let runtime = Runtime::spawn(options(&fixture, &fake.base_url(), KEY)).await.unwrap();
    let original = session_with_files(&runtime, "acme").await;
    assert_eq!(fake.files().len(), 2, "one that was uploaded, and one that was made");
    let forked = fork(&runtime, &original, ForkPoint::End).await.unwrap();
    assert_eq!(ask(&forked, "make another").await, "Made.");
    assert_eq!(fake.files().len(), 4, "its artifact is uploaded again");
    let containers: Vec<serde_json::Value> = fake
        .requests()
        .iter()
        .filter(|request| request.path().starts_with("/v1/messages"))
        .map(|request| serde_json::from_slice::<serde_json::Value>(request.body()).unwrap())
        .map(|body| body["container"]["id"].clone())
        .collect();
    assert_eq!(containers, [serde_json::Value::Null, serde_json::Value::Null], "each has its own");
    let deletion = runtime.delete(&tenant("acme"), forked.id()).await.unwrap();
    assert!(deletion.is_complete(), "{deletion:?}");
    assert_eq!(fake.files().len(), 2, "those of the original are there");
    ask(&original, "and again").await;
    let deletion = runtime.delete(&tenant("acme"), original.id()).await.unwrap();
    assert!(deletion.is_complete(), "{deletion:?}");
    assert!(fake.files().is_empty(), "{:?}", fake.files());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn secrets_of_the_original_are_the_forks_as_far_as_they_are_known() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().environment("API_TOKEN", "s3cret-of-acme")).await.unwrap();
    ask(&session, "$ echo $API_TOKEN").await;
    let forked = fork(&runtime, &session, ForkPoint::End).await.unwrap();
    assert_eq!(run(&forked, "$ echo $API_TOKEN").await, "[REDACTED:API_TOKEN]\n");
    runtime.delete(&tenant("acme"), forked.id()).await.unwrap();
    drop(forked);
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    let error = fork(&runtime, &session, ForkPoint::End).await.unwrap_err();
    let RuntimeError::MissingSecrets { session: whose, missing } = error else { panic!("{error}") };
    let names = SecretNames { environment: ["API_TOKEN".to_owned()].into(), ..SecretNames::default() };
    assert_eq!((whose, missing), (session.id(), names));
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]), "nothing is left of it");
    let secrets = SessionSecrets::new().environment("API_TOKEN", "an0ther-secret");
    let forked = runtime.fork_with(&tenant("acme"), session.id(), ForkPoint::End, secrets).await.unwrap();
    assert_eq!(run(&forked, "$ echo ${#API_TOKEN}").await, "14\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_copy_above_the_quota_is_not_started() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let policy = TenantPolicy::new().disk_bytes(24 << 20);
    let runtime = Runtime::spawn(fixture.options().tenant(tenant("acme"), policy)).await.unwrap();
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "$ head -c 14000000 /dev/zero | tr '\\0' x > large").await;
    let error = fork(&runtime, &session, ForkPoint::End).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::Quota(exceeded) if exceeded.quota == Quota::DiskBytes), "{error}");
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]));
    ask(&session, "$ rm large; echo small > note").await;
    let forked = fork(&runtime, &session, ForkPoint::End).await.unwrap();
    assert_eq!(run(&forked, "$ cat note").await, "small\n");
    runtime.shutdown(soon()).await.unwrap();
}

/// A host that opens the original and ends.
async fn original(fixture: &Fixture) -> SessionId {
    let open = OpenHalt::at(OpenStage::Preparation);
    open.release();
    let runtime = open.start(fixture).await;
    let session = runtime.open(OpenHalt::spec()).await.unwrap();
    ask(&session, "hello").await;
    runtime.shutdown(soon()).await.unwrap();
    std::fs::write(cleanup_note(fixture, session.id()), "kept").unwrap();
    session.id()
}

/// A file in the workspace of a session.
fn cleanup_note(fixture: &Fixture, id: SessionId) -> PathBuf {
    fixture.data().join("tenants/acme/workspaces").join(id.stored_name()).join("workspace/note")
}

/// The workspace is copied, and nothing is recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_turn_started_in_the_meantime_leaves_no_fork() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let id = original(&fixture).await;
    let halt = OpenHalt::at(OpenStage::Preparation);
    let runtime = halt.start(&fixture).await;
    let acme = tenant("acme");
    let mut forking = Box::pin(runtime.fork(&acme, id, ForkPoint::End));
    assert!(forking.as_mut().now_or_never().is_none());
    halt.reached(1).await;
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [2, 1, 1]));
    // Another process begins a turn.
    let journal = SqliteJournal::open(&fixture.data().join("journal"), SqliteOptions::default()).unwrap();
    let key = SessionKey::new(acme.clone(), id);
    let info = journal.session(&key).await.unwrap();
    let kind = EventKind::TurnStarted {
        turn: conjure::session::TurnId::FIRST.next(),
        input: vec![Block::text("go on")],
        limits: Limits::default(),
        queued: None,
        queued_at: None,
    };
    let event = Event { at: conjure::runtime::Timestamp::from_millis(1), kind };
    let body = serde_json::to_vec(&event).unwrap();
    journal
        .append(&key, info.events, info.epoch, vec![NewEvent::new("conversation", 1, body)])
        .await
        .unwrap();
    journal.close().await;
    halt.release();
    assert_eq!(reason(forking.await.unwrap_err()), ForkError::TurnRunning);
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]), "nothing is left of it");
    runtime.shutdown(soon()).await.unwrap();
}

/// A dropped fork leaves no session.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_dropped_fork_leaves_nothing() {
    for point in [OpenStage::Preparation, OpenStage::Start] {
        let fixture = Fixture::new(ExecutorKind::Local);
        let id = original(&fixture).await;
        let halt = OpenHalt::at(point);
        let runtime = halt.start(&fixture).await;
        let acme = tenant("acme");
        let mut forking = Box::pin(runtime.fork(&acme, id, ForkPoint::End));
        assert!(forking.as_mut().now_or_never().is_none());
        halt.reached(1).await;
        drop(forking);
        halt.release();
        crate::runtime::fixture::until(async || leftovers(&fixture, &runtime).await == (1, [1, 1, 0])).await;
        assert_eq!(std::fs::read_to_string(cleanup_note(&fixture, id)).unwrap(), "kept");
        let revived = runtime.session(&acme, id).await.unwrap();
        assert_eq!(ask(&revived, "and now").await, "heard: and now");
        runtime.delete(&acme, id).await.unwrap();
        drop(revived);
        until_nothing_is_left(&fixture, &runtime).await;
        runtime.shutdown(soon()).await.unwrap();
        assert_eq!(on_disk(&fixture), [0; 3]);
    }
}

/// The model is not available any more: nothing of the fork is left.
#[tokio::test]
async fn a_fork_that_cannot_start_leaves_nothing() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let other = model_fn(|request: Request| async move { Ok(answer(&request)) });
    let runtime = Runtime::spawn(fixture.options().model("other", other)).await.unwrap();
    let session = runtime.open(spec().model("other")).await.unwrap();
    assert_eq!(say(&session, "hello").await.1, "heard: hello");
    runtime.shutdown(soon()).await.unwrap();
    let runtime = fixture.start().await;
    let error = fork(&runtime, &session, ForkPoint::End).await.unwrap_err();
    assert!(matches!(&error, RuntimeError::UnknownModel { name, .. } if name == "other"), "{error}");
    assert_eq!(leftovers(&fixture, &runtime).await, (1, [1, 1, 0]));
    runtime.shutdown(soon()).await.unwrap();
}
