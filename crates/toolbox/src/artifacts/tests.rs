//! What the model reads of calls with references, and what a sandbox is given for them, over the fake executor.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_artifact::{
    ArtifactError, ArtifactOptions, ArtifactUri, Fetch, FetchFuture, FetchRequest, FetchedContent,
    ReferenceResolver, Retryable, SkillPath,
};
use conjure_base::{Clock as _, Digest, SystemClock, TenantId};
use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactName, ArtifactSource, Authorization, CallConcurrency, CallContext,
    CallTraits, Grant, GrantScope, ResultContent, SessionView, ToolCall, ToolDefinition, ToolEnding,
    ToolResult, ToolRunner as _, execute_tool_calls,
};
use conjure_prompt::{
    ArtifactAccess, PromptOptions, SessionSkill, SessionSkills, SkillComposer, SkillLocations, UrlReferences,
};
use conjure_sandbox::{Executor, SandboxError, SandboxErrorKind};
use conjure_skill::{Mode, Skill};
use conjure_store::{FileMode, Store};
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fake::{FakeCommand, FakeExecutor, exited};
use crate::{SkillTools, Tool, ToolContext, ToolOutput, Toolbox, ToolboxBuilder, approver_fn};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

/// What URLs lead to, and which were asked for.
#[derive(Default)]
struct Web {
    pages: Mutex<HashMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
}

impl Web {
    fn lead(&self, url: &str, content: &[u8]) {
        self.pages.lock().unwrap().insert(url.to_owned(), content.to_vec());
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Fetch for Web {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            self.asked.lock().unwrap().push(request.url.to_owned());
            if request.url.ends_with("/slow") {
                let late = SystemClock.sleep_until(request.deadline);
                future::select(Box::pin(request.cancel.cancelled()), late).await;
                return match request.cancel.is_cancelled() {
                    true => Err(ArtifactError::Cancelled),
                    false => Err(ArtifactError::TimedOut {
                        what: "the fetch".to_owned(),
                        waited: Duration::from_secs(1),
                    }),
                };
            }
            let page = self.pages.lock().unwrap().get(request.url).cloned();
            let page = page.ok_or_else(|| ArtifactError::FetchFailed {
                url: request.url.to_owned(),
                reason: "404 Not Found".to_owned(),
                retry: Retryable::No,
            })?;
            let stored = request.store.insert_bytes(&page, FileMode::Plain)?;
            Ok(FetchedContent {
                content: ArtifactContent { digest: stored.digest, size: stored.size },
                content_type: "text/csv".to_owned(),
                name: request.url.rsplit('/').next().unwrap_or_default().to_owned(),
            })
        })
    }
}

/// A session's folder with a store and a skill, its sandbox, and the way out.
struct Fixture {
    folder: TempDir,
    store: Store,
    web: Arc<Web>,
    executor: FakeExecutor,
    skills: SessionSkills,
    tools: ArtifactTools,
}

impl Fixture {
    fn new() -> Self {
        Self::with(|executor| executor.with_content_dir())
    }

