//! Artifacts through the facade and the command (ADR-0018, section 7).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conjure::artifact::{
    ArtifactContent, ArtifactErrorKind, Fetch, FetchFuture, FetchRequest, FetchedContent, RegistrationSource,
};
use conjure::config::{ArtifactSettings, ExecutorKind};
use conjure::sandbox::FileMode;
use conjure::{Runtime, RuntimeError, Session, SessionError, Settings};
use futures_util::{FutureExt, StreamExt};

use crate::runtime::fixture::{Fixture, ask, soon, spec, tenant, until};
use crate::support::Conjure;

/// The web, as each tenant sees it: what it is told is another's, too.
#[derive(Clone, Default)]
struct Web {
    fetches: Arc<AtomicU32>,
}

impl Fetch for Web {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        async move {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            let text = format!("{} for {}", request.url, request.tenant);
            let inserted = request.store.insert_bytes(text.as_bytes(), FileMode::Plain)?;
            Ok(FetchedContent {
                content: ArtifactContent { digest: inserted.digest, size: inserted.size },
                content_type: "application/json".to_owned(),
                name: "data.json".to_owned(),
            })
        }
        .boxed()
    }
}

async fn read(session: &Session, uri: &str) -> String {
    let mut content = session.artifacts().open(uri).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = content.stream.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

/// How many contents are kept for a session, by whichever incarnation of it.
fn link_count(fixture: &Fixture, session: &Session) -> usize {
    let dir = fixture.data().join("tenants").join(session.tenant().as_str()).join("artifacts");
    let entries =
        |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    let incarnations = entries(&dir.join(session.id().stored_name()));
    incarnations.map(|incarnation| entries(&incarnation).count()).sum()
}

async fn until_link_count(fixture: &Fixture, session: &Session, count: usize) {
    until(async || link_count(fixture, session) == count).await;
}

#[tokio::test]
async fn artifacts_survive_a_restart_and_outputs_are_listed() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let file = fixture.dir().join("sales.csv");
    std::fs::write(&file, "north,1\nsouth,2\n").unwrap();
    let runtime = fixture.start().await;
    let session = runtime.open(spec().artifact("sales", RegistrationSource::file(&file))).await.unwrap();
    std::fs::write(&file, "changed since").unwrap();
    let answer =
        ask(&session, "$ cat /artifacts/sales; echo $ARTIFACT_SALES; wc -l < /artifacts/sales > lines.txt")
            .await;
    assert!(answer.contains("north,1\nsouth,2") && answer.contains("/artifacts/sales"), "{answer}");
    let files = session.files().await.unwrap();
    assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["lines.txt"]);
    assert_eq!((files[0].size, files[0].content_type.as_str()), (Some(2), "text/plain"));
    let mut content = session.open_file(&files[0]).await.unwrap();
    assert_eq!(content.stream.next().await.unwrap().unwrap(), "2\n");

    // Given while the sandbox is there, it is seen by the next command; and taken away, it is not.
    session
        .artifacts()
        .register("config", RegistrationSource::content("{}", "application/json"))
        .await
        .unwrap();
    assert!(ask(&session, "$ cat $ARTIFACT_CONFIG").await.contains("{}"));
    session.artifacts().unregister("config").await.unwrap();
    assert!(ask(&session, "$ ls /artifacts; echo [$ARTIFACT_CONFIG]").await.contains("sales\n[]"));
    assert!(
        ask(&session, "$ echo x > /artifacts/sales && echo written").await.contains("Read-only file system")
    );
    until_link_count(&fixture, &session, 1).await;
    let id = session.id();
    drop(session);
    runtime.shutdown(soon()).await.unwrap();

    let runtime = fixture.start().await;
    let session = runtime.session(&tenant("acme"), id).await.unwrap();
    assert!(ask(&session, "$ cat $ARTIFACT_SALES").await.contains("south,2"));
    assert_eq!(session.files().await.unwrap(), files);
    // A file of one session is another's artifact.
    let other = runtime.open(spec()).await.unwrap();
    let source = session.store_file(&files[0]).await.unwrap();
    other.artifacts().register("lines", source.clone()).await.unwrap();
    assert!(ask(&other, "$ cat /artifacts/lines").await.contains('2'));
    let foreign = runtime.open(conjure::SessionSpec::new(tenant("evil"))).await.unwrap();
    let refused = foreign.artifacts().register("lines", source).await.unwrap_err();
    assert!(matches!(&refused, SessionError::Artifact(why) if why.kind() == ArtifactErrorKind::Unsupported));
    // Deleted, nothing of it is left.
    until_link_count(&fixture, &session, 1).await;
    drop(session);
    runtime.delete(&tenant("acme"), id).await.unwrap();
    assert!(!fixture.data().join("tenants/acme/artifacts").join(id.to_string()).exists());
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn two_tenants_share_neither_names_nor_url_contents() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let web = Web::default();
    let runtime = Runtime::spawn(fixture.options().fetch(web.clone())).await.unwrap();
    for name in ["acme", "evil"] {
        let url = RegistrationSource::url("https://a.example/data");
        let content = RegistrationSource::content(format!("of {name}"), "text/plain");
        let spec = conjure::SessionSpec::new(tenant(name)).artifact("api", url).artifact("own", content);
        let session = runtime.open(spec).await.unwrap();
        assert_eq!(session.artifacts().info("api").await.unwrap().size(), None);
        assert_eq!(read(&session, "file://own").await, format!("of {name}"));
        assert_eq!(read(&session, "file://api").await, format!("https://a.example/data for {name}"));
        assert_eq!(session.artifacts().info("api").await.unwrap().content_type, "application/json");
        let (artifacts, _) = runtime.artifacts_and_files(&tenant(name), session.id()).await.unwrap();
        assert_eq!(artifacts.len(), 2);
    }
    assert_eq!(web.fetches.load(Ordering::SeqCst), 2);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_session_with_an_unavailable_artifact_is_not_opened() {
    let fixture = Fixture::new(ExecutorKind::Local);
    let runtime = fixture.start().await;
    let opened = runtime.open(spec().artifact("gone", RegistrationSource::file("/nowhere/at/all"))).await;
    let Err(RuntimeError::Artifact { name, failure }) = opened else { panic!("{opened:?}") };
    assert_eq!((name.as_str(), failure.kind()), ("gone", ArtifactErrorKind::FileNotFound));
    assert!(!failure.to_string().contains("/nowhere"), "{failure}");
    let opened = runtime.open(spec().artifact("a/b", RegistrationSource::content("x", "text/plain"))).await;
    assert!(matches!(opened, Err(RuntimeError::Artifact { .. })), "{opened:?}");
    let url = RegistrationSource::url("http://127.0.0.1/x");
    let opened = runtime.open(spec().artifact("api", url)).await;
    assert!(matches!(opened, Err(RuntimeError::Artifact { .. })), "{opened:?}");
    assert_eq!(runtime.session_ids(&tenant("acme")).await.unwrap(), []);
    runtime.shutdown(soon()).await.unwrap();

    // Where they are switched off, there are none.
    let artifacts = ArtifactSettings { enabled: Some(false), ..ArtifactSettings::default() };
    let fixture =
        Fixture::with(ExecutorKind::Local, Settings { artifacts: Some(artifacts), ..Settings::default() });
    let runtime = fixture.start().await;
    let opened = runtime.open(spec().artifact("a", RegistrationSource::content("x", "text/plain"))).await;
    assert!(opened.unwrap_err().to_string().contains("switched off"));
    runtime.shutdown(soon()).await.unwrap();
}

