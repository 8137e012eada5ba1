//! The `networking` of environments, in jails of the real server, also over a kill.

use std::path::Path;

use crate::server::{self, RunningServer, python, run_python, serve, with_jails};

/// A server with these sandboxes, and with a list of hosts that no client can widen.
async fn start(data: &Path, sandbox: &str, script: &str) -> RunningServer {
    let config = data.join("config.toml");
    let network = match sandbox {
        "jail" => r#"["10.1.2.3:7", "example.com", "*.example.com", "pypi.org"]"#,
        _ => "\"none\"",
    };
    std::fs::write(&config, format!("network = {network}\n")).unwrap();
    let mut command = serve(sandbox, data, &data.join("data"));
    command.arg("--script").arg(server::script(script)).arg("--config").arg(config);
    RunningServer::spawn(command).await
}

#[tokio::test]
async fn sessions_reach_their_environments_hosts_also_after_a_kill() {
    let Some(python) = with_jails(python()).await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "jail", "network.yaml").await;
    let session = run_python(&python, "networks.py", &[server.url()]).await;
    server.kill().await;
    let server = start(data.path(), "jail", "network.yaml").await;
    run_python(&python, "networks.py", &[server.url(), session.trim()]).await;
    server.stop().await;
}

#[tokio::test]
async fn the_agent_fetches_nothing_from_local_or_unlisted_hosts() {
    let Some(python) = with_jails(python()).await else { return };
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "jail", "fetch.yaml").await;
    run_python(&python, "fetch.py", &[server.url(), "limited"]).await;
    server.stop().await;
    // A sandbox that isolates nothing cannot keep a limit.
    let data = tempfile::tempdir().unwrap();
    let server = start(data.path(), "local", "fetch.yaml").await;
    run_python(&python, "fetch.py", &[server.url(), "refused"]).await;
    server.stop().await;
}
