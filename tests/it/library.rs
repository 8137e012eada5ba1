//! The facade as an embedding application uses it: with its own client, its own executor, and the configured sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use conjure::config::ExecutorKind;
use conjure::conversation::{
    ProcessedResponse, conversation_complete, execute_tool_calls, extract_tool_uses, final_text,
    format_tool_results_message, loop_options, process_response,
};
use conjure::model::parse_response;
use conjure::sandbox::{
    ArtifactDir, Boundary, CallOptions, Command, CommandEnd, CommandOutcome, CommandOutput, Executor,
    Isolation, Layout, LineRange, ReachedLimits, SandboxError, SandboxErrorKind, View, WriteResult,
};
use conjure::session::{ContextOptions, create_context};
use conjure::skill::{find_skill, load_body, read_resource};
use conjure::tool::{ToolCall, Toolbox, execute};
use conjure::{
    Block, Config, Error, ErrorKind, Message, ProcessEnv, Request, Response, Settings, Skill, Workbench,
    load, model_fn, run_loop,
};
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::support::fixture;

fn skills() -> Vec<Arc<Skill>> {
    load(fixture("skills")).unwrap().skills.into_iter().map(Arc::new).collect()
}

fn local() -> Config {
    let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    Config::from_layers(settings, &ProcessEnv::from_process(), None).unwrap()
}

async fn workbench() -> Workbench {
    Workbench::open(skills(), &local(), ContextOptions::default()).await.unwrap()
}

fn bash(id: &str, command: &str) -> ToolCall {
    ToolCall::new(id, "bash_tool", &json!({"command": command, "description": "test"}))
}

fn answer(stop_reason: &str, content: &serde_json::Value) -> Response {
    parse_response(&json!({"stop_reason": stop_reason, "content": content}).to_string()).unwrap()
}

fn calls(commands: &[&str]) -> serde_json::Value {
    let block = |(place, command): (usize, &&str)| {
        let input = json!({"command": command, "description": "test"});
        json!({"type": "tool_use", "id": format!("toolu_{place}"), "name": "bash_tool", "input": input})
    };
    commands.iter().enumerate().map(block).collect()
}

#[test]
fn skills_are_loaded_and_read() {
    let skills = skills();
    let skill = find_skill(&skills, "sales-report").unwrap();
    assert!(load_body(skill).unwrap().contains("# Sales report"));
    assert!(read_resource(skill, "scripts/growth.py").unwrap().starts_with(b"#!/usr/bin/env python3"));
    let kind = |error: Error| error.kind();
    assert_eq!(kind(read_resource(skill, "scripts/no.py").unwrap_err()), ErrorKind::FileNotFound);
    assert_eq!(
        kind(read_resource(skill, "../test-skill/SKILL.md").unwrap_err()),
        ErrorKind::PermissionDenied
    );
    let unknown = find_skill(&skills, "nothing").unwrap_err();
    assert_eq!(unknown.to_string(), "skill `nothing` not found");
    assert!(unknown.hint().unwrap().contains("sales-report"));
    assert_eq!(kind(load("no/such/directory").unwrap_err()), ErrorKind::FileNotFound);
}

#[test]
fn a_context_is_private_and_allows_configured_tools_only() {
    let allowed = tempfile::tempdir().unwrap();
    let options =
        ContextOptions { allowed_paths: vec![allowed.path().to_owned()], ..ContextOptions::default() };
    let context = create_context(&skills(), &local(), options).unwrap();
    let shared = &context.execution().read_only;
    assert_eq!(shared.len(), 4);
    let first = &skills()[0];
    assert_eq!(shared[0].host, first.root_dir());
    assert_eq!(shared[0].target, Path::new("/mnt/skills").join(first.name().as_str()));
    assert_eq!(context.execution().allowed_paths, [allowed.path().canonicalize().unwrap()]);
    let path = context.workspace().path().to_owned();
    assert!(path.is_dir());
    drop(context);
    assert!(!path.exists());
    let missing = ContextOptions { allowed_paths: vec!["/no/such".into()], ..ContextOptions::default() };
    let none: [Skill; 0] = [];
    assert_eq!(create_context(&none, &local(), missing).unwrap_err().kind(), ErrorKind::FileNotFound);
}