    fn with(change: impl FnOnce(FakeExecutor) -> FakeExecutor) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let store = Store::open(&root.join("store")).unwrap();
        let skill = root.join("csv-helper");
        for (path, content) in [
            ("SKILL.md", "---\nname: csv-helper\ndescription: Helps.\n---\n# Help\n"),
            ("assets/sample.csv", "a,b\n1,2\n"),
            ("scripts/run.py", "print(1)\n"),
        ] {
            fs::create_dir_all(skill.join(path).parent().unwrap()).unwrap();
            fs::write(skill.join(path), content).unwrap();
        }
        let skill = Arc::new(Skill::load(skill, Mode::Strict).unwrap());
        let inside = "/mnt/skills/csv-helper";
        let executor = change(
            FakeExecutor::new()
                .with_skill_dir(skill.root_dir(), inside)
                .with_file(&format!("{inside}/assets/sample.csv"), "a,b\n1,2\n"),
        );
        let skills = SessionSkills::new(
            [Arc::new(SessionSkill::from_skill(Arc::clone(&skill)))],
            SkillLocations::mapped(move |host| {
                Some(Path::new(inside).join(host.strip_prefix(root.join("csv-helper")).ok()?))
            }),
        );
        let web = Arc::new(Web::default());
        let resolver = ReferenceResolver::new(
            TenantId::new("acme").unwrap(),
            store.clone(),
            Arc::new(ArtifactOptions::default()),
        )
        .with_fetch(Arc::clone(&web) as Arc<dyn Fetch>)
        .with_skills(vec![skill]);
        Self { folder, store, web, executor, skills, tools: ArtifactTools::new(resolver) }
    }

    fn builder(&self) -> ToolboxBuilder {
        Toolbox::builder()
            .with_executor(Arc::new(self.executor.clone()))
            .with_skills(SkillTools::new(self.skills.clone()))
            .with_artifacts(self.tools.clone())
    }

    fn given(&self, name: &str, bytes: &[u8]) -> Artifact {
        let stored = self.store.insert_bytes(bytes, FileMode::Plain).unwrap();
        let content = ArtifactContent { digest: stored.digest, size: stored.size };
        artifact(name, ArtifactSource::Content, Some(content))
    }

    async fn call(&self, artifacts: &[Artifact], tool: &str, input: Value) -> ToolResult {
        self.call_by(self.builder(), artifacts, tool, input).await
    }

    async fn call_by(
        &self,
        builder: ToolboxBuilder,
        artifacts: &[Artifact],
        tool: &str,
        input: Value,
    ) -> ToolResult {
        let call = ToolCall::new("toolu_1", tool, &input);
        builder.build().unwrap().run_without_input(&call, self.context(artifacts)).await
    }

    /// The skill is loaded.
    fn context(&self, artifacts: &[Artifact]) -> CallContext {
        let active = [self.skills.get("csv-helper").unwrap().pinned_ref().unwrap()];
        let session_view = SessionView::with_active_skills(active).with_artifacts(artifacts.iter().cloned());
        CallContext { view: session_view, ..CallContext::default() }
    }

    /// What a command of this text sees of artifacts.
    async fn variables(&self, artifacts: &[Artifact]) -> Vec<(String, String)> {
        self.call(artifacts, "bash_tool", json!({"command": "true"})).await;
        let command = self.executor.commands().pop().unwrap();
        command.env.into_iter().collect()
    }
}

fn artifact(name: &str, source: ArtifactSource, content: Option<ArtifactContent>) -> Artifact {
    let name = ArtifactName::new(name).unwrap();
    let variable = name.variable();
    Artifact { variable, ..Artifact::new(name, source, "text/csv", content) }
}

fn of_url(name: &str, url: &str, content: Option<ArtifactContent>) -> Artifact {
    artifact(name, ArtifactSource::Url { url: url.to_owned() }, content)
}

/// The artifact once what a result says of it is recorded.
fn recorded(artifact: &Artifact, result: &ToolResult) -> Artifact {
    let [fetched] = &result.fetched[..] else { panic!("{result:?}") };
    assert_eq!(fetched.name, artifact.name);
    Artifact {
        content: Some(fetched.content.clone()),
        content_type: fetched.content_type.clone(),
        ..artifact.clone()
    }
}

#[tokio::test]
async fn a_reference_is_viewed_as_its_content() {
    let fixture = Fixture::new();
    let artifacts = [fixture.given("sales 2024", b"one\ntwo\nthree\n"), fixture.given("logo", PNG)];
    let view = async |path: &str| fixture.call(&artifacts, "view", json!({"path": path})).await;
    assert_eq!(view("file://sales%202024").await.text(), "     1\tone\n     2\ttwo\n     3\tthree\n");
    assert_eq!(view("FILE://sales 2024").await.text(), view("/artifacts/sales 2024").await.text());
    assert_eq!(view("skill://csv-helper/assets/sample.csv").await.text(), "     1\ta,b\n     2\t1,2\n");
    let image = view("file://logo").await;
    assert!(
        matches!(&image.content[..], [ResultContent::Image { media_type, .. }] if media_type == "image/png")
    );
    let range = json!({"path": "file://sales%202024", "view_range": [2, 2]});
    assert_eq!(fixture.call(&artifacts, "view", range).await.text(), "     2\ttwo\n");
    assert_eq!(fixture.executor.installed_content(), ["+ sales 2024", "+ logo"]);
}

