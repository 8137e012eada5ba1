//! Servers as tools of a session: real processes in the sandbox `local`, and in a jail where this machine permits one.
#![expect(
    clippy::unwrap_used,
    reason = "clippy takes the helpers of integration tests for code that is not a test"
)]

mod authorization_server;
mod elicitation;
mod scripted_http;
#[cfg(feature = "server")]
mod served;
#[cfg(feature = "server")]
mod served_tasks;
mod server_requests;
mod sign_in;
mod skills;
mod startup;
mod support;
mod wire_headers;
mod wire_schema;

use std::time::Duration;

use conjure_conversation::{CallContext, PermissionPolicy, ProgressSink, ToolCall, ToolRunner as _};
use conjure_mcp::{McpTransport, ServerState};
use serde_json::json;
use support::{Session, spec};

#[tokio::test]
async fn the_tools_of_a_server_are_those_of_the_session() {
    let session = Session::start([spec("one", &[])]).await;
    let names = session.tool_names();
    assert!(names.contains(&"mcp__one__echo".to_owned()), "{names:?}");
    assert!(names.is_sorted(), "{names:?}");
    let echo = session.definition("mcp__one__echo");
    assert_eq!(echo.description, "[MCP server `one`] Does echo.");
    assert_eq!(session.call("mcp__one__echo", json!({"text": "ä\nb"})).await.unwrap(), "ä\nb");
    assert_eq!(session.call("mcp__one__fail", json!({})).await.unwrap_err(), "it failed");
    let wrong = session.call("mcp__one__none", json!({})).await.unwrap_err();
    assert!(wrong.contains("there is no tool `mcp__one__none`"), "{wrong}");
}

#[tokio::test]
async fn a_server_that_ends_loses_its_calls_and_is_started_again() {
    let session = Session::start([spec("one", &[])]).await;
    assert_eq!(session.call("mcp__one__count", json!({})).await.unwrap(), "1");
    let lost = session.call("mcp__one__crash", json!({})).await.unwrap_err();
    assert!(lost.contains("ended while the call ran") && lost.contains("it exited with code 3"), "{lost}");
    assert!(lost.contains("it crashes now"), "its standard error is told: {lost}");
    assert_eq!(session.call("mcp__one__count", json!({})).await.unwrap(), "1", "a new process counts anew");
}

/// The server is one of the official SDK.
#[tokio::test]
async fn a_server_of_the_newest_revision_tells_of_changed_tools() {
    let Some(session) = elicitation::sdk_session("changing_server.py").await else { return };
    assert_eq!(session.tool_names(), ["mcp__git__learn", "mcp__git__wait"]);
    for name in ["one", "two"] {
        session.call("mcp__git__learn", json!({"name": name})).await.unwrap();
        let tool = format!("mcp__git__{name}");
        session.until(|names| names.contains(&tool)).await;
        let said = session.call(&tool, json!({})).await.unwrap();
        assert!(said.contains(&format!("{name} was learned")), "{said}");
    }
}

/// The server is one of the official SDK.
#[tokio::test]
async fn the_progress_of_a_call_is_told_while_it_runs() {
    let Some(session) = elicitation::sdk_session("changing_server.py").await else { return };
    let file = session.workspace().join("go");
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let progress = ProgressSink::new(move |progress| {
        let _ = sender.send(progress);
    });
    let call = ToolCall::new("toolu_1", "mcp__git__wait", &json!({"path": file}));
    let context = CallContext { progress, ..CallContext::default() };
    let (result, first) = tokio::join!(session.toolbox.run_without_input(&call, context), async {
        let first = tokio::time::timeout(Duration::from_secs(60), told.recv()).await.unwrap().unwrap();
        std::fs::write(&file, "").unwrap();
        first
    });
    assert!(result.text().contains("it is there"), "{}", result.text());
    assert_eq!((first.call_id.as_str(), first.total), ("toolu_1", Some(100.0)));
    assert_eq!(
        first.message,
        format!("step  {}[2J", first.done),
        "characters that are not shown are left out"
    );
}