#[test]
fn a_session_has_one_skill_per_name() {
    let other = tempfile::tempdir().unwrap();
    let first = skills().remove(0);
    let dir = other.path().join(first.name().as_str());
    std::fs::create_dir(&dir).unwrap();
    std::fs::copy(first.root_dir().join("SKILL.md"), dir.join("SKILL.md")).unwrap();
    let second = load(other.path()).unwrap().skills.remove(0);
    let twice = [first.clone(), first.clone()];
    let context = create_context(&twice, &local(), ContextOptions::default()).unwrap();
    assert_eq!(context.execution().read_only.len(), 1);
    let refused =
        create_context(&[first, Arc::new(second)], &local(), ContextOptions::default()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidSkillStructure);
    assert!(refused.to_string().contains("both are the skill"), "{refused}");
}

#[test]
fn secrets_do_not_show_in_debug_texts() {
    let environment = BTreeMap::from([("API_KEY".to_owned(), "hunter2".to_owned())]);
    let options = ContextOptions { environment, ..ContextOptions::default() };
    let debug_text = format!("{options:?}");
    assert!(debug_text.contains("API_KEY") && !debug_text.contains("hunter2"), "{debug_text}");
    let none: [Skill; 0] = [];
    let context = create_context(&none, &local(), options).unwrap();
    assert!(!format!("{context:?}").contains("hunter2"));
    assert_eq!(context.redactor().redact("it is hunter2"), "it is [REDACTED:API_KEY]");
}

#[tokio::test]
async fn one_call_runs_and_a_failure_is_a_result() {
    let workbench = workbench().await;
    let valid = execute(&bash("a", "echo $((6*7))"), &workbench).await;
    assert!(!valid.is_error && valid.text().contains("42"), "{valid:?}");
    let failed = execute(&bash("b", "echo gone; exit 3"), &workbench).await;
    assert!(failed.is_error && failed.text().contains("gone") && failed.text().contains('3'), "{failed:?}");
    let unknown = execute(&ToolCall::new("c", "nothing", &json!({})), &workbench).await;
    assert!(unknown.is_error && unknown.tool_use_id.as_str() == "c", "{unknown:?}");
    workbench.close().await;
}

