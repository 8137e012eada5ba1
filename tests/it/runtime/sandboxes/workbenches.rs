//! Sandboxes of a tenant without a session: the tenant's policy applies, and nothing is left.

use std::fs;
use std::path::PathBuf;

use conjure::config::ExecutorKind;
use conjure::sandbox::NetworkPolicy;
use conjure::tool::{ToolCall, execute};
use conjure::{Runtime, Settings, TenantPolicy};
use serde_json::json;

use crate::runtime::fixture::{Fixture, soon, tenant};

/// The workspaces of a tenant.
fn workspaces(fixture: &Fixture, name: &str) -> Vec<PathBuf> {
    let dir = fixture.data().join("tenants").join(name).join("workspaces");
    fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn a_workbench_follows_its_tenants_policy_and_leaves_nothing() {
    if !test_support::has_user_namespaces() {
        return;
    }
    let settings = Settings { network: Some(NetworkPolicy::Full), ..Settings::default() };
    let fixture = Fixture::with(ExecutorKind::Jail, settings);
    fixture.write_skill("greeting", "Greets people.", "echo hello");
    let none = TenantPolicy::new().sandboxes(0);
    let closed = TenantPolicy::new().network(NetworkPolicy::None).secret("CRM_KEY", "hunter2");
    let options = fixture.options().tenant(tenant("none"), none).tenant(tenant("closed"), closed);
    let runtime = Runtime::spawn(options).await.unwrap();
    let skills = runtime.default_skills(&tenant("closed")).unwrap();
    assert!(skills.iter().any(|skill| skill.name().as_str() == "greeting"));

    let refused = runtime.open_workbench(&tenant("none"), skills.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("the sandboxes of the tenant `none` are 0"), "{refused}");
    assert!(workspaces(&fixture, "none").is_empty());

    let definitions = runtime.workbench_definitions(&skills).await.unwrap();
    let workbench = runtime.open_workbench(&tenant("closed"), skills).await.unwrap();
    assert_eq!(*workbench.definitions(), *definitions);
    assert_eq!(workspaces(&fixture, "closed").len(), 1);
    let command = "ls /mnt/skills; echo hunter2 > secret; cat secret; ls /sys/class/net | wc -l; ip route 2> /dev/null | wc -l";
    let call = ToolCall::new("call", "bash_tool", &json!({"command": command, "description": "Look around"}));
    let result = execute(&call, &workbench).await;
    let text = format!("{:?}", result.content);
    assert!(!result.is_error && text.contains("greeting") && !text.contains("hunter2"), "{text}");
    let proxy = ToolCall::new(
        "call",
        "bash_tool",
        &json!({"command": "echo proxy=$HTTPS_PROXY.", "description": "Look"}),
    );
    let text = format!("{:?}", execute(&proxy, &workbench).await.content);
    assert!(text.contains("proxy=."), "the tenant's policy closes the network: {text}");
    drop(workbench.close().await);
    assert!(workspaces(&fixture, "closed").is_empty(), "its workspace ends with it");
    runtime.shutdown(soon()).await.unwrap();
}
