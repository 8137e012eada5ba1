//! Complete sessions through the runtime, in real jails: opened, used, found after a restart, and deleted.

use conjure::config::ExecutorKind;
use conjure::tool::{CallConcurrency, CallTraits};
use conjure::{Runtime, RuntimeError, SessionId, SessionSpec, ToolDefinition, ToolOutput, tool_fn};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant};

#[tokio::test]
async fn a_session_uses_its_skills_and_is_found_after_a_restart() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec().skills(["greeting"]).metadata("user", "7")).await.unwrap();
    assert_eq!(ask(&session, "$ sh /mnt/skills/greeting/scripts/run.sh").await, "it says: hello\n");
    assert_eq!(ask(&session, "$ echo kept > note; pwd").await, "it says: /workspace\n");
    let files = session.list_files().await.unwrap();
    assert_eq!((files.entries.len(), files.entries[0].size), (1, 5));
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    let revived = runtime.session(&tenant("acme"), session.id()).await.unwrap();
    assert_eq!(revived.snapshot().await.unwrap().last_text, "it says: /workspace\n");
    let answer = ask(&revived, "$ cat note").await;
    assert!(answer.starts_with("it says: ") && answer.ends_with("kept\n"), "{answer}");
    drop(revived);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_deleted_session_is_removed_with_its_workspace() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    let other = runtime.open(spec()).await.unwrap();
    for session in [&session, &other] {
        assert_eq!(ask(session, "$ echo mine > note; cat note").await, "it says: mine\n");
    }
    let workspaces = fixture.data().join("tenants/acme/workspaces");
    assert!(workspaces.join(format!("{}/workspace/note", session.id().stored_name())).is_file());
    runtime.delete(&tenant("acme"), session.id()).await.unwrap();
    let remaining: Vec<_> =
        std::fs::read_dir(&workspaces).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(remaining, [other.id().stored_name().as_str()]);
    let not_found = runtime.session(&tenant("acme"), session.id()).await.unwrap_err();
    assert!(matches!(not_found, RuntimeError::NotFound { session: id } if id == session.id()), "{not_found}");
    let twice = runtime.delete(&tenant("acme"), session.id()).await.unwrap_err();
    assert!(matches!(twice, RuntimeError::NotFound { .. }), "{twice}");
    // An interrupted deletion whose events are already deleted is completed, and only by its tenant.
    let workspace = workspaces.join(session.id().stored_name());
    std::fs::create_dir_all(workspace.join("workspace")).unwrap();
    std::fs::write(workspace.join("workspace/note"), "mine").unwrap();
    for (who, stays) in [("other", true), ("acme", false)] {
        let not_found = runtime.delete(&tenant(who), session.id()).await.unwrap_err();
        assert!(matches!(not_found, RuntimeError::NotFound { .. }), "{not_found}");
        assert_eq!(workspace.exists(), stays, "{who}");
    }
    assert!(!fixture.data().join("tenants/other").exists());
    // An old handle does not revive the session.
    assert!(session.send("are you there?").await.is_err());
    assert_eq!(ask(&other, "$ cat note").await, "it says: mine\n");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn an_id_of_another_tenant_is_reported_as_unknown() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let session = runtime.open(spec()).await.unwrap();
    ask(&session, "a secret of acme").await;
    let unknown_id = SessionId::from_bits(7);
    for (who, id) in [("other", session.id()), ("acme", unknown_id), ("other", unknown_id)] {
        let error = runtime.session(&tenant(who), id).await.unwrap_err();
        assert_eq!(error.to_string(), format!("there is no session {id}"));
        let error = runtime.delete(&tenant(who), id).await.unwrap_err();
        assert_eq!(error.to_string(), format!("there is no session {id}"));
    }
    assert_eq!(ask(&session, "still here").await, "heard: still here");
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn an_unknown_skill_is_reported_with_the_available_ones() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    fixture.write_skill("sales-report", "Reports sales.", "true");
    let runtime = fixture.start().await;
    let error = runtime.open(spec().skills(["sales-reports", "greeting"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the catalog `default` has no skill `sales-reports`");
    assert_eq!(error.hint().unwrap(), "did you mean `sales-report`?");
    let error = runtime.open(spec().skills(["zzz", "yyy"])).await.unwrap_err();
    assert_eq!(error.to_string(), "the catalog `default` has no skills `zzz`, `yyy`");
    assert_eq!(error.hint().unwrap(), "there are greeting, sales-report");
    let error = runtime.open(spec().catalog("sales")).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no catalog `sales`");
    let error = runtime.open(spec().model("gpt")).await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.hint()),
        ("there is no model `gpt`".to_owned(), Some("there are echo".to_owned()))
    );
    let error = runtime.open(SessionSpec::new(tenant("acme")).sandbox("cloud")).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no sandbox `cloud`");
    // A failed open leaves nothing.
    assert_eq!(kept_skills(&fixture), 0);
    let workspaces = fixture.data().join("tenants/acme/workspaces");
    assert_eq!(std::fs::read_dir(workspaces).map_or(0, Iterator::count), 0);
    runtime.shutdown(soon()).await.unwrap();
}

/// The number of skill contents in the tenant's store.
fn kept_skills(fixture: &Fixture) -> usize {
    std::fs::read_dir(fixture.data().join("tenants/acme/skills")).unwrap().count()
}

#[tokio::test]
async fn a_skill_is_retained_while_a_session_uses_it() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let runtime = fixture.start().await;
    let [first, second] = [runtime.open(spec()).await.unwrap(), runtime.open(spec()).await.unwrap()];
    assert_eq!(kept_skills(&fixture), 1);
    fixture.write_skill("greeting", "Greets people otherwise.", "echo good day");
    let third = runtime.open(spec()).await.unwrap();
    assert_eq!(kept_skills(&fixture), 2);
    runtime.delete(&tenant("acme"), first.id()).await.unwrap();
    assert_eq!(kept_skills(&fixture), 2);
    runtime.delete(&tenant("acme"), second.id()).await.unwrap();
    assert_eq!(kept_skills(&fixture), 1);
    assert_eq!(ask(&third, "$ sh /mnt/skills/greeting/scripts/run.sh").await, "it says: good day\n");
    runtime.delete(&tenant("acme"), third.id()).await.unwrap();
    assert_eq!(kept_skills(&fixture), 0);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_tool_with_the_name_of_another_is_refused_at_the_start() {
    let fixture = Fixture::new(ExecutorKind::Jail);
    let named = |name: &str| {
        let definition = ToolDefinition {
            name: name.to_owned(),
            description: "One of the host's.".to_owned(),
            input_schema: serde_json::json!({"type": "object", "properties": {}}),
        };
        let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
        tool_fn(definition, traits, |_, _| async { ToolOutput::text("done") })
    };
    for (options, text) in [
        (fixture.options().tool(named("view")), "two tools have the name `view`: rename one of them"),
        (
            fixture.options().tool(named("mine")).tool(named("mine")),
            "two tools have the name `mine`: rename one of them",
        ),
    ] {
        let error = Runtime::spawn(options).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Tools(_)), "{error:?}");
        assert_eq!(error.to_string(), text);
    }
}
