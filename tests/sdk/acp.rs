//! `conjure acp` with the official client of the Agent Client Protocol.

use std::path::Path;
use std::process::Stdio;

use test_support::Python;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::mcp::{files_with, programs, serve};
use crate::server::{command, dir, program, script, with_jails};

/// The interpreter with the client, if there is one.
async fn python() -> Option<Python> {
    let check = "import acp; from importlib.metadata import version; assert version('agent-client-protocol') == '0.12.1'";
    Python::find("CONJURE_ORACLE_PYTHON_ACP", check, "`agent-client-protocol` 0.12.1").await
}

/// Runs one of our clients with what it is given, against `conjure acp` with these sandboxes and options. The client must end well.
async fn check(python: &Python, client: &str, given: &[&str], options: &[&str], data: &Path) {
    let (client, program) = (dir().join("programs").join(client), program());
    let mut arguments = vec![client.to_str().unwrap()];
    arguments.extend(given);
    arguments.extend([program.to_str().unwrap(), "acp", "--data", data.to_str().unwrap(), "--sandbox"]);
    arguments.extend(options);
    assert_eq!(python.run(&arguments, "").await, "done\n");
}

#[tokio::test]
async fn the_mcp_servers_of_an_editor_are_those_of_its_sessions() {
    let (Some(python), Some(servers)) = (python().await, with_jails(crate::mcp::python()).await) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let port = test_support::free_port();
    let _server = serve(&servers, port, &["--token", "t0ken"]).await;
    let script = script("editor_servers.yaml");
    let (clock, url) =
        (format!("{}/mcp-server-time", programs(&servers).await), format!("http://127.0.0.1:{port}/mcp"));
    let options = ["jail", "--script", script.to_str().unwrap()];
    check(&python, "acp_servers.py", &[&clock, &url, "t0ken"], &options, home.path()).await;
    for secret in ["t0ken", "s3cret-of-the-clock"] {
        let found = files_with(home.path(), secret.as_bytes());
        assert!(found.is_empty(), "{secret}: {found:?}");
    }
}

#[tokio::test]
async fn a_skill_of_an_mcp_server_needs_the_editor_users_approval() {
    let Some(python) = python().await else { return };
    let home = tempfile::tempdir().unwrap();
    check(&python, "acp_skills.py", &[], &["local"], home.path()).await;
}

#[tokio::test]
async fn an_editor_drives_sessions_through_their_whole_life() {
    let Some(python) = python().await else { return };
    let (home, script) = (tempfile::tempdir().unwrap(), script("editor.yaml"));
    let options = ["local", "--script", script.to_str().unwrap()];
    check(&python, "acp_client.py", &[], &options, home.path()).await;
}

#[tokio::test]
async fn invalid_lines_are_answered_and_end_nothing() {
    let (home, script) = (tempfile::tempdir().unwrap(), script("editor.yaml"));
    let mut command = command();
    command.args(["acp", "--sandbox", "local", "--script"]).arg(script).arg("--data").arg(home.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in [
        "nonsense",
        "{}",
        "[]",
        r#"{"jsonrpc":"2.0","id":1,"method":"no/such/method","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":7}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":1}}"#,
    ] {
        input.write_all(line.as_bytes()).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }
    drop(input);
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).await.unwrap();
    assert!(child.wait().await.unwrap().success());
    for part in [r#""id":1"#, r#""id":2"#, r#""id":3"#, r#""name":"conjure""#] {
        assert!(output.contains(part), "{part}: {output}");
    }
}