const SCRIPT: &str = r#"
version: 1
turns:
  - expect: {system: {contains: ["<artifacts>", "file://sales"]}}
    content:
      - {tool_use: {name: view, input: {path: "file://sales"}}}
  - expect: {results: [{contains: "north", is_error: false}]}
    content:
      - {tool_use: {name: bash_tool, input: {command: "mkdir out && wc -l < $ARTIFACT_SALES > out/lines.txt", description: count}}}
  - content: "There are two lines."
"#;

#[test]
fn the_command_attaches_files_and_copies_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let path_of = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path_of("sales.csv"), "north,1\nsouth,2\n").unwrap();
    std::fs::write(path_of("script.yaml"), SCRIPT).unwrap();
    let run = |attach: &str| {
        let path =
            ["--script", &path_of("script.yaml"), "--data", &path_of("data"), "--skills", "fixtures/skills"];
        let arguments = ["--attach", attach, "--out", &path_of("result"), "How many lines?"];
        Conjure::new(["run"]).args(path).args(arguments).start().wait()
    };
    let sales = format!("sales={}", path_of("sales.csv"));
    let ran = run(&sales).code(0);
    assert_eq!(ran.stdout.trim(), "There are two lines.");
    assert_eq!(std::fs::read_to_string(path_of("result/out/lines.txt")).unwrap(), "2\n", "{}", ran.stderr);

    let listing =
        |args: &[&str]| Conjure::new(args).args(["--data", &path_of("data")]).start().wait().code(0).stdout;
    let listed = listing(&["sessions", "list"]);
    let id = listed.split_whitespace().next().unwrap().to_owned();
    let show_output = listing(&["sessions", "show", &id, "--format", "json"]);
    let show_output: serde_json::Value = serde_json::from_str(&show_output).unwrap();
    assert_eq!(show_output["artifacts"][0]["name"], "sales");
    assert_eq!(show_output["produced"][0]["name"], "out/lines.txt");
    assert!(listing(&["sessions", "show", &id]).contains("file://sales"));
    let exported = listing(&["sessions", "export", &id]);
    for kind in ["session.artifact_registered", "session.files_produced"] {
        assert!(exported.contains(kind), "{exported}");
    }
    // Existing files are not overwritten, and that is reported.
    std::fs::write(path_of("result/out/lines.txt"), "mine").unwrap();
    run(&sales).code(0).says("not overwritten");
    assert_eq!(std::fs::read_to_string(path_of("result/out/lines.txt")).unwrap(), "mine");

    for (attach, expected) in [
        ("sales=/nowhere/at/all", "was not found"),
        ("..", "it has no name by itself"),
        ("a\u{7}b=Cargo.toml", "the character"),
        ("x=http://127.0.0.1/", "the scheme `http` is not allowed"),
        ("x=/dev/zero", "is not a regular file"),
    ] {
        run(attach).code(2).says("--attach").says(expected);
    }
}
