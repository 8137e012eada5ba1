//! Artifacts in real sandboxes: put on the shelf of a jail before a command needs them, replaced and taken off between two, also while
//! one reads them; and in a sandbox that isolates nothing, which has them elsewhere.

#![expect(clippy::unwrap_used, reason = "what helps a test fails as a test does")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use conjure_artifact::ReferenceResolver;
use conjure_base::{Clock, Digest, SystemClock, TenantId};
use conjure_conversation::{
    Artifact, ArtifactContent, ArtifactName, ArtifactSource, CallContext, ResultContent, SessionView,
    ToolCall, ToolEnding, ToolResult, ToolRunner, execute_tool_calls,
};
use conjure_prompt::ArtifactAccess;
use conjure_sandbox::{Connector, DataDir, ExecutionContext, Executor, Jail, Local, OwnedWorkspace, Sandbox};
use conjure_skill::{Mode, Skill};
use conjure_store::FileMode;
use conjure_toolbox::{ArtifactTools, OutputLimits, Toolbox};
use futures_util::{FutureExt as _, future};
use serde_json::{Value, json};

/// A sandbox with a skill, its tools, and the directory that it all lies in.
struct Fixture {
    toolbox: Toolbox,
    tools: ArtifactTools,
    sandbox: Arc<Sandbox>,
    workspace: OwnedWorkspace,
    data: DataDir,
    _dir: tempfile::TempDir,
}

/// The variables of the host that a sandbox starts with.
fn host() -> [(std::ffi::OsString, std::ffi::OsString); 1] {
    [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]
}

impl Fixture {
    async fn jail() -> Self {
        Self::of(|data| Box::new(Jail::new(host()).with_data(data.clone()))).await
    }

    async fn local() -> Self {
        Self::of(|_| Box::new(Local::without_isolation(host()))).await
    }

    async fn of(connector: impl FnOnce(&DataDir) -> Box<dyn Connector>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(&dir.path().join("data")).unwrap();
        let skill = dir.path().join("csv-helper");
        fs::create_dir_all(skill.join("assets")).unwrap();
        fs::write(skill.join("SKILL.md"), "---\nname: csv-helper\ndescription: Helps.\n---\n").unwrap();
        fs::write(skill.join("assets/sample.csv"), "sample\n").unwrap();
        let skill = Arc::new(Skill::load(skill, Mode::Strict).unwrap());
        let workspace = data.workspace().unwrap();
        let mut context = ExecutionContext::new(workspace.path());
        context.read_only.push(conjure_sandbox::SharedDir::new(skill.root_dir(), "/mnt/skills/csv-helper"));
        let deadline = SystemClock.deadline(Duration::from_secs(300));
        let connector = connector(&data);
        let sandbox = Sandbox::open(&*connector, &context, Arc::new(SystemClock), deadline).await.unwrap();
        let sandbox = Arc::new(sandbox);
        let resolver =
            ReferenceResolver::new(TenantId::new("acme").unwrap(), data.store().clone(), Arc::default());
        let tools = ArtifactTools::new(resolver.with_skills(vec![skill]));
        let toolbox = Toolbox::builder()
            .with_executor(Arc::clone(&sandbox) as Arc<dyn Executor>)
            .with_artifacts(tools.clone())
            .with_limits(OutputLimits { view: 64 * 1024, ..OutputLimits::default() })
            .with_timeout(Duration::from_secs(600))
            .build()
            .unwrap();
        Self { toolbox, tools, sandbox, workspace, data, _dir: dir }
    }

    fn given(&self, name: &str, bytes: &[u8]) -> Artifact {
        let stored = self.data.store().insert_bytes(bytes, FileMode::Plain).unwrap();
        of(name, stored.digest, stored.size)
    }

    async fn call(&self, artifacts: &[Artifact], tool: &str, input: Value) -> ToolResult {
        self.toolbox.run_without_input(&ToolCall::new("toolu_1", tool, &input), context(artifacts)).await
    }

    async fn bash(&self, artifacts: &[Artifact], command: &str) -> String {
        self.call(artifacts, "bash_tool", json!({"command": command})).await.text()
    }

    async fn view(&self, artifacts: &[Artifact], path: &str) -> ToolResult {
        self.call(artifacts, "view", json!({"path": path})).await
    }
}

fn of(name: &str, digest: Digest, size: u64) -> Artifact {
    let name = ArtifactName::new(name).unwrap();
    let variable = name.variable();
    let content = Some(ArtifactContent { digest, size });
    Artifact { variable, ..Artifact::new(name, ArtifactSource::Content, "text/plain", content) }
}

