//! What calls with references install in the sandbox, and what commands see of it.

use super::*;

#[tokio::test]
async fn commands_get_artifacts_as_variables() {
    let fixture = Fixture::new();
    let artifacts = [
        fixture.stored("sales", b"1"),
        fixture.stored("a b", b"2"),
        of_url("feed", "https://example.com/feed", None),
    ];
    let variables = fixture.variables(&artifacts).await;
    let expected = [("ARTIFACT_A_B", "/artifacts/a b"), ("ARTIFACT_SALES", "/artifacts/sales")];
    assert_eq!(variables, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
    assert_eq!(fixture.executor.file("/artifacts/a b").unwrap(), b"2");
    let command = json!({"command": "curl file://sales https://example.com/feed"});
    fixture.call(&artifacts, "bash_tool", command).await;
    assert_eq!(
        fixture.executor.commands().pop().unwrap().argv[2],
        "curl file://sales https://example.com/feed"
    );
    assert_eq!(fixture.web.request_count(), 0);
    // Each was installed once.
    assert_eq!(fixture.executor.installed_content(), ["+ sales", "+ a b"]);
}

#[tokio::test]
async fn unregistered_artifacts_are_removed_and_new_ones_replaced() {
    let fixture = Fixture::new();
    let (sales, other) = (fixture.stored("sales", b"1"), fixture.stored("other", b"2"));
    fixture.variables(&[sales.clone(), other.clone()]).await;
    assert_eq!(fixture.variables(std::slice::from_ref(&other)).await.len(), 1);
    assert_eq!(fixture.executor.file("/artifacts/sales"), None);
    // Registered again later, with other content.
    fixture.variables(&[other, fixture.stored("sales", b"new")]).await;
    assert_eq!(fixture.executor.file("/artifacts/sales").unwrap(), b"new");
    fixture.variables(&[fixture.stored("sales", b"newer")]).await;
    assert_eq!(fixture.executor.file("/artifacts/sales").unwrap(), b"newer");
    assert_eq!(
        fixture.executor.installed_content(),
        ["+ sales", "+ other", "- sales", "+ sales", "- other", "- sales", "+ sales"]
    );
}

#[tokio::test]
async fn an_artifact_of_a_url_is_fetched_when_its_reference_is_first_used() {
    let fixture = Fixture::new();
    let url = "https://example.com/feed.csv";
    fixture.web.serve(url, b"first\n");
    let feed = of_url("feed", url, None);
    assert!(fixture.variables(std::slice::from_ref(&feed)).await.is_empty());
    assert_eq!(fixture.web.request_count(), 0);
    let args = json!({"path": "scripts/run.py", "args": ["file://feed"]});
    let result = fixture.call(std::slice::from_ref(&feed), "skills_run_script", args).await;
    // The command of that very call has it, though it is not recorded yet.
    assert_eq!(fixture.executor.commands().pop().unwrap().env["ARTIFACT_FEED"], "/artifacts/feed");
    assert_eq!(fixture.executor.file("/artifacts/feed").unwrap(), b"first\n");
    // Another call that began before does not take it away.
    assert_eq!(fixture.variables(std::slice::from_ref(&feed)).await.len(), 1);
    let feed = recorded(&feed, &result);
    let again = fixture.call(std::slice::from_ref(&feed), "view", json!({"path": "file://feed"})).await;
    assert!(again.fetched.is_empty() && again.text().contains("first"), "{again:?}");
    // It has changed since.
    fixture.web.serve(url, b"second\n");
    let result = fixture.call(std::slice::from_ref(&feed), "view", json!({"path": "file://feed"})).await;
    assert_eq!(result.text(), "     1\tsecond\n");
    fixture.variables(std::slice::from_ref(&feed)).await;
    assert_eq!(fixture.executor.file("/artifacts/feed").unwrap(), b"second\n");
    // Somebody else recorded a third content.
    let third = fixture.store.insert_bytes(b"third\n", FileMode::Plain).unwrap();
    let content = ArtifactContent { digest: third.digest, size: third.size };
    fixture.variables(&[of_url("feed", url, Some(content))]).await;
    assert_eq!(fixture.executor.file("/artifacts/feed").unwrap(), b"third\n");
}

#[tokio::test]
async fn the_path_of_a_fetched_url_is_reported() {
    let fixture = Fixture::new();
    let url = "https://example.com/data.csv?x=1";
    fixture.web.serve(url, b"1,2\n");
    let result = fixture.call(&[], "view", json!({"path": url})).await;
    let name = format!("url-{}-data.csv?x=1", &Digest::of_bytes(b"1,2\n").to_hex()[..8]);
    assert_eq!(result.text(), format!("[`{url}` was fetched, and is at `/artifacts/{name}`]\n     1\t1,2\n"));
    assert!(result.fetched.is_empty(), "it is no artifact of the session");
    // It stays for commands, and takes no artifact's name.
    fixture.variables(&[]).await;
    assert!(fixture.executor.file(&format!("/artifacts/{name}")).is_some());
    let own = fixture.stored(&name, b"own");
    assert_eq!(fixture.variables(std::slice::from_ref(&own)).await.len(), 1);
    let text = fixture.call(std::slice::from_ref(&own), "view", json!({"path": url})).await.text();
    assert!(text.contains(&format!("`/artifacts/2-{name}`")), "{text}");
    assert_eq!(fixture.executor.file(&format!("/artifacts/{name}")).unwrap(), b"own");
    // The number of fetched files is bounded.
    for number in 0..60 {
        let url = format!("https://example.com/{number}");
        fixture.web.serve(&url, number.to_string().as_bytes());
        fixture.call(&[], "view", json!({"path": url})).await;
    }
    let changes = fixture.executor.installed_content();
    let (installed, removed) = changes.iter().partition::<Vec<_>, _>(|entry| entry.starts_with("+ "));
    assert_eq!(installed.len() - removed.len(), 50, "{changes:?}");
}

#[tokio::test]
async fn an_unavailable_artifact_blocks_no_command() {
    let fixture = Fixture::new();
    let artifacts = [fixture.stored("large", b"1"), fixture.stored("small", b"2")];
    let executor = fixture.executor.clone().with_command("ls", FakeCommand::Exits(exited(0, "done\n")));
    let full = SandboxError::new(SandboxErrorKind::NoSpace, "there is no room for it");
    executor.fail_installs("large", Some(full));
    let ls = async || fixture.call(&artifacts, "bash_tool", json!({"command": "ls"})).await.text();
    assert_eq!(ls().await, "[the artifact `large` is not in the sandbox: there is no room for it]\ndone\n");
    assert_eq!(fixture.executor.commands()[0].env.len(), 1);
    // The model is told once.
    assert_eq!(ls().await, "done\n");
    let result = fixture.call(&artifacts, "view", json!({"path": "file://large"})).await;
    assert_eq!(result.text(), "the input `path` could not be resolved: there is no room for it");
    executor.fail_installs("large", None);
    assert_eq!(ls().await, "done\n");
    assert_eq!(fixture.executor.commands().pop().unwrap().env.len(), 2);
    // A failure of the sandbox ends the call before it begins.
    let unavailable =
        SandboxError::new(SandboxErrorKind::Unavailable, "the sandbox could not be started: no engine");
    executor.fail_installs("new", Some(unavailable));
    let new = [fixture.stored("new", b"3")];
    let result = fixture.call(&new, "bash_tool", json!({"command": "ls"})).await;
    assert!(result.is_error && result.text().contains("no engine"), "{result:?}");
    assert_eq!(fixture.executor.commands().len(), 3);
}

#[tokio::test]
async fn a_sandbox_without_a_content_directory_is_an_error() {
    let fixture = Fixture::with(|executor| executor);
    let artifacts = [fixture.stored("sales", b"1")];
    let result = fixture.call(&artifacts, "view", json!({"path": "file://sales"})).await;
    assert!(result.is_error && result.text().contains("takes no artifacts"), "{result:?}");
    assert!(fixture.variables(&artifacts).await.is_empty());
    let skill =
        fixture.call(&artifacts, "view", json!({"path": "skill://csv-helper/assets/sample.csv"})).await;
    assert!(!skill.is_error, "{skill:?}");
    assert_eq!(fixture.tools.prompt(Some(fixture.executor.layout())).access, ArtifactAccess::ToolsOnly);
}

#[tokio::test(start_paused = true)]
async fn resolving_counts_against_the_calls_timeout() {
    let fixture = Fixture::new();
    let late = fixture
        .call_by(
            fixture.builder().with_timeout(Duration::from_secs(3)),
            &[],
            "view",
            json!({"path": "https://example.com/slow"}),
        )
        .await;
    assert_eq!(late.ending, ToolEnding::TimedOut, "{late:?}");
    assert!(late.text().starts_with("the input `path` could not be resolved: "), "{late:?}");
    let context = fixture.context(&[]);
    let cancel = context.cancel.clone();
    let toolbox = fixture.builder().build().unwrap();
    let call = ToolCall::new("a", "view", &json!({"path": "https://example.com/slow"}));
    let cancelling = async {
        tokio::task::yield_now().await;
        cancel.cancel();
    };
    let (result, ()) = future::join(toolbox.run_without_input(&call, context), cancelling).await;
    assert_eq!(result.ending, ToolEnding::Cancelled, "{result:?}");
    assert!(fixture.executor.installed_content().is_empty());
}

#[tokio::test]
async fn concurrent_calls_install_each_artifact_once() {
    let fixture = Fixture::new();
    let artifacts: Vec<Artifact> =
        (0..20).map(|number| fixture.stored(&format!("a{number}"), number.to_string().as_bytes())).collect();
    let calls: Vec<ToolCall> = (0..8)
        .map(|number| ToolCall::new(format!("c{number}"), "view", &json!({"path": "file://a7"})))
        .collect();
    let toolbox = fixture.builder().build().unwrap();
    for result in execute_tool_calls(&toolbox, &calls, fixture.context(&artifacts)).await {
        assert_eq!(result.text(), "     1\t7\n");
    }
    fixture.variables(&artifacts).await;
    assert_eq!(fixture.executor.installed_content().len(), 20);
}