#[tokio::test]
async fn the_timeout_of_one_call_leaves_the_server_and_other_calls_alone() {
    let mut server = spec("one", &[]);
    server.tool_timeout = Duration::from_millis(200);
    let session = Session::start([server]).await;
    let (late, quick) = tokio::join!(
        session.call("mcp__one__sleep", json!({"seconds": 60})),
        session.call("mcp__one__echo", json!({"text": "quick"})),
    );
    assert_eq!(quick.unwrap(), "quick");
    assert!(late.unwrap_err().contains("timed out"));
    assert_eq!(session.call("mcp__one__count", json!({})).await.unwrap(), "3", "it is the same process");
}

#[tokio::test]
async fn a_slow_server_is_not_dropped_and_its_tools_are_added_when_it_has_started() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("go");
    let mut slow = spec("slow", &["--wait-for", gate.to_str().unwrap()]);
    slow.required = false;
    let session = Session::start([slow, spec("quick", &[])]).await;
    let names = session.tool_names();
    assert!(names.contains(&"mcp__quick__echo".to_owned()) && !names.contains(&"mcp__slow__echo".to_owned()));
    assert_eq!(session.servers.report()[0].state, ServerState::Starting);
    std::fs::write(&gate, "").unwrap();
    session.until(|names| names.contains(&"mcp__slow__echo".to_owned())).await;
    assert_eq!(session.call("mcp__slow__echo", json!({"text": "late"})).await.unwrap(), "late");
}

/// The SDK waits ten seconds for an answer to `server/discover`, and then sends `initialize`, which this server refuses.
#[tokio::test]
async fn a_server_of_the_newest_revision_may_answer_late() {
    let mut slow = spec("slow", &[]);
    let McpTransport::Stdio(program) = &mut slow.transport else { unreachable!() };
    program.args = vec![program.args[0].replace("server.py", "slow_server.py"), "11".to_owned()];
    let session = Session::start([slow]).await;
    assert_eq!(session.call("mcp__slow__hello", json!({})).await.unwrap(), "at last");
}

#[tokio::test]
async fn a_server_that_fails_is_tried_again_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("go");
    let mut failing = spec("one", &["--fail-until", gate.to_str().unwrap()]);
    failing.required = false;
    let session = Session::start([failing]).await;
    session
        .until_state(
            |state| matches!(state, ServerState::Failed { reason } if reason.contains("its file is missing")),
        )
        .await;
    std::fs::write(&gate, "").unwrap();
    session.until(|names| names.contains(&"mcp__one__echo".to_owned())).await;
}

#[tokio::test]
async fn required_servers_that_fail_for_one_cause_are_told_once() {
    let failing = |name| spec(name, &["--fail-until", "/no/such/file"]);
    let error = Session::try_start([failing("one"), failing("two"), spec("three", &[])]).await.err().unwrap();
    assert!(error.contains("`one`, `two`"), "{error}");
    assert_eq!(error.matches("its file is missing").count(), 1, "{error}");
}

#[tokio::test]
async fn a_change_of_the_tools_takes_effect_at_the_next_model_call() {
    let session = Session::start([spec("one", &[])]).await;
    let before = session.toolbox.current_definitions();
    assert!(std::sync::Arc::ptr_eq(&before, &session.toolbox.current_definitions()), "nothing changed");
    session.call("mcp__one__add_tool", json!({})).await.unwrap();
    session.until(|names| names.contains(&"mcp__one__added".to_owned())).await;
}

#[tokio::test]
async fn only_enabled_tools_are_there_and_some_ask() {
    let mut server = spec("one", &[]);
    server.enabled_tools = Some(["echo".to_owned(), "count".to_owned(), "env".to_owned()].into());
    server.disabled_tools = ["env".to_owned()].into();
    server.tool_permissions = [("count".to_owned(), PermissionPolicy::AlwaysAsk)].into();
    let session = Session::start([server]).await;
    assert_eq!(session.tool_names(), ["mcp__one__count", "mcp__one__echo"]);
    assert!(session.asks("mcp__one__count").await);
    assert!(!session.asks("mcp__one__echo").await);
    let disabled = session.call("mcp__one__env", json!({"text": "HOME"})).await.unwrap_err();
    assert!(disabled.contains("there is no tool"), "{disabled}");
}