#[tokio::test]
async fn an_unresolvable_reference_names_the_input_and_the_reason() {
    let fixture = Fixture::new();
    fixture.web.lead("https://example.com/page", b"x");
    let artifacts = [fixture.given("sales", b"x")];
    let cases = [
        ("file://sale", "artifact `sale` not found; the session's artifacts are: `sales`"),
        ("file:///etc/passwd", "invalid artifact URI `file:///etc/passwd`"),
        ("skill://csv-helper/../../etc/passwd", "path traversal blocked"),
        ("skill://csv-helper/assets/none.csv", "the skill `csv-helper` has no file `assets/none.csv`"),
        ("skill://other/assets/none.csv", "skill `other` not found"),
        ("https://example.com/none", "fetching `https://example.com/none` failed: 404 Not Found"),
    ];
    for (path, reason) in cases {
        let result = fixture.call(&artifacts, "view", json!({"path": path})).await;
        let text = result.text();
        assert!(result.is_error && result.ending == ToolEnding::Returned, "{path}: {result:?}");
        assert!(
            text.starts_with("the input `path` could not be resolved: ") && text.contains(reason),
            "{text}"
        );
        assert!(!text.contains(fixture.folder.path().to_str().unwrap()), "{text}");
    }
    let args = json!({"path": "scripts/run.py", "args": ["file://sales", "--out", "file://nothing"]});
    let result = fixture.call(&artifacts, "skills_run_script", args).await;
    assert!(result.is_error && result.text().starts_with("the input `args[2]` could not be resolved: "));
    assert!(fixture.executor.commands().is_empty(), "nothing was run");
}

#[tokio::test]
async fn write_tools_accept_no_references() {
    let fixture = Fixture::new();
    let artifacts = [fixture.given("sales", b"old")];
    for (tool, rest) in [
        ("create_file", json!({"file_text": "see https://example.com"})),
        ("str_replace", json!({"old_str": "old", "new_str": "new"})),
    ] {
        let mut input = rest;
        for path in ["file://sales", "skill://csv-helper/assets/sample.csv", "https://example.com/x"] {
            input["path"] = json!(path);
            let result = fixture.call(&artifacts, tool, input.clone()).await;
            assert!(result.is_error && result.text().contains("artifacts are read-only"), "{result:?}");
        }
        // A URL in a text is text.
        input["path"] = json!("notes.txt");
        let result = fixture.call(&artifacts, tool, input).await;
        assert_eq!(result.is_error, tool == "str_replace", "{result:?}");
    }
    assert_eq!(fixture.executor.file("notes.txt").unwrap(), b"see https://example.com");
    assert_eq!(fixture.web.asked(), 0);
}