fn context(artifacts: &[Artifact]) -> CallContext {
    let session_view = SessionView::default().with_artifacts(artifacts.iter().cloned());
    CallContext { view: session_view, ..CallContext::default() }
}

#[tokio::test]
async fn commands_and_views_have_artifacts_for_reading_only() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::jail().await;
    let png = b"\x89PNG\r\n\x1a\n and so on";
    let lines: String = (1..=5).map(|line| format!("line {line}\n")).collect();
    let artifacts = [fixture.given("sales 2024.txt", lines.as_bytes()), fixture.given("logo", png)];
    let seen = fixture
        .bash(&artifacts, r#"head -1 "$ARTIFACT_SALES_2024_TXT"; ls /artifacts; env | grep ^ARTI | sort"#);
    assert_eq!(
        seen.await,
        "line 1\nlogo\nsales 2024.txt\nARTIFACT_LOGO=/artifacts/logo\nARTIFACT_SALES_2024_TXT=/artifacts/sales 2024.txt\n"
    );
    for path in ["file://sales%202024.txt", "/artifacts/sales 2024.txt"] {
        let range = json!({"path": path, "view_range": [2, 3]});
        let text = fixture.call(&artifacts, "view", range).await.text();
        assert!(text.starts_with("     2\tline 2\n     3\tline 3\n"), "{path}: {text}");
    }
    let image = fixture.view(&artifacts, "file://logo").await;
    assert!(matches!(&image.content[..], [ResultContent::Image { .. }]), "{image:?}");
    assert_eq!(fixture.view(&[], "skill://csv-helper/assets/sample.csv").await.text(), "     1\tsample\n");
    for command in
        ["echo x > /artifacts/logo", "rm /artifacts/logo", "chmod 777 /artifacts/logo", "touch /artifacts/x"]
    {
        let result = fixture.call(&artifacts, "bash_tool", json!({"command": command})).await;
        assert!(result.is_error, "{command}: {result:?}");
    }
    let write = json!({"path": "/artifacts/logo", "file_text": "x"});
    assert!(fixture.call(&artifacts, "create_file", write).await.is_error);
    fixture.sandbox.cleanup().await;
}

#[tokio::test]
async fn artifacts_are_added_removed_and_replaced_while_in_use() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::jail().await;
    assert_eq!(fixture.bash(&[], "ls /artifacts").await, "[exit code 0, no output]");
    let first = [fixture.given("data", b"first\n")];
    // The command has it open, and says so; then another call begins for which the session has it no more.
    let reading = fixture.bash(
        &first,
        "exec 3< $ARTIFACT_DATA; touch open; until [ ! -e /artifacts/data ]; do sleep 0.01; done; cat <&3",
    );
    let withdrawing = async {
        while !fixture.workspace.path().join("open").exists() {
            SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(5))).await;
        }
        fixture.bash(&[], "echo ${ARTIFACT_DATA-none}").await
    };
    let (read, other) = future::join(reading, withdrawing).await;
    assert_eq!((read.as_str(), other.as_str()), ("first\n", "none\n"));
    let second = [fixture.given("data", b"second\n")];
    assert_eq!(fixture.bash(&second, "cat /artifacts/data").await, "second\n");
    assert_eq!(fixture.bash(&first, "cat /artifacts/data").await, "first\n");
    fixture.sandbox.cleanup().await;
}

#[tokio::test]
async fn concurrent_calls_see_the_same_artifacts() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::jail().await;
    let artifacts: Vec<Artifact> = (0..30)
        .map(|number| fixture.given(&format!("a{number}"), format!("{number}\n").as_bytes()))
        .collect();
    let calls: Vec<ToolCall> = (0..6)
        .map(|number| {
            let command = json!({"command": "cat /artifacts/* | sort -n | tail -1; ls /artifacts | wc -l"});
            ToolCall::new(format!("c{number}"), "bash_tool", &command)
        })
        .collect();
    for result in execute_tool_calls(&fixture.toolbox, &calls, context(&artifacts)).await {
        assert_eq!(result.text(), "29\n30\n");
    }
    fixture.sandbox.cleanup().await;
}

