//! `/mcp` of `conjure serve`: the MCP server by HTTP, with the official SDK as its client, and by hand where that sends nothing wrong.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::mcp::{former_python, python, serve_with_private_servers};
use crate::server::{RunningServer, command, dir, run_python, script, serve};

/// A server with the skills of the fixtures and these keys: name, tenant and scope of each.
async fn start(data: &Path, sandbox: &str, keys: &[(&str, &str)]) -> (RunningServer, Vec<String>) {
    let mut texts = Vec::new();
    for (tenant, scope) in keys {
        let mut command = command();
        command.args(["keys", "create", "of a test", "--tenant", tenant, "--scope", scope]);
        let output = command.arg("--data").arg(data).output().await.unwrap();
        texts.push(String::from_utf8(output.stdout).unwrap().trim().to_owned());
    }
    let mut command = serve(sandbox, data, data);
    command.arg("--script").arg(script("echo.yaml"));
    command.env("CONJURE_SKILL_PATHS", dir().join("../../fixtures/skills"));
    (RunningServer::spawn(command).await, texts)
}

/// Checks that clients of two tenants work in such sandboxes.
async fn check_eras(sandbox: &str) {
    let Some(python) = python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let (server, keys) =
        start(data.path(), sandbox, &[("acme", "run"), ("other", "run"), ("acme", "read")]).await;
    run_python(&python, "mcp_http.py", &[server.url(), &keys[0], &keys[1], &keys[2]]).await;
    server.stop().await;
    for tenant in ["acme", "other"] {
        let workspaces = data.path().join("tenants").join(tenant).join("workspaces");
        let workspaces: Vec<_> =
            std::fs::read_dir(&workspaces).into_iter().flatten().map(|entry| entry.unwrap()).collect();
        // The sessions of `run_agent` keep theirs.
        let of_sessions =
            workspaces.iter().filter(|entry| entry.file_name().to_str().unwrap().starts_with("ses_"));
        assert_eq!(of_sessions.count(), workspaces.len(), "{workspaces:?}");
    }
}

#[tokio::test]
async fn clients_of_both_eras_have_skills_a_sandbox_and_an_agent() {
    check_eras("local").await;
}

#[tokio::test]
async fn each_client_has_its_own_jail() {
    if test_support::has_user_namespaces() {
        check_eras("jail").await;
    }
}

