//! MCP servers that the sessions of a tenant share. These need no engine, but the feature `mcp`, which the quick tier does not have.

use std::collections::BTreeMap;
use std::path::Path;

use conjure::config::{ExecutorKind, McpServerSpec, parse_mcp_json};
use conjure::{Runtime, RuntimeOptions, Session, SessionSpec, Settings};
use serde_json::{Value, json};

use crate::runtime::fixture::{Fixture, available_kind, soon, tenant, until};
use crate::runtime::programs::SentRequests;
use crate::runtime_engines::results;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/mcp/tests/client/server.py");

/// A host whose configuration has the servers `shared` and `own`.
fn fixture(kind: ExecutorKind) -> Fixture {
    let server = Path::new(SERVER).canonicalize().unwrap();
    let file = json!({"mcpServers": {"shared": {"command": "python3", "args": [server], "env": {"API_KEY": "s3cret-of-all"}},
        "own": {"command": "python3", "args": [server]}}});
    let servers = parse_mcp_json(&file.to_string(), &|_| None).unwrap().servers.into_iter();
    let servers = servers.map(|server| {
        let shared = server.name.as_str() == "shared";
        (server.name.to_string(), McpServerSpec { required: true, shared, ..server })
    });
    Fixture::with(kind, Settings { mcp: servers.collect::<BTreeMap<_, _>>(), ..Settings::default() })
}

async fn runtime(fixture: &Fixture) -> Runtime {
    let options = RuntimeOptions::from(fixture.config()).model("program", SentRequests::default().model());
    Runtime::spawn(options).await.unwrap()
}

async fn open(runtime: &Runtime, name: &str) -> Session {
    let spec = SessionSpec::new(tenant(name)).without_sandbox().mcp_servers(["shared", "own"]);
    runtime.open(spec).await.unwrap()
}

/// The results of these tools, of the shared server and of the session's own.
async fn call(session: &Session, calls: &[(&str, Value)]) -> Vec<String> {
    let calls: Vec<Value> =
        calls.iter().map(|(tool, input)| json!([[format!("mcp__{tool}"), input]])).collect();
    results(&mut session.send(json!(calls).to_string()).await.unwrap()).await
}

async fn process(session: &Session, server: &str) -> u32 {
    call(session, &[(&format!("{server}__pid"), json!({}))]).await[0].parse().unwrap()
}

async fn has_ended(process: u32) {
    until(async || !Path::new(&format!("/proc/{process}")).exists()).await;
}

#[tokio::test]
async fn the_sessions_of_a_tenant_share_a_process() {
    let fixture = fixture(ExecutorKind::Local);
    let runtime = runtime(&fixture).await;
    let (one, two, other) =
        tokio::join!(open(&runtime, "acme"), open(&runtime, "acme"), open(&runtime, "globex"));
    let shared = process(&one, "shared").await;
    assert_eq!(process(&two, "shared").await, shared);
    let of_other = process(&other, "shared").await;
    assert_ne!(of_other, shared, "tenants share nothing");
    let own_process = process(&one, "own").await;
    assert_ne!(process(&two, "own").await, own_process);

    // It is restarted for both. The call in flight is lost.
    let crashed = call(&one, &[("shared__crash", json!({}))]).await;
    assert!(crashed[0].contains("ended"), "{crashed:?}");
    has_ended(shared).await;
    let (of_one, of_two) = tokio::join!(process(&one, "shared"), process(&two, "shared"));
    assert_eq!(of_one, of_two);
    assert_ne!(of_one, shared);

    // It stays for the session that still has it, and ends with the last one.
    one.close().await.unwrap();
    has_ended(own_process).await;
    assert_eq!(process(&two, "shared").await, of_one);
    two.close().await.unwrap();
    has_ended(of_one).await;
    assert_eq!(process(&other, "shared").await, of_other);
    let reopened = open(&runtime, "acme").await;
    let started = process(&reopened, "shared").await;
    assert_ne!(started, of_one);

    assert!(runtime.delete_tenant(&tenant("acme")).await.unwrap().is_complete());
    has_ended(started).await;
    runtime.shutdown(soon()).await.unwrap();
    has_ended(of_other).await;
}

/// Only the configuration decides on sharing: another session's own server of the same name may be another program.
#[tokio::test]
async fn a_session_s_own_server_is_never_shared() {
    let fixture = fixture(ExecutorKind::Local);
    let runtime = runtime(&fixture).await;
    let own_server = fixture.config().mcp_servers()["shared"].clone();
    assert!(own_server.shared);
    let open = async || {
        let spec = SessionSpec::new(tenant("acme")).without_sandbox().own_mcp_servers([own_server.clone()]);
        runtime.open(spec).await.unwrap()
    };
    let (one, two) = (open().await, open().await);
    assert_ne!(process(&one, "shared").await, process(&two, "shared").await);
    runtime.shutdown(soon()).await.unwrap();
}

#[tokio::test]
async fn a_shared_server_has_a_sandbox_of_its_own_and_keeps_its_secret() {
    let fixture = fixture(available_kind(ExecutorKind::Jail));
    let runtime = runtime(&fixture).await;
    let (one, two) = (open(&runtime, "acme").await, open(&runtime, "acme").await);
    for (session, count) in [(&one, "1"), (&two, "2"), (&one, "3")] {
        assert_eq!(call(session, &[("shared__count", json!({}))]).await, [count]);
    }
    // Each session redacts what comes from it.
    let result = call(&two, &[("shared__env", json!({"text": "API_KEY"}))]).await;
    assert_eq!(result, ["[REDACTED:API_KEY]"]);
    // A call that a session breaks off costs the other nothing.
    let number =
        async |session| call(session, &[("shared__count", json!({}))]).await[0].parse::<u32>().unwrap();
    let mut counted = number(&two).await;
    let _turn = one.send(json!([[["mcp__shared__sleep", {"seconds": 300}]]]).to_string()).await.unwrap();
    until(async || {
        counted += 1;
        // The server counts the call of the other session, too.
        number(&two).await > counted
    })
    .await;
    one.interrupt().await.unwrap();
    assert_eq!(call(&two, &[("shared__echo", json!({"text": "here"}))]).await, ["here"]);
    runtime.shutdown(soon()).await.unwrap();
}