#[tokio::test]
async fn a_large_artifact_is_linked_and_its_view_is_cut() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::jail().await;
    let mut insertion = fixture.data.store().writer(FileMode::Plain, u64::MAX).unwrap();
    let line = "0123456789abcde\n".repeat(65_536);
    for _ in 0..128 {
        insertion.push(line.as_bytes()).unwrap();
    }
    let stored = insertion.finish().unwrap();
    assert_eq!(stored.size, 128 << 20);
    let artifacts = [of("large.txt", stored.digest, stored.size)];
    let seen =
        fixture.bash(&artifacts, "stat -c '%s %h' /artifacts/large.txt; tail -1 /artifacts/large.txt").await;
    assert_eq!(seen, "134217728 2\n0123456789abcde\n");
    let text = fixture.view(&artifacts, "file://large.txt").await.text();
    assert!(text.len() < 70_000 && text.contains("of 8388608 are shown"), "{}", &text[text.len() - 200..]);
    let range = json!({"path": "file://large.txt", "view_range": [8_388_608, -1]});
    assert_eq!(fixture.call(&artifacts, "view", range).await.text(), "8388608\t0123456789abcde\n");
    fixture.sandbox.cleanup().await;
}

/// Called off at any moment, nothing of it is left half, and the next call has all.
#[tokio::test]
async fn a_dropped_or_cancelled_call_leaves_no_partial_files() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::jail().await;
    let contents = [vec![b'a'; 300_000], vec![b'b'; 300_000]];
    for round in 0..30 {
        let artifacts = [fixture.given("data", &contents[round % 2])];
        let call = ToolCall::new("a", "bash_tool", &json!({"command": "wc -c < /artifacts/data"}));
        let context = context(&artifacts);
        let cancel = context.cancel.clone();
        let mut running = fixture.toolbox.run_without_input(&call, context);
        let mut done = None;
        for _ in 0..round {
            done = (&mut running).now_or_never();
            if done.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if round % 3 == 0 && done.is_none() {
            cancel.cancel();
            let result = running.await;
            assert!(result.ending == ToolEnding::Cancelled || !result.is_error, "{result:?}");
        } else {
            drop(running);
        }
        let other = [fixture.given("data", &contents[(round + 1) % 2])];
        let expected = if round % 2 == 0 { "b" } else { "a" };
        let seen =
            fixture.bash(&other, "wc -c < /artifacts/data; head -c 1 /artifacts/data; ls /artifacts").await;
        assert_eq!(seen, format!("300000\n{expected}data\n"), "round {round}");
    }
    fixture.sandbox.cleanup().await;
}

#[tokio::test]
async fn missing_content_is_reported_and_blocks_nothing() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let fixture = Fixture::jail().await;
    let artifacts = [fixture.given("kept", b"kept\n"), fixture.given("gone", b"gone\n")];
    fixture.data.store().remove(&Digest::of_bytes(b"gone\n")).unwrap();
    let seen = fixture.bash(&artifacts, "cat /artifacts/*").await;
    assert!(
        seen.starts_with("[the artifact `gone` is not in the sandbox: ") && seen.ends_with("]\nkept\n"),
        "{seen}"
    );
    let viewed = fixture.view(&artifacts, "file://gone").await;
    assert!(viewed.is_error, "{viewed:?}");
    assert!(viewed.text().starts_with("the input `path` could not be resolved: "), "{viewed:?}");
    assert!(!viewed.text().contains(fixture.data.store().root().to_str().unwrap()), "{viewed:?}");
    fixture.sandbox.cleanup().await;
}

#[tokio::test]
async fn a_local_sandbox_has_its_own_artifact_directory() {
    let fixture = Fixture::local().await;
    assert_eq!(
        fixture.tools.prompt(Some(fixture.sandbox.layout())).access,
        ArtifactAccess::EnvironmentVariables
    );
    let artifacts = [fixture.given("sales", b"1,2\n")];
    assert_eq!(fixture.bash(&artifacts, "cat $ARTIFACT_SALES").await, "1,2\n");
    assert_eq!(fixture.view(&artifacts, "file://sales").await.text(), "     1\t1,2\n");
    let seen = fixture.bash(&artifacts, "dirname $ARTIFACT_SALES; ls $(dirname $ARTIFACT_SALES)").await;
    let dir = seen.lines().next().unwrap().to_owned();
    assert!(seen.ends_with("\nsales\n") && !fs::exists("/artifacts/sales").unwrap(), "{seen}");
    assert_eq!(fixture.bash(&[], &format!("ls {dir}")).await, "[exit code 0, no output]");
    assert_eq!(fixture.view(&[], "skill://csv-helper/assets/sample.csv").await.text(), "     1\tsample\n");
    fixture.sandbox.cleanup().await;
    assert!(!fs::exists(&dir).unwrap());
}
