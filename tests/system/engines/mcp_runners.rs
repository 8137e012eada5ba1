//! MCP servers that a program such as `uvx` downloads and starts.

use std::os::unix::fs::PermissionsExt as _;

use conjure::config::{ExecutorKind, McpServerSpec, parse_mcp_json};
use conjure::sandbox::NetworkPolicy;
use conjure::tenant::TenantPolicy;
use conjure::{Runtime, RuntimeOptions, SessionSpec};
use serde_json::json;

use crate::runtime::fixture::{Fixture, soon, tenant};
use crate::runtime::programs::SentRequests;
use crate::runtime_engines::results;

/// Asks the registry, as `uvx` does first.
const UVX: &str = "#!/usr/bin/python3
import urllib.request
urllib.request.urlopen('https://pypi.org/simple/', timeout=30)
";

/// The registry is refused by its name, so nothing leaves this machine.
#[tokio::test]
async fn a_tenants_limit_applies_while_a_server_starts() {
    if !test_support::has_user_namespaces() {
        return test_support::skip("this machine permits no jail", "unprivileged user namespaces are needed");
    }
    let fixture = Fixture::new(ExecutorKind::Jail);
    let dir = tempfile::tempdir().unwrap();
    let uvx = dir.path().join("uvx");
    std::fs::write(&uvx, UVX).unwrap();
    std::fs::set_permissions(&uvx, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = json!({"mcpServers": {"demo": {"command": uvx, "args": ["demo-server"]}}}).to_string();
    let server = parse_mcp_json(&file, &|_| None).unwrap().servers.remove(0);
    let sent = SentRequests::default();
    let options = RuntimeOptions::from(fixture.config()).model("program", sent.model());
    let runtime = Runtime::spawn(options).await.unwrap();
    let network = NetworkPolicy::Limited(vec!["permitted.example".to_owned()]);
    runtime.set_tenant(&tenant("acme"), TenantPolicy::default().network(network)).unwrap();
    let server = McpServerSpec { required: true, ..server };
    let spec = SessionSpec::new(tenant("acme")).without_sandbox().own_mcp_servers([server]);
    let session = runtime.open(spec).await.unwrap();
    results(&mut session.send("hello").await.unwrap()).await;
    let messages = format!("{:?}", sent.last().messages);
    assert!(messages.contains("refused `pypi.org:443` (the name is not on the list"), "{messages}");
    runtime.shutdown(soon()).await.unwrap();
}
