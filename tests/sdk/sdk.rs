//! `conjure serve` with the official SDK as its client.
//!
//! Each test starts the built command with a scripted model, and runs a program of Python against it under the SDK's strict validation: an
//! answer that is not exactly of the API's types fails.

#![expect(clippy::panic, clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panic")]

mod acp;
mod environments;
mod killed;
mod mcp;
mod mcp_http;
mod messages;
mod package_runners;
mod readme;
mod reload;
mod server;
mod tiny_model;
mod tls;

use server::{RunningServer, run_python};

/// Runs a program against a server with this script.
async fn check(script: &str, program: &str) {
    let Some(python) = server::python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = RunningServer::start(data.path(), script).await;
    run_python(&python, program, &[server.url()]).await;
    server.stop().await;
}

#[tokio::test]
async fn the_quickstart_streams_an_answer() {
    check("echo", "quickstart.py").await;
}

#[tokio::test]
async fn a_stream_opened_first_has_all_events_and_previews_are_a_prefix() {
    check("echo", "stream_first.py").await;
}

#[tokio::test]
async fn a_custom_tool_round_trips() {
    check("custom_tool", "custom_tool.py").await;
}

#[tokio::test]
async fn the_tool_runner_of_the_sdk_answers_custom_tools() {
    check("custom_tool", "tool_runner.py").await;
}

#[tokio::test]
async fn a_call_that_needs_approval_waits_and_continues() {
    check("confirm", "confirm.py").await;
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_leaves_the_queue() {
    check("slow", "interrupt.py").await;
}

#[tokio::test]
async fn two_clients_see_the_same_events() {
    check("echo", "two_clients.py").await;
}

#[tokio::test]
async fn pages_filters_and_orders_are_those_of_the_api() {
    check("echo", "pages.py").await;
}

#[tokio::test]
async fn sessions_are_changed_archived_and_deleted() {
    check("echo", "lifecycle.py").await;
}

#[tokio::test]
async fn invalid_requests_are_rejected_like_the_api() {
    check("echo", "refusals.py").await;
}

#[tokio::test]
async fn vaults_keep_credentials_and_never_show_their_secrets() {
    check("echo", "vaults.py").await;
}

#[tokio::test]
async fn the_asynchronous_client_works_as_well() {
    check("echo", "asynchronous.py").await;
}

#[tokio::test]
async fn agents_have_versions() {
    check("echo", "agents.py").await;
}

#[tokio::test]
async fn environments_have_unique_names() {
    check("echo", "environments.py").await;
}

#[tokio::test]
async fn models_are_listed_and_found_by_names_of_the_vendor() {
    check("echo", "models.py").await;
}

#[tokio::test]
async fn the_openapi_document_says_what_the_sdk_expects_and_the_server_does() {
    check("echo", "openapi.py").await;
}

#[tokio::test]
async fn hostile_requests_are_rejected_and_the_server_continues() {
    check("echo", "hostile.py").await;
}

#[tokio::test]
async fn files_are_uploaded_listed_and_downloaded() {
    check("echo", "files.py").await;
}

#[tokio::test]
async fn skills_are_uploaded_as_directories_and_archives() {
    check("echo", "skills.py").await;
}

#[tokio::test]
async fn a_key_has_a_rate_limit_that_metrics_report() {
    let Some(python) = server::python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("data");
    let config = data.path().join("config.toml");
    std::fs::write(&config, "[serve]\nrequests_per_minute = 120\n").unwrap();
    let key = async |scope: &str| {
        let mut command = server::command();
        command.args(["keys", "create", scope, "--tenant", "acme", "--scope", "read", "--scope", scope]);
        let output = command.arg("--data").arg(&dir).output().await.unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (admin, reader) = (key("admin").await, key("run").await);
    let mut command = server::serve("local", data.path(), &dir);
    command.arg("--config").arg(&config);
    let server = RunningServer::spawn(command).await;
    run_python(&python, "rate.py", &[server.url(), &admin, &reader]).await;
    server.stop().await;
}

#[tokio::test]
async fn keys_belong_to_tenants_and_have_scopes() {
    let Some(python) = server::python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = RunningServer::start(data.path(), "echo").await;
    let program = server::program();
    run_python(&python, "keys.py", &[server.url(), program.to_str().unwrap(), data.path().to_str().unwrap()])
        .await;
    server.stop().await;
}

#[tokio::test]
async fn a_creation_with_an_idempotency_key_happens_once_across_a_kill() {
    let Some(python) = server::python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = RunningServer::start(data.path(), "echo").await;
    let created = run_python(&python, "idempotency.py", &[server.url(), "first"]).await;
    server.kill().await;
    let server = RunningServer::start(data.path(), "echo").await;
    run_python(&python, "idempotency.py", &[server.url(), "again", created.trim()]).await;
    server.stop().await;
}

#[tokio::test]
async fn sessions_work_with_the_skills_of_their_agent() {
    check("skill", "skill_used.py").await;
}

#[tokio::test]
async fn a_budget_ends_turns_and_can_be_raised() {
    check("dear", "budget.py").await;
}

#[tokio::test]
async fn a_csv_is_uploaded_and_a_chart_comes_from_the_outputs() {
    let Some(python) = server::python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = RunningServer::start(data.path(), "chart").await;
    // A sandbox without a file system of its own has the workspace alone.
    run_python(&python, "resources.py", &[server.url(), ".session/uploads", ".session/outputs"]).await;
    server.stop().await;
}

#[tokio::test]
async fn a_jail_has_uploads_and_outputs_at_the_api_paths() {
    let Some(python) = server::with_jails(server::python()).await else { return };
    let data = tempfile::tempdir().unwrap();
    let mut command = server::serve("jail", data.path(), data.path());
    command.arg("--script").arg(server::script("chart.yaml"));
    let server = RunningServer::spawn(command).await;
    let arguments = [server.url(), "/mnt/session/uploads", "/mnt/session/outputs"];
    run_python(&python, "resources.py", &arguments).await;
    server.stop().await;
}