#[tokio::test]
async fn commands_get_artifacts_as_variables() {
    let fixture = Fixture::new();
    let artifacts = [
        fixture.given("sales", b"1"),
        fixture.given("a b", b"2"),
        of_url("feed", "https://example.com/feed", None),
    ];
    let variables = fixture.variables(&artifacts).await;
    let expected = [("ARTIFACT_A_B", "/artifacts/a b"), ("ARTIFACT_SALES", "/artifacts/sales")];
    assert_eq!(variables, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
    assert_eq!(fixture.executor.file("/artifacts/a b").unwrap(), b"2");
    let command = json!({"command": "curl file://sales https://example.com/feed"});
    fixture.call(&artifacts, "bash_tool", command).await;
    assert_eq!(
        fixture.executor.commands().pop().unwrap().argv[2],
        "curl file://sales https://example.com/feed"
    );
    assert_eq!(fixture.web.asked(), 0);
    // Each was given once.
    assert_eq!(fixture.executor.installed_content(), ["+ sales", "+ a b"]);
}

#[tokio::test]
async fn references_in_script_arguments_become_paths() {
    let fixture = Fixture::new();
    let artifacts = [fixture.given("sales", b"1")];
    let args = ["file://sales", "--in=file://sales", "skill://csv-helper/assets/sample.csv", "x"];
    let result = fixture
        .call(
            &artifacts,
            "skills_run_script",
            json!({"path": "scripts/run.py", "args": args, "env": {"X": "file://sales"}}),
        )
        .await;
    let command = fixture.executor.commands().pop().unwrap_or_else(|| panic!("{result:?}"));
    assert_eq!(
        command.argv[1..],
        [
            "/mnt/skills/csv-helper/scripts/run.py",
            "/artifacts/sales",
            "--in=file://sales",
            "/mnt/skills/csv-helper/assets/sample.csv",
            "x"
        ]
    );
    assert_eq!(command.env["X"], "file://sales");
    assert_eq!(command.env["ARTIFACT_SALES"], "/artifacts/sales");
    // The script itself, by a reference to a file of its skill.
    let by_reference = json!({"path": "skill://csv-helper/scripts/run.py"});
    fixture.call(&artifacts, "skills_run_script", by_reference).await;
    assert_eq!(
        fixture.executor.commands().pop().unwrap().argv[1..],
        ["/mnt/skills/csv-helper/scripts/run.py"]
    );
    for (path, reason) in [
        ("file://sales", "only a file of a skill is run"),
        ("https://example.com/run.py", "only a file of a skill is run"),
        ("skill://other/scripts/run.py", "there is no skill `other`"),
        ("skill://csv-helper/../x.py", "path traversal"),
    ] {
        let result = fixture.call(&artifacts, "skills_run_script", json!({"path": path})).await;
        assert_eq!(result.ending, ToolEnding::Rejected, "{path}");
        assert!(result.text().contains(reason), "{}", result.text());
    }
}

#[tokio::test]
async fn skills_read_resolves_references() {
    let fixture = Fixture::new();
    fixture.web.lead("https://example.com/data.csv", b"x,y\n");
    let artifacts = [fixture.given("sales", b"a,b\n"), fixture.given("logo", PNG)];
    let read = async |path: &str| fixture.call(&artifacts, "skills_read", json!({"path": path})).await;
    assert_eq!(read("file://sales").await.text(), "a,b\n");
    assert_eq!(read("skill://csv-helper/assets/sample.csv").await.text(), "a,b\n1,2\n");
    assert_eq!(read("https://example.com/data.csv").await.text(), "x,y\n");
    assert!(matches!(&read("file://logo").await.content[..], [ResultContent::Image { .. }]));
    assert!(read("file://none").await.text().starts_with("the input `path` could not be resolved: "));
    let both = json!({"path": "skill://csv-helper/SKILL.md", "skill": "csv-helper"});
    assert!(fixture.call(&artifacts, "skills_read", both).await.text().contains("# Help"));
    // A skill that is not loaded is not read.
    let call = ToolCall::new("a", "skills_read", &json!({"path": "skill://csv-helper/SKILL.md"}));
    let result = fixture.builder().build().unwrap().run_without_input(&call, CallContext::default()).await;
    assert!(result.text().contains("no skill is loaded"), "{result:?}");
}

#[tokio::test]
async fn unregistered_artifacts_are_removed_and_new_ones_replaced() {
    let fixture = Fixture::new();
    let (sales, other) = (fixture.given("sales", b"1"), fixture.given("other", b"2"));
    fixture.variables(&[sales.clone(), other.clone()]).await;
    assert_eq!(fixture.variables(std::slice::from_ref(&other)).await.len(), 1);
    assert_eq!(fixture.executor.file("/artifacts/sales"), None);
    // Late, and with another content.
    fixture.variables(&[other, fixture.given("sales", b"new")]).await;
    assert_eq!(fixture.executor.file("/artifacts/sales").unwrap(), b"new");
    fixture.variables(&[fixture.given("sales", b"newer")]).await;
    assert_eq!(fixture.executor.file("/artifacts/sales").unwrap(), b"newer");
    assert_eq!(
        fixture.executor.installed_content(),
        ["+ sales", "+ other", "- sales", "+ sales", "- other", "- sales", "+ sales"]
    );
}

#[tokio::test]
async fn an_artifact_of_a_url_is_fetched_when_its_reference_is_first_used() {
    let fixture = Fixture::new();
    let url = "https://example.com/feed.csv";
    fixture.web.lead(url, b"first\n");
    let feed = of_url("feed", url, None);
    assert!(fixture.variables(std::slice::from_ref(&feed)).await.is_empty());
    assert_eq!(fixture.web.asked(), 0);
    let args = json!({"path": "scripts/run.py", "args": ["file://feed"]});
    let result = fixture.call(std::slice::from_ref(&feed), "skills_run_script", args).await;
    // The command of that very call has it, though it is not recorded yet.
    assert_eq!(fixture.executor.commands().pop().unwrap().env["ARTIFACT_FEED"], "/artifacts/feed");
    assert_eq!(fixture.executor.file("/artifacts/feed").unwrap(), b"first\n");
    // Another call that began before does not take it away.
    assert_eq!(fixture.variables(std::slice::from_ref(&feed)).await.len(), 1);
    let feed = recorded(&feed, &result);
    let again = fixture.call(std::slice::from_ref(&feed), "view", json!({"path": "file://feed"})).await;
    assert!(again.fetched.is_empty() && again.text().contains("first"), "{again:?}");
    // It has changed since.
    fixture.web.lead(url, b"second\n");
    let result = fixture.call(std::slice::from_ref(&feed), "view", json!({"path": "file://feed"})).await;
    assert_eq!(result.text(), "     1\tsecond\n");
    fixture.variables(std::slice::from_ref(&feed)).await;
    assert_eq!(fixture.executor.file("/artifacts/feed").unwrap(), b"second\n");
    // Somebody else recorded a third content.
    let third = fixture.store.insert_bytes(b"third\n", FileMode::Plain).unwrap();
    let content = ArtifactContent { digest: third.digest, size: third.size };
    fixture.variables(&[of_url("feed", url, Some(content))]).await;
    assert_eq!(fixture.executor.file("/artifacts/feed").unwrap(), b"third\n");
}

#[tokio::test]
async fn the_path_of_a_fetched_url_is_reported() {
    let fixture = Fixture::new();
    let url = "https://example.com/data.csv?x=1";
    fixture.web.lead(url, b"1,2\n");
    let result = fixture.call(&[], "view", json!({"path": url})).await;
    let name = format!("url-{}-data.csv?x=1", &Digest::of_bytes(b"1,2\n").to_hex()[..8]);
    assert_eq!(result.text(), format!("[`{url}` was fetched, and is at `/artifacts/{name}`]\n     1\t1,2\n"));
    assert!(result.fetched.is_empty(), "it is no artifact of the session");
    // It stays for commands, and no artifact loses its name to it.
    fixture.variables(&[]).await;
    assert!(fixture.executor.file(&format!("/artifacts/{name}")).is_some());
    let own = fixture.given(&name, b"own");
    assert_eq!(fixture.variables(std::slice::from_ref(&own)).await.len(), 1);
    let text = fixture.call(std::slice::from_ref(&own), "view", json!({"path": url})).await.text();
    assert!(text.contains(&format!("`/artifacts/2-{name}`")), "{text}");
    assert_eq!(fixture.executor.file(&format!("/artifacts/{name}")).unwrap(), b"own");
    // Not without bound.
    for number in 0..60 {
        let url = format!("https://example.com/{number}");
        fixture.web.lead(&url, number.to_string().as_bytes());
        fixture.call(&[], "view", json!({"path": url})).await;
    }
    let given = fixture.executor.installed_content();
    let (put, taken) = given.iter().partition::<Vec<_>, _>(|entry| entry.starts_with("+ "));
    assert_eq!(put.len() - taken.len(), 50, "{given:?}");
}

#[tokio::test]
async fn an_unavailable_artifact_blocks_no_command() {
    let fixture = Fixture::new();
    let artifacts = [fixture.given("large", b"1"), fixture.given("small", b"2")];
    let executor = fixture.executor.clone().with_command("ls", FakeCommand::Exits(exited(0, "done\n")));
    let full = SandboxError::new(SandboxErrorKind::NoSpace, "there is no room for it");
    executor.fail_installs("large", Some(full));
    let ls = async || fixture.call(&artifacts, "bash_tool", json!({"command": "ls"})).await.text();
    assert_eq!(ls().await, "[the artifact `large` is not in the sandbox: there is no room for it]\ndone\n");
    assert_eq!(fixture.executor.commands()[0].env.len(), 1);
    // Once.
    assert_eq!(ls().await, "done\n");
    let result = fixture.call(&artifacts, "view", json!({"path": "file://large"})).await;
    assert_eq!(result.text(), "the input `path` could not be resolved: there is no room for it");
    executor.fail_installs("large", None);
    assert_eq!(ls().await, "done\n");
    assert_eq!(fixture.executor.commands().pop().unwrap().env.len(), 2);
    // What is about the sandbox ends the call before it begins.
    let gone =
        SandboxError::new(SandboxErrorKind::Unavailable, "the sandbox could not be started: no engine");
    executor.fail_installs("new", Some(gone));
    let new = [fixture.given("new", b"3")];
    let result = fixture.call(&new, "bash_tool", json!({"command": "ls"})).await;
    assert!(result.is_error && result.text().contains("no engine"), "{result:?}");
    assert_eq!(fixture.executor.commands().len(), 3);
}

#[tokio::test]
async fn a_sandbox_without_a_content_directory_is_an_error() {
    let fixture = Fixture::with(|executor| executor);
    let artifacts = [fixture.given("sales", b"1")];
    let result = fixture.call(&artifacts, "view", json!({"path": "file://sales"})).await;
    assert!(result.is_error && result.text().contains("takes no artifacts"), "{result:?}");
    assert!(fixture.variables(&artifacts).await.is_empty());
    let skill =
        fixture.call(&artifacts, "view", json!({"path": "skill://csv-helper/assets/sample.csv"})).await;
    assert!(!skill.is_error, "{skill:?}");
    assert_eq!(fixture.tools.prompt(Some(fixture.executor.layout())).access, ArtifactAccess::ToolsOnly);
}

#[tokio::test]
async fn without_a_resolver_a_reference_is_a_path_like_any_other() {
    let fixture = Fixture::new();
    let builder = Toolbox::builder().with_executor(Arc::new(fixture.executor.clone()));
    let result = fixture
        .call_by(builder, &[fixture.given("sales", b"1")], "view", json!({"path": "file://sales"}))
        .await;
    assert!(result.is_error && result.text().contains("is not there"), "{result:?}");
    assert!(fixture.executor.installed_content().is_empty());
}

/// A tool that reads files of the host's, and shows what it was given.
struct Cat;

impl Tool for Cat {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "cat".to_owned(),
            description: "Reads files.".to_owned(),
            input_schema: json!({"type": "object"}),
        }
    }

    fn path_inputs(&self) -> &[&str] {
        &["file", "files"]
    }

    fn call(&self, input: Value, _: ToolContext) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let files = [&input["file"]].into_iter().chain(input["files"].as_array().into_iter().flatten());
            let texts = files.filter_map(Value::as_str).map(|path| fs::read_to_string(path).unwrap());
            ToolOutput::text(format!("{}{}", texts.collect::<String>(), input["note"].as_str().unwrap_or("")))
        })
    }
}