#[tokio::test]
async fn calls_of_one_answer_run_together_and_come_back_in_order() {
    let workbench = workbench().await;
    // Each waits for the other: run one after the other they would never end.
    let calls = [
        bash("a", "mkfifo one two 2>/dev/null; until [ -p two ]; do :; done; echo from-a > one; cat two"),
        bash("b", "until [ -p two ]; do :; done; cat one; echo from-b > two"),
    ];
    let results = execute_tool_calls(&calls, &workbench).await;
    assert_eq!(results.iter().map(|result| result.tool_use_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(results[0].text().contains("from-b") && results[1].text().contains("from-a"), "{results:?}");
    let message = format_tool_results_message(&results);
    assert_eq!(message.content.len(), 2);
    workbench.close().await;
}

#[tokio::test]
async fn a_response_leads_to_results_an_end_or_neither() {
    let workbench = workbench().await;
    let wants = answer("tool_use", &calls(&["echo hello"]));
    assert!(!conversation_complete(&wants));
    assert_eq!(extract_tool_uses(&wants).len(), 1);
    let ProcessedResponse::Continue(results) = process_response(&wants, &workbench).await else {
        panic!("tools run")
    };
    assert!(results[0].text().contains("hello"));
    let text = json!([{"type": "text", "text": "Done."}]);
    assert_eq!(
        process_response(&answer("end_turn", &text), &workbench).await,
        ProcessedResponse::Done("Done.".to_owned())
    );
    assert_eq!(process_response(&answer("pause_turn", &text), &workbench).await, ProcessedResponse::Resume);
    // A pause with calls cannot be sent back as it is: they have no results yet.
    let paused = process_response(&answer("pause_turn", &calls(&["echo resumed"])), &workbench).await;
    assert!(
        matches!(&paused, ProcessedResponse::Continue(results) if results[0].text().contains("resumed")),
        "{paused:?}"
    );
    // The tool of a cut answer never runs.
    let cut = answer("max_tokens", &calls(&["touch ran"]));
    assert_eq!(process_response(&cut, &workbench).await, ProcessedResponse::Stopped(String::new()));
    assert!(!workbench.context().unwrap().workspace().path().join("ran").exists());
    workbench.close().await;
}

#[tokio::test]
async fn an_endless_loop_returns_the_specified_error() {
    let workbench = workbench().await;
    let model = model_fn(|request: Request| async move {
        Ok(answer("tool_use", &calls(&[&format!("echo {}", request.call)])))
    });
    let config = local().with(Settings { max_iterations: Some(4), ..Settings::default() }).unwrap();
    let message = Message::user(vec![Block::text("Go")]);
    let outcome = run_loop(vec![message], &workbench, "", &model, loop_options(&config)).await.unwrap();
    let error = final_text(&outcome).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MaxIterationsReached);
    assert_eq!(error.to_string(), "the model was called 4 times and is not done");
    workbench.close().await;
}

#[tokio::test]
async fn calls_are_counted_and_result_messages_are_not() {
    let workbench = workbench().await;
    // A pause and what follows it are one message; the history holds an answer of a turn before.
    let model = model_fn(|request: Request| async move {
        let stop = if request.call % 2 == 1 { "pause_turn" } else { "tool_use" };
        let tools = if request.call % 2 == 1 { Vec::new() } else { vec![format!("echo {}", request.call)] };
        Ok(answer(stop, &calls(&tools.iter().map(String::as_str).collect::<Vec<_>>())))
    });
    let history = || {
        let content = |text| vec![Block::text(text)];
        vec![Message::user(content("Hi")), Message::assistant(content("Hello")), Message::user(content("Go"))]
    };
    for (limit, times) in [(1, "1 time"), (4, "4 times")] {
        let config = local().with(Settings { max_iterations: Some(limit), ..Settings::default() }).unwrap();
        let outcome = run_loop(history(), &workbench, "", &model, loop_options(&config)).await.unwrap();
        let error = final_text(&outcome).unwrap_err();
        assert_eq!(error.to_string(), format!("the model was called {times} and is not done"));
    }
    workbench.close().await;
}

#[tokio::test]
async fn a_failing_client_is_an_api_error_with_retryability() {
    let workbench = workbench().await;
    let busy = conjure::model::ModelErrorKind::Api(conjure::model::ApiErrorKind::Overloaded);
    let model = model_fn(move |_| {
        let error = conjure::ModelError::new(busy.clone(), "busy");
        async move { Err(error) }
    });
    let message = || vec![Message::user(vec![Block::text("Go")])];
    let outcome = run_loop(message(), &workbench, "", &model, loop_options(&local())).await.unwrap();
    let error = final_text(&outcome).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::ApiError, true));
    let invalid = run_loop(Vec::new(), &workbench, "", &model, loop_options(&local())).await.unwrap_err();
    assert_eq!((invalid.kind(), invalid.is_retryable()), (ErrorKind::ApiError, false));
    workbench.close().await;
}

#[tokio::test]
async fn the_default_sandbox_is_a_jail() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let workbench =
        Workbench::open(Vec::<Skill>::new(), &Config::default(), ContextOptions::default()).await.unwrap();
    let isolation = workbench.executor().isolation();
    assert_eq!((isolation.filesystem, isolation.network), (Boundary::Enforced, Boundary::Enforced));
    assert_eq!(workbench.executor().layout().workspace, Path::new("/workspace"));
    workbench.close().await;
}

