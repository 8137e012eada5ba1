//! MCP servers with the command `docker run …`: their images are sandboxes on this machine's engine.
//!
//! Where no engine answers the test says so and passes, unless `CONJURE_TEST_REQUIRE=all` is set.

use conjure::config::{ExecutorKind, McpServerSpec, parse_mcp_json};
use conjure::{Runtime, RuntimeOptions, SessionSpec, Settings};
use serde_json::json;

use crate::engine::docker;
use crate::image::{Content, test_image_of};
use crate::runtime::fixture::{Fixture, soon, tenant};
use crate::runtime::programs::SentRequests;
use crate::runtime_engines::results;

/// An image that starts a server, as published ones do.
const SERVER: Content = Content {
    packages: &["python3"],
    files: &[(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/mcp/tests/client/server.py"),
        "/srv/app/server.py",
    )],
    changes: &[
        "WORKDIR /srv/app",
        "ENV FROM_IMAGE=yes",
        "ENTRYPOINT [\"/usr/bin/python3\", \"server.py\"]",
        "CMD [\"--wait-for\", \"/no/such/file\"]",
    ],
};

#[tokio::test]
async fn a_docker_command_line_opens_a_sandbox_of_its_image() {
    let Some(image) = test_image_of(&docker(), &SERVER) else { return };
    let settings = Settings { engine: Some(docker().to_string()), ..Settings::default() };
    let fixture = Fixture::with(ExecutorKind::Local, settings);
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("ready"), "").unwrap();
    let line = |image: &str, dir: &str| {
        let volume = format!("{dir}:/shared");
        let args =
            ["run", "-i", "--rm", "--init", "--name", "app", "-e", "GREETING", "-e", "LEVEL=info", "-v"];
        let args = args.into_iter().chain([volume.as_str(), image, "--wait-for", "/shared/ready"]);
        json!({"command": "docker", "args": args.collect::<Vec<_>>(), "env": {"GREETING": "hello", "OTHER": "x"}})
    };
    let dir = shared.path().to_str().unwrap();
    let read = |name: &str, server| {
        let file = json!({"mcpServers": {name: server}}).to_string();
        let server = parse_mcp_json(&file, &|_| None).unwrap().servers.remove(0);
        McpServerSpec { required: true, ..server }
    };
    let mut podman = line(image.name(), dir);
    podman["command"] = json!("podman");
    let sent = SentRequests::default();
    let options = RuntimeOptions::from(fixture.config()).model("program", sent.model());
    let runtime = Runtime::spawn(options).await.unwrap();
    let spec = || SessionSpec::new(tenant("acme")).without_sandbox();
    let session = runtime.open(spec().own_mcp_servers([read("app", line(image.name(), dir))])).await.unwrap();
    let variable = |name: &str| json!([["mcp__app__env", {"text": name}]]);
    let calls = json!([
        variable("GREETING"),
        variable("LEVEL"),
        variable("OTHER"),
        variable("FROM_IMAGE"),
        [["mcp__app__pid", {}]],
    ]);
    let results_text = results(&mut session.send(calls.to_string()).await.unwrap()).await;
    assert_eq!(results_text[..4], ["hello", "info", "(unset)", "yes"]);
    // The sandbox's own program is the first process.
    assert_ne!(results_text[4], "1");

    // The model is told of those that cannot be started.
    let missing_image = read("gone", line("conjure-test:no-such-image", dir));
    let session = runtime.open(spec().own_mcp_servers([missing_image, read("other", podman)])).await.unwrap();
    results(&mut session.send("hello").await.unwrap()).await;
    let messages = format!("{:?}", sent.last().messages);
    assert!(messages.contains("has no image `conjure-test:no-such-image`"), "{messages}");
    assert!(
        messages.contains("begins with `podman run`, and the engine that is used is no Podman"),
        "{messages}"
    );

    let missing = read("app", line(image.name(), "/no/such/directory"));
    let error = runtime.open(spec().own_mcp_servers([missing])).await.unwrap_err().to_string();
    assert!(error.contains("/no/such/directory"), "{error}");
    let mut privileged = line(image.name(), dir);
    privileged["args"][1] = json!("--privileged");
    let error =
        runtime.open(spec().own_mcp_servers([read("app", privileged)])).await.unwrap_err().to_string();
    assert!(error.contains("`app`") && error.contains("`--privileged` is refused"), "{error}");
    runtime.shutdown(soon()).await.unwrap();
}