#[tokio::test]
async fn host_tools_get_files_for_declared_inputs() {
    let fixture = Fixture::new();
    let artifacts = [fixture.given("one", b"1;"), fixture.given("two", b"2;")];
    let call = async |input: Value| {
        fixture.call_by(fixture.builder().with_tool(Cat), &artifacts, "cat", input).await
    };
    let result = call(json!({
        "file": "file://one",
        "files": ["file://two", "skill://csv-helper/assets/sample.csv"],
        "note": "file://one",
    }));
    assert_eq!(result.await.text(), "1;2;a,b\n1,2\nfile://one");
    let result = call(json!({"file": "file://one", "files": ["file://two", "file://three"]})).await;
    assert!(result.is_error, "{result:?}");
    assert!(result.text().starts_with("the input `files[1]` could not be resolved: "), "{result:?}");
    assert!(fixture.executor.installed_content().is_empty());
}

#[tokio::test]
async fn the_approver_sees_references_and_rules_do_not_cover_fetches() {
    let fixture = Fixture::new();
    fixture.web.lead("https://example.com/a.csv", b"x");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = approver_fn(move |call: ToolCall| {
        seen.lock().unwrap().push(call.input_value()["path"].as_str().unwrap().to_owned());
        async { Authorization::Ask { reason: "a person decides".to_owned() } }
    });
    let toolbox = fixture.builder().with_approver(approver).build().unwrap();
    let grant = |rule: &str| Grant { rule: rule.to_owned(), scope: GrantScope::Session };
    let is_allowed = async |rule: &str, path: &str| {
        let session_view = fixture.context(&[]).view.with_grants(vec![grant(rule)]);
        let call = ToolCall::new("a", "view", &json!({"path": path}));
        toolbox.authorize(&call, &session_view).await == Authorization::Allow
    };
    assert!(is_allowed("view", "file://sales").await);
    assert!(!is_allowed("view", "https://example.com/a.csv").await);
    assert!(!is_allowed("view", "HTTP://example.com/a.csv").await);
    assert!(!is_allowed("view(https://example.com/a.csv)", "https://example.com/a.csv").await);
    assert_eq!(asked.lock().unwrap()[..2], ["file://sales", "https://example.com/a.csv"]);
    assert_eq!(fixture.web.asked(), 0, "nothing is fetched before it is allowed");
}