#[tokio::test]
async fn many_tools_are_found_by_a_search() {
    let servers = ["a", "b", "c"].map(|name| spec(name, &["--tools", "60"]));
    let session = Session::start(servers).await;
    let definitions = session.toolbox.current_definitions();
    assert_eq!(session.tool_names(), ["mcp_search_tools"]);
    let bytes = serde_json::to_string(&*definitions).unwrap().len();
    assert!(bytes / 4 < 2_000, "{bytes} bytes");
    let found = session.call("mcp_search_tools", json!({"query": "b tool_17"})).await.unwrap();
    assert!(found.contains("- mcp__b__tool_17: "), "{found}");
    assert!(session.tool_names().contains(&"mcp__b__tool_17".to_owned()));
    // One that was not found can be called by its name, as a session does that was resumed.
    assert_eq!(session.call("mcp__c__echo", json!({"text": "x"})).await.unwrap(), "x");
}

#[tokio::test]
async fn what_a_server_does_too_much_of_is_bounded() {
    let session = Session::start([
        spec("endless", &["--endless"]),
        spec("schema", &["--large-schema"]),
        spec("noise", &["--noise"]),
    ])
    .await;
    let names = session.tool_names();
    assert!(!names.contains(&"mcp__schema__large".to_owned()), "{names:?}");
    // More than can be offered at once: they are found by a search.
    assert_eq!(names, ["mcp_search_tools"]);
    assert_eq!(session.call("mcp__noise__echo", json!({"text": "x"})).await.unwrap(), "x");
    let big = session.call("mcp__schema__big", json!({"bytes": 50_000_000})).await.unwrap_err();
    assert!(big.contains("its answer has more than 32 MiB"), "{big}");
    let large = session.call("mcp__schema__big", json!({"bytes": 200_000})).await.unwrap();
    assert!(
        large.starts_with("[the text has 200000 bytes and is in the file `mcp-results/"),
        "{}",
        &large[..200]
    );
    let written =
        std::fs::read_dir(session.workspace().join("mcp-results")).unwrap().next().unwrap().unwrap();
    assert_eq!(written.metadata().unwrap().len(), 200_000);
}

#[tokio::test]
async fn a_later_session_knows_the_tools_without_starting_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let first = Session::with_manifests([spec("one", &[])], dir.path()).await;
    let names = first.tool_names();
    drop(first);
    let later = Session::with_manifests([spec("one", &[])], dir.path()).await;
    assert!(matches!(later.servers.report()[0].state, ServerState::Known { tools: 10 }));
    assert_eq!(later.tool_names(), names);
    assert_eq!(later.call("mcp__one__count", json!({})).await.unwrap(), "1");
    assert!(matches!(later.servers.report()[0].state, ServerState::Running { tools: 10 }));
    // Other arguments may make another server of it.
    let mut other = spec("one", &["--tools", "1"]);
    other.required = false;
    let other = Session::with_manifests([other], dir.path()).await;
    assert!(!matches!(other.servers.report()[0].state, ServerState::Known { .. }));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told() {
    let mut none = spec("none", &[]);
    let McpTransport::Stdio(program) = &mut none.transport else { panic!("it is a program") };
    program.command = "/no/such/program".to_owned();
    let error = Session::try_start([none]).await.err().unwrap();
    assert!(error.contains("the MCP server `none` could not be started"), "{error}");
    assert!(error.contains("/no/such/program"), "{error}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_servers_end_with_the_session() {
    let session = Session::start([spec("one", &[])]).await;
    let pid = session.call("mcp__one__pid", json!({})).await.unwrap();
    let process = std::path::Path::new("/proc").join(pid);
    assert!(process.exists());
    // Its sandbox goes on, as the tools' sandbox does.
    let executor = session.executor.clone();
    drop(session.toolbox);
    drop(session.servers);
    support::wait(|| !process.exists()).await;
    drop(executor);
}
