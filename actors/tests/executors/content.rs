//! What the model is told about a replaced sandbox, and which files are there again.

use std::sync::Arc;

use conjure_artifact::ReferenceResolver;
use conjure_base::TenantId;
use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactName, ArtifactSource, CallContext, SessionView, ToolCall, ToolResult,
    execute_tool_calls,
};
use conjure_sandbox::{ContentDir, ContentItem, DataDir, Executor};
use conjure_store::FileMode;
use conjure_toolbox::{ArtifactTools, Toolbox};
use serde_json::json;

use crate::fixture::{Fixture, Kind, options};
use crate::for_kinds;

for_kinds! {
    the_next_result_reports_the_loss_once,
    a_session_that_goes_on_tells_it_with_the_first_result,
    the_artifacts_of_a_session_are_in_every_sandbox_of_it,
}

fn toolbox(fixture: &Fixture) -> Toolbox {
    Toolbox::builder().with_executor(Arc::new(fixture.executor.clone())).build().unwrap()
}

async fn call(toolbox: &Toolbox, command: &str) -> ToolResult {
    let call = ToolCall::new("toolu_1", "bash_tool", &json!({"command": command}));
    let context = CallContext::default();
    execute_tool_calls(toolbox, &[call], context).await.remove(0)
}

async fn the_next_result_reports_the_loss_once(kind: Kind) {
    let fixture = Fixture::of(kind).await;
    let toolbox = toolbox(&fixture);
    assert_eq!(call(&toolbox, "echo kept > file; echo made").await.text(), "made\n");
    fixture.lose_sandbox().await;
    let reported = call(&toolbox, "cat file").await;
    let text = reported.text();
    assert!(!reported.is_error && text.ends_with("kept\n"), "{text}");
    assert!(text.starts_with("[Before this call the sandbox ended: "), "{text}");
    let files = match kind {
        Kind::Jail => "all files that were not in `/workspace`",
        Kind::Local => "Still there: all files",
    };
    assert!(text.contains(files), "{text}");
    assert_eq!(call(&toolbox, "cat file").await.text(), "kept\n");
    fixture.end().await;
}

async fn a_session_that_goes_on_tells_it_with_the_first_result(kind: Kind) {
    let fixture = Fixture::resumed(kind).await;
    let toolbox = toolbox(&fixture);
    let text = call(&toolbox, "echo well").await.text();
    assert!(text.starts_with("[The session was resumed.") && text.ends_with("well\n"), "{text}");
    assert_eq!(call(&toolbox, "echo well").await.text(), "well\n");
    fixture.end().await;
}

#[tokio::test]
async fn installed_content_is_installed_again() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path()).unwrap();
    let digest = data.store().insert_bytes(b"an artifact\n", FileMode::Plain).unwrap().digest;
    let provision =
        ContentItem::file(ContentDir::Artifacts, "notes.txt", data.store(), digest, FileMode::Plain);
    let fixture = Fixture::of(Kind::Jail).await;
    let path = fixture.executor.install_content(provision, options()).await.unwrap();
    assert_eq!(path.to_str(), Some("/artifacts/notes.txt"));
    for _ in 0..2 {
        fixture.lose_sandbox().await;
        assert_eq!(fixture.sh("cat /artifacts/notes.txt").await, "an artifact\n");
    }
    fixture.end().await;
}

/// Removed content is absent from the replacement sandbox, and later content with the same name is present.
#[tokio::test]
async fn removed_content_is_not_installed_again() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path()).unwrap();
    let file = |name: &str, text: &str| {
        let digest = data.store().insert_bytes(text.as_bytes(), FileMode::Plain).unwrap().digest;
        ContentItem::file(ContentDir::Artifacts, name, data.store(), digest, FileMode::Plain)
    };
    let fixture = Fixture::of(Kind::Jail).await;
    let withdraw =
        async |name: &str| fixture.executor.remove_content(ContentDir::Artifacts, name, options()).await;
    // No sandbox is created for it.
    withdraw("early").await.unwrap();
    assert_eq!(*fixture.source.calls.borrow(), 0);
    for name in ["kept", "gone", "other"] {
        fixture.executor.install_content(file(name, "first\n"), options()).await.unwrap();
    }
    withdraw("gone").await.unwrap();
    withdraw("other").await.unwrap();
    fixture.executor.install_content(file("other", "second\n"), options()).await.unwrap();
    for _ in 0..2 {
        fixture.lose_sandbox().await;
        let output = fixture.sh("cd /artifacts; grep -H . *").await;
        assert_eq!(output, "kept:first\nother:second\n");
    }
    // Between two sandboxes, too.
    fixture.start_background_sleeper().await;
    fixture.kill_guest();
    withdraw("kept").await.unwrap();
    fixture.source.until_calls(4).await;
    assert_eq!(fixture.sh("ls /artifacts").await, "other\n");
    fixture.end().await;
}

async fn the_artifacts_of_a_session_are_in_every_sandbox_of_it(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path()).unwrap();
    let new_content = |name: &str, text: &str| {
        let stored = data.store().insert_bytes(text.as_bytes(), FileMode::Plain).unwrap();
        let content = ArtifactContent { digest: stored.digest, size: stored.size };
        let name = ArtifactName::new(name).unwrap();
        let variable = name.variable();
        Artifact { variable, ..Artifact::new(name, ArtifactSource::Content, "text/plain", Some(content)) }
    };
    let fixture = Fixture::of(kind).await;
    let resolver =
        ReferenceResolver::new(TenantId::new("acme").unwrap(), data.store().clone(), Arc::default());
    let toolbox = Toolbox::builder()
        .with_executor(Arc::new(fixture.executor.clone()))
        .with_artifacts(ArtifactTools::new(resolver))
        .build()
        .unwrap();
    let run = async |artifacts: &[Artifact], command: &str| {
        let call = ToolCall::new("toolu_1", "bash_tool", &json!({"command": command}));
        let standing = SessionView::default().with_artifacts(artifacts.iter().cloned());
        let context = CallContext { view: standing, ..CallContext::default() };
        execute_tool_calls(&toolbox, &[call], context).await.remove(0).text()
    };
    let all = [new_content("one", "first\n"), new_content("two", "second\n")];
    let cat = r#"cat "$ARTIFACT_ONE" "$ARTIFACT_TWO"; ls "$(dirname "$ARTIFACT_TWO")""#;
    assert_eq!(run(&all, cat).await, "first\nsecond\none\ntwo\n");
    for _ in 0..2 {
        fixture.lose_sandbox().await;
        let text = run(&all, cat).await;
        assert!(text.ends_with("\nfirst\nsecond\none\ntwo\n"), "{text}");
    }
    assert_eq!(run(&all[1..], cat).await.lines().last(), Some("two"));
    fixture.lose_sandbox().await;
    assert_eq!(run(&all[1..], r#"ls "$(dirname "$ARTIFACT_TWO")""#).await.lines().last(), Some("two"));
    assert_eq!(run(&all[1..], r#"ls "$(dirname "$ARTIFACT_TWO")""#).await, "two\n");
    fixture.end().await;
}