#[tokio::test(start_paused = true)]
async fn resolving_counts_against_the_calls_timeout() {
    let fixture = Fixture::new();
    let late = fixture
        .call_by(
            fixture.builder().with_timeout(Duration::from_secs(3)),
            &[],
            "view",
            json!({"path": "https://example.com/slow"}),
        )
        .await;
    assert_eq!(late.ending, ToolEnding::TimedOut, "{late:?}");
    assert!(late.text().starts_with("the input `path` could not be resolved: "), "{late:?}");
    let context = fixture.context(&[]);
    let cancel = context.cancel.clone();
    let toolbox = fixture.builder().build().unwrap();
    let call = ToolCall::new("a", "view", &json!({"path": "https://example.com/slow"}));
    let cancelling = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (result, ()) = future::join(toolbox.run_without_input(&call, context), cancelling).await;
    assert_eq!(result.ending, ToolEnding::Cancelled, "{result:?}");
    assert!(fixture.executor.installed_content().is_empty());
}

#[tokio::test]
async fn concurrent_calls_install_each_artifact_once() {
    let fixture = Fixture::new();
    let artifacts: Vec<Artifact> =
        (0..20).map(|number| fixture.given(&format!("a{number}"), number.to_string().as_bytes())).collect();
    let calls: Vec<ToolCall> = (0..8)
        .map(|number| ToolCall::new(format!("c{number}"), "view", &json!({"path": "file://a7"})))
        .collect();
    let toolbox = fixture.builder().build().unwrap();
    for result in execute_tool_calls(&toolbox, &calls, fixture.context(&artifacts)).await {
        assert_eq!(result.text(), "     1\t7\n");
    }
    fixture.variables(&artifacts).await;
    assert_eq!(fixture.executor.installed_content().len(), 20);
}