/// One server is the MCP server of an agent of another.
#[tokio::test]
async fn an_agent_loads_a_skill_of_its_mcp_server_once_the_client_has_confirmed() {
    let Some(sdk) = crate::server::python().await else { return };
    let (shelf_data, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (shelf, _) = start(shelf_data.path(), "local", &[]).await;
    // The digests of all files, as they are listed.
    let version = "import hashlib, sys; sha256 = lambda data: hashlib.sha256(data).hexdigest(); \
        file = sha256(open(sys.argv[1], 'rb').read()); \
        print(sha256(f'skill://minimal-skill/SKILL.md\\nsha256:{file} SKILL.md\\n'.encode()), end='')";
    let manual = dir().join("../../fixtures/skills/minimal-skill/SKILL.md");
    let version = sdk.run(&["-c", version, manual.to_str().unwrap()], "").await;
    let script = format!(
        "version: 1\nturns:\n  - content: [{{tool_use: {{name: mcp_load_skill, input: {{server: shelf, skill: minimal-skill, version: \"{version}\"}}}}}}]\n  - content: done\n"
    );
    let script_file = data.path().join("script.yaml");
    std::fs::write(&script_file, script).unwrap();
    let command = serve_with_private_servers(data.path(), script_file.to_str().unwrap());
    let server = RunningServer::spawn(command).await;
    run_python(&sdk, "mcp_skill.py", &[server.url(), &format!("{}/mcp", shelf.url())]).await;
    server.stop().await;
    shelf.stop().await;
}

#[tokio::test]
async fn the_previous_sdk_has_sessions() {
    let Some(python) = former_python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let (server, keys) = start(data.path(), "local", &[("acme", "run")]).await;
    run_python(&python, "mcp_http_former.py", &[server.url(), &keys[0]]).await;
    server.stop().await;
}

#[tokio::test]
async fn headers_and_status_codes_are_those_of_the_conformance_suite() {
    let Some(python) = python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let (server, keys) = start(data.path(), "local", &[("acme", "run")]).await;
    run_python(&python, "mcp_headers.py", &[server.url(), &keys[0]]).await;
    server.stop().await;
}

/// A request of the newest revision.
fn request(address: &str, host: &str, method: &str, parameters: &str, further: &str) -> String {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}}"#;
    let comma = if parameters.is_empty() { "" } else { "," };
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{parameters}{comma}{meta}}}}}"#);
    let host = if host.is_empty() { address } else { host };
    let name = if method == "tools/call" { "mcp-name: bash_tool\r\n" } else { "" };
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {host}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n{name}{further}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A call of `bash_tool`.
fn bash(address: &str, command: &str) -> String {
    let parameters =
        format!(r#""name":"bash_tool","arguments":{{"command":"{command}","description":"Run it"}}"#);
    request(address, "", "tools/call", &parameters, "connection: close\r\n")
}

async fn send(address: &str, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The whole answer, where the connection is closed behind it.
async fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    let reading = tokio::time::timeout(Duration::from_secs(60), stream.read_to_string(&mut text));
    reading.await.expect("an answer ends").unwrap();
    text
}

#[tokio::test]
async fn without_keys_foreign_hosts_and_origins_are_rejected() {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = start(data.path(), "local", &[]).await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let request = async |host: &str, further: &str| {
        let further = format!("{further}connection: close\r\n");
        answer(send(&address, &request(&address, host, "tools/list", "", &further)).await).await
    };
    for valid in [("", ""), ("localhost", ""), ("", "origin: http://localhost:3000\r\n")] {
        let told = request(valid.0, valid.1).await;
        assert!(told.starts_with("HTTP/1.1 200") && told.contains("bash_tool"), "{valid:?}: {told}");
    }
    for (host, further) in [
        ("rebound.example.com", ""),
        ("127.0.0.1.example.com:80", ""),
        ("", "origin: https://example.com\r\n"),
        ("", "origin: null\r\n"),
        ("rebound.example.com", "authorization: Bearer any\r\n"),
    ] {
        let told = request(host, further).await;
        assert!(told.starts_with("HTTP/1.1 403"), "{host} {further}: {told}");
    }
    server.stop().await;
}

/// How many processes run this command.
async fn processes(marker: &str) -> usize {
    #[expect(clippy::disallowed_methods, reason = "the machine is asked")]
    let mut command = Command::new("pgrep");
    let output = command.args(["-fc", marker]).stderr(Stdio::null()).output().await.unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
}

/// Waits until this many processes run this command.
async fn until(marker: &str, count: usize) {
    for _ in 0..600 {
        if processes(marker).await == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} processes of {marker}, not {count}", processes(marker).await);
}

#[tokio::test]
async fn a_disconnected_client_ends_its_call_and_keeps_its_sandbox() {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = start(data.path(), "local", &[]).await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let reply = answer(send(&address, &bash(&address, "echo kept > a.txt")).await).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let going = send(&address, &bash(&address, "sleep 23.4567")).await;
    until("^sleep 23.4567", 1).await;
    drop(going);
    until("^sleep 23.4567", 0).await;
    let reply = answer(send(&address, &bash(&address, "cat a.txt")).await).await;
    assert!(reply.contains("kept"), "{reply}");
    server.stop().await;
}

#[tokio::test]
async fn a_running_call_is_answered_before_the_server_ends() {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = start(data.path(), "local", &[]).await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let asked = send(&address, &bash(&address, "sleep 2.3456; echo answered")).await;
    until("^sleep 2.3456", 1).await;
    let ((), reply) = tokio::join!(server.stop(), answer(asked));
    assert!(reply.contains("answered"), "{reply}");
}

#[tokio::test]
async fn a_long_call_ends_with_the_server() {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = start(data.path(), "local", &[]).await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let asked = send(&address, &bash(&address, "sleep 29.8765")).await;
    until("^sleep 29.8765", 1).await;
    server.stop().await;
    assert_eq!(processes("^sleep 29.8765").await, 0);
    assert!(!answer(asked).await.contains("result"));
}

/// A stream of a session of an earlier revision of the protocol, which has begun, and the id of its key.
async fn session_stream(address: &str, key: &str) -> TcpStream {
    let ask = |method: &str, further: &str, body: &str| {
        format!(
            "{method} /mcp HTTP/1.1\r\nhost: {address}\r\nx-api-key: {key}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\nconnection: close\r\n{further}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let begin = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;
    let reply = answer(send(address, &ask("POST", "", begin)).await).await;
    let session = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).expect(&reply);
    let mut stream = send(address, &ask("GET", &format!("mcp-session-id: {session}\r\n"), "")).await;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked_or_the_server_ends() {
    let data = tempfile::tempdir().unwrap();
    let (server, keys) = start(data.path(), "local", &[("acme", "run"), ("acme", "run")]).await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let (revoked, retained) =
        (session_stream(&address, &keys[0]).await, session_stream(&address, &keys[1]).await);
    let id = format!("key_{}", &keys[0]["sk-conjure-".len()..][..32]);
    let status = command().args(["keys", "revoke", &id, "--data"]).arg(data.path()).status().await.unwrap();
    assert!(status.success());
    answer(revoked).await;
    server.stop().await;
    answer(retained).await;
}