#[tokio::test]
async fn unenforceable_isolation_is_an_error() {
    let floor = Isolation { filesystem: Boundary::Enforced, ..Isolation::NONE };
    let demanding = local().with(Settings { floor: Some(floor), ..Settings::default() }).unwrap();
    let opened = Workbench::open(Vec::<Skill>::new(), &demanding, ContextOptions::default()).await;
    let refused = opened.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ContainerError);
    assert!(refused.to_string().contains("filesystem"), "{refused}");
}

/// An executor of the host's own (specification 17.4): it runs nothing and remembers what it was asked.
#[derive(Debug)]
struct RecordingExecutor {
    layout: Layout,
    recorded_calls: Mutex<Vec<String>>,
}

impl RecordingExecutor {
    fn remember(&self, what: String) {
        self.recorded_calls.lock().unwrap().push(what);
    }
}

impl Executor for RecordingExecutor {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn run<'a>(
        &'a self,
        command: Command,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        self.remember(command.argv.join(" "));
        let head = b"from elsewhere\n".to_vec();
        let stdout = CommandOutput { total: head.len() as u64, head, ..CommandOutput::default() };
        Box::pin(async move {
            let stderr = CommandOutput::default();
            let (end, reached) = (CommandEnd::Exited(0), ReachedLimits::default());
            Ok(CommandOutcome {
                end,
                stdout,
                stderr,
                duration: std::time::Duration::ZERO,
                limits_hit: reached,
            })
        })
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        _: Option<LineRange>,
        _: u64,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        self.remember(format!("view {path}"));
        Box::pin(async { Err(SandboxError::new(SandboxErrorKind::NotFound, "no such file")) })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.remember(format!("create {path}"));
        Box::pin(async move { Ok(WriteResult { size: content.len() as u64, existed: false }) })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        _: &'a str,
        _: &'a str,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.remember(format!("replace {path}"));
        Box::pin(async { Err(SandboxError::new(SandboxErrorKind::NoMatch, "not there")) })
    }

    fn init(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        self.remember("init".to_owned());
        Box::pin(async { Ok(()) })
    }

    fn cleanup(&self) -> BoxFuture<'_, ()> {
        self.remember("cleanup".to_owned());
        Box::pin(async {})
    }
}

#[tokio::test]
async fn an_embedders_executor_runs_the_tools() {
    let skills = skills();
    let root = skills[0].root_dir().to_owned();
    let layout = Layout {
        workspace: "/elsewhere".into(),
        read_only: vec![(root.clone(), "/mnt/skills/first".into())],
        artifacts: ArtifactDir::None,
    };
    let executor = Arc::new(RecordingExecutor { layout, recorded_calls: Mutex::default() });
    let shared: Arc<dyn Executor> = executor.clone();
    let workbench =
        Workbench::with_executor(skills.into_iter().take(1), &Config::default(), shared, Toolbox::builder())
            .await
            .unwrap();
    let result = execute(&bash("a", "hostname"), &workbench).await;
    assert!(result.text().contains("from elsewhere"), "{result:?}");
    let view = execute(&ToolCall::new("b", "view", &json!({"path": "/x"})), &workbench).await;
    assert!(view.is_error, "{view:?}");
    // The model is told where the sandbox has the skill, not where the host has it.
    let options = workbench.prompt_options();
    assert_eq!(
        options.locations.location_of(&root.join("SKILL.md")).as_deref(),
        Some(Path::new("/mnt/skills/first/SKILL.md"))
    );
    assert!(workbench.close().await.is_none());
    assert_eq!(*executor.recorded_calls.lock().unwrap(), ["init", "bash -c hostname", "view /x", "cleanup"]);
}