#[tokio::test]
async fn the_prompt_matches_the_tools_behaviour() {
    let fixture = Fixture::new();
    let artifacts = [fixture.given("a b%?#'\"", b"1"), fixture.given("ünï", b"2")];
    let prompt = fixture.tools.prompt(Some(fixture.executor.layout()));
    assert_eq!(prompt.access, ArtifactAccess::Directory("/artifacts".into()));
    assert_eq!(prompt.url_references, UrlReferences::Fetched);
    assert_eq!((prompt.media_type)("a/b.csv"), "text/csv");
    let resolver =
        ReferenceResolver::new(TenantId::new("acme").unwrap(), fixture.store.clone(), Arc::default());
    assert_eq!(ArtifactTools::new(resolver).prompt(None).url_references, UrlReferences::Refused);
    let options = PromptOptions { artifacts: Some(prompt), ..PromptOptions::default() };
    let toolbox = fixture.builder().build().unwrap();
    let composer = SkillComposer::for_session("", &fixture.skills, toolbox.definitions(), &options);
    let session_view = fixture.context(&artifacts).view;
    let reported =
        conjure_conversation::Composer::compose(&composer, &session_view).instructions.pop().unwrap();
    let uris: Vec<&str> =
        reported.split(" uri=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(uris.len(), 3, "{reported}");
    for uri in uris {
        // They stand there in the normal form, and are followed.
        assert_eq!(ArtifactUri::parse(uri).unwrap().to_string(), uri);
        let result = fixture.call(&artifacts, "view", json!({"path": uri})).await;
        assert!(!result.is_error, "{uri}: {result:?}");
    }
    let asset = ArtifactUri::skill("csv-helper", SkillPath::new("assets/sample.csv").unwrap());
    assert!(reported.contains(&format!("<asset type=\"text/csv\" uri=\"{asset}\"/>")), "{reported}");
}

/// Scheduling does not change by it.
#[test]
fn views_of_references_run_concurrently() {
    let fixture = Fixture::new();
    let call = ToolCall::new("a", "view", &json!({"path": "https://example.com/a"}));
    let expected = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
    assert_eq!(fixture.builder().build().unwrap().traits(&call), expected);
}
