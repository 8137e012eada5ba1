//! `POST /v1/messages` with the official SDK: with a script, passed on to a service of the Messages API, and translated for one of Chat
//! Completions.

use std::path::Path;

use conjure_anthropic::fake::FakeMessages;
use conjure_conversation::scripted::Script;
use conjure_openai::fake::FakeOpenAi;

use crate::server::{self, RunningServer, python, run_python, serve};

fn script() -> Script {
    Script::from_file(server::script("messages.yaml")).unwrap()
}

/// Starts a server with this configuration, and runs the program for this model against it.
async fn check(home: &Path, config: &str, model: &str, kind: &str) {
    let Some(python) = python().await else { return };
    let path = home.join("config.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = serve("local", home, &home.join("data"));
    command.arg("--config").arg(path).env("SERVICE_KEY", "sk-service");
    let server = RunningServer::spawn(command).await;
    run_python(&python, "messages.py", &[server.url(), model, kind]).await;
    server.stop().await;
}

#[tokio::test]
async fn a_script_answers_messages() {
    let Some(python) = python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = RunningServer::start(data.path(), "messages").await;
    run_python(&python, "messages.py", &[server.url(), "any-model", "script"]).await;
    server.stop().await;
}

#[tokio::test]
async fn messages_are_passed_on_with_the_key_of_the_server() {
    let service =
        FakeMessages::builder().script(script()).key("sk-service").model("the-model").start().await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "[models.ours]\napi = \"messages\"\nmodel = \"the-model\"\nbase_url = \"{}\"\nkey_env = \"SERVICE_KEY\"\n\
         [serve.models]\n\"claude-*\" = \"ours\"\n",
        service.base_url()
    );
    check(home.path(), &config, "claude-sonnet-4-5", "service").await;
    for request in service.requests() {
        assert_eq!(request.header("x-api-key"), Some("sk-service"), "the client's key is replaced");
    }
}

#[tokio::test]
async fn messages_are_translated_for_chat_completions() {
    let service = FakeOpenAi::builder().script(script()).key("sk-service").start().await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "[models.ours]\napi = \"chat\"\nmodel = \"the-model\"\nbase_url = \"{}\"\nkey_env = \"SERVICE_KEY\"\n",
        service.base_url()
    );
    check(home.path(), &config, "ours", "chat").await;
    let has_forwarded = service.requests().iter().any(|request| {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let parts = [
            r#""temperature":0.5"#,
            r#""top_p":0.9"#,
            r#""stop":["END"]"#,
            r#""parallel_tool_calls":false"#,
            r#""tool_choice":{"type":"function","function":{"name":"get_weather"}}"#,
        ];
        parts.iter().all(|part| body.contains(part))
    });
    assert!(has_forwarded, "the service is told how to answer");
}
