//! Calls with references to artifacts, over the fake executor: [`references`] tests what the model reads, [`installation`] what is
//! installed in the sandbox.

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

mod installation;
mod references;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n and so on";

/// A fake of the web: the content of URLs, and which were requested.
#[derive(Default)]
struct Web {
    pages: Mutex<HashMap<String, Vec<u8>>>,
    requested: Mutex<Vec<String>>,
}

impl Web {
    fn serve(&self, url: &str, content: &[u8]) {
        self.pages.lock().unwrap().insert(url.to_owned(), content.to_vec());
    }

    fn request_count(&self) -> usize {
        self.requested.lock().unwrap().len()
    }
}

impl Fetch for Web {
    fn fetch<'a>(&'a self, request: FetchRequest<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            self.requested.lock().unwrap().push(request.url.to_owned());
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

/// A session's directory with a store and a skill, its sandbox, and the fake of the web.
struct Fixture {
    dir: TempDir,
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
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
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
        Self { dir, store, web, executor, skills, tools: ArtifactTools::new(resolver) }
    }

    fn builder(&self) -> ToolboxBuilder {
        Toolbox::builder()
            .with_executor(Arc::new(self.executor.clone()))
            .with_skills(SkillTools::new(self.skills.clone()))
            .with_artifacts(self.tools.clone())
    }

    fn stored(&self, name: &str, bytes: &[u8]) -> Artifact {
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

    /// The environment variables of a command.
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

/// The artifact after the fetch in this result is recorded.
fn recorded(artifact: &Artifact, result: &ToolResult) -> Artifact {
    let [fetched] = &result.fetched[..] else { panic!("{result:?}") };
    assert_eq!(fetched.name, artifact.name);
    Artifact {
        content: Some(fetched.content.clone()),
        content_type: fetched.content_type.clone(),
        ..artifact.clone()
    }
}
