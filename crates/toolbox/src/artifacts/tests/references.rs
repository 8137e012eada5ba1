//! What the model reads when a call refers to artifacts.

use super::*;

#[tokio::test]
async fn a_reference_is_viewed_as_its_content() {
    let fixture = Fixture::new();
    let artifacts = [fixture.stored("sales 2024", b"one\ntwo\nthree\n"), fixture.stored("logo", PNG)];
    let view = async |path: &str| fixture.call(&artifacts, "view", json!({"path": path})).await;
    assert_eq!(view("file://sales%202024").await.text(), "     1\tone\n     2\ttwo\n     3\tthree\n");
    assert_eq!(view("FILE://sales 2024").await.text(), view("/artifacts/sales 2024").await.text());
    assert_eq!(view("skill://csv-helper/assets/sample.csv").await.text(), "     1\ta,b\n     2\t1,2\n");
    let image = view("file://logo").await;
    assert!(
        matches!(&image.content[..], [ResultContent::Image { media_type, .. }] if media_type == "image/png")
    );
    let range = json!({"path": "file://sales%202024", "view_range": [2, 2]});
    assert_eq!(fixture.call(&artifacts, "view", range).await.text(), "     2\ttwo\n");
    assert_eq!(fixture.executor.installed_content(), ["+ sales 2024", "+ logo"]);
}

#[tokio::test]
async fn an_unresolvable_reference_names_the_input_and_the_reason() {
    let fixture = Fixture::new();
    fixture.web.serve("https://example.com/page", b"x");
    let artifacts = [fixture.stored("sales", b"x")];
    let cases = [
        ("file://sale", "artifact `sale` not found; the session's artifacts are: `sales`"),
        ("file:///etc/passwd", "invalid artifact URI `file:///etc/passwd`"),
        ("skill://csv-helper/../../etc/passwd", "path traversal blocked"),
        ("skill://csv-helper/assets/none.csv", "the skill `csv-helper` has no file `assets/none.csv`"),
        ("skill://other/assets/none.csv", "skill `other` not found"),
        ("https://example.com/none", "fetching `https://example.com/none` failed: 404 Not Found"),
    ];
    for (path, reason) in cases {
        let result = fixture.call(&artifacts, "view", json!({"path": path})).await;
        let text = result.text();
        assert!(result.is_error && result.ending == ToolEnding::Returned, "{path}: {result:?}");
        assert!(
            text.starts_with("the input `path` could not be resolved: ") && text.contains(reason),
            "{text}"
        );
        assert!(!text.contains(fixture.dir.path().to_str().unwrap()), "{text}");
    }
    let args = json!({"path": "scripts/run.py", "args": ["file://sales", "--out", "file://nothing"]});
    let result = fixture.call(&artifacts, "skills_run_script", args).await;
    assert!(result.is_error && result.text().starts_with("the input `args[2]` could not be resolved: "));
    assert!(fixture.executor.commands().is_empty(), "nothing was run");
}

#[tokio::test]
async fn write_tools_accept_no_references() {
    let fixture = Fixture::new();
    let artifacts = [fixture.stored("sales", b"old")];
    for (tool, rest) in [
        ("create_file", json!({"file_text": "see https://example.com"})),
        ("str_replace", json!({"old_str": "old", "new_str": "new"})),
    ] {
        let mut input = rest;
        for path in ["file://sales", "skill://csv-helper/assets/sample.csv", "https://example.com/x"] {
            input["path"] = json!(path);
            let result = fixture.call(&artifacts, tool, input.clone()).await;
            assert!(result.is_error && result.text().contains("artifacts are read-only"), "{result:?}");
        }
        // A URL in a text is text.
        input["path"] = json!("notes.txt");
        let result = fixture.call(&artifacts, tool, input).await;
        assert_eq!(result.is_error, tool == "str_replace", "{result:?}");
    }
    assert_eq!(fixture.executor.file("notes.txt").unwrap(), b"see https://example.com");
    assert_eq!(fixture.web.request_count(), 0);
}

#[tokio::test]
async fn references_in_script_arguments_become_paths() {
    let fixture = Fixture::new();
    let artifacts = [fixture.stored("sales", b"1")];
    let args = ["file://sales", "--in=file://sales", "skill://csv-helper/assets/sample.csv", "x"];
    let result = fixture
        .call(
            &artifacts,
            "skills_run_script",
            json!({"path": "scripts/run.py", "args": args, "env": {"X": "file://sales"}}),
        )
        .await;
    let command = fixture.executor.commands().pop().unwrap_or_else(|| panic!("{result:?}"));
    assert_eq!(
        command.argv[1..],
        [
            "/mnt/skills/csv-helper/scripts/run.py",
            "/artifacts/sales",
            "--in=file://sales",
            "/mnt/skills/csv-helper/assets/sample.csv",
            "x"
        ]
    );
    assert_eq!(command.env["X"], "file://sales");
    assert_eq!(command.env["ARTIFACT_SALES"], "/artifacts/sales");
    // The script itself, by a reference to a file of its skill.
    let by_reference = json!({"path": "skill://csv-helper/scripts/run.py"});
    fixture.call(&artifacts, "skills_run_script", by_reference).await;
    assert_eq!(
        fixture.executor.commands().pop().unwrap().argv[1..],
        ["/mnt/skills/csv-helper/scripts/run.py"]
    );
    for (path, reason) in [
        ("file://sales", "only a file of a skill is run"),
        ("https://example.com/run.py", "only a file of a skill is run"),
        ("skill://other/scripts/run.py", "there is no skill `other`"),
        ("skill://csv-helper/../x.py", "path traversal"),
    ] {
        let result = fixture.call(&artifacts, "skills_run_script", json!({"path": path})).await;
        assert_eq!(result.ending, ToolEnding::Rejected, "{path}");
        assert!(result.text().contains(reason), "{}", result.text());
    }
}

#[tokio::test]
async fn skills_read_resolves_references() {
    let fixture = Fixture::new();
    fixture.web.serve("https://example.com/data.csv", b"x,y\n");
    let artifacts = [fixture.stored("sales", b"a,b\n"), fixture.stored("logo", PNG)];
    let read = async |path: &str| fixture.call(&artifacts, "skills_read", json!({"path": path})).await;
    assert_eq!(read("file://sales").await.text(), "a,b\n");
    assert_eq!(read("skill://csv-helper/assets/sample.csv").await.text(), "a,b\n1,2\n");
    assert_eq!(read("https://example.com/data.csv").await.text(), "x,y\n");
    assert!(matches!(&read("file://logo").await.content[..], [ResultContent::Image { .. }]));
    assert!(read("file://none").await.text().starts_with("the input `path` could not be resolved: "));
    let both = json!({"path": "skill://csv-helper/SKILL.md", "skill": "csv-helper"});
    assert!(fixture.call(&artifacts, "skills_read", both).await.text().contains("# Help"));
    // A skill that is not loaded is not read.
    let call = ToolCall::new("a", "skills_read", &json!({"path": "skill://csv-helper/SKILL.md"}));
    let result = fixture.builder().build().unwrap().run_without_input(&call, CallContext::default()).await;
    assert!(result.text().contains("no skill is loaded"), "{result:?}");
}

#[tokio::test]
async fn without_a_resolver_a_reference_is_a_path_like_any_other() {
    let fixture = Fixture::new();
    let builder = Toolbox::builder().with_executor(Arc::new(fixture.executor.clone()));
    let result = fixture
        .call_by(builder, &[fixture.stored("sales", b"1")], "view", json!({"path": "file://sales"}))
        .await;
    assert!(result.is_error && result.text().contains("is not there"), "{result:?}");
    assert!(fixture.executor.installed_content().is_empty());
}

/// A tool that reads files of the host, and returns their content and its note.
struct Cat;

impl Tool for Cat {
    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: "cat".to_owned(),
            description: "Reads files.".to_owned(),
            input_schema: json!({"type": "object"}),
        }
    }

    fn path_inputs(&self) -> &[&str] {
        &["file", "files"]
    }

    fn call(&self, input: Value, _: ToolContext) -> BoxFuture<'_, ToolOutput> {
        Box::pin(async move {
            let files = [&input["file"]].into_iter().chain(input["files"].as_array().into_iter().flatten());
            let texts = files.filter_map(Value::as_str).map(|path| fs::read_to_string(path).unwrap());
            ToolOutput::text(format!("{}{}", texts.collect::<String>(), input["note"].as_str().unwrap_or("")))
        })
    }
}

#[tokio::test]
async fn host_tools_get_files_for_declared_inputs() {
    let fixture = Fixture::new();
    let artifacts = [fixture.stored("one", b"1;"), fixture.stored("two", b"2;")];
    let call = async |input: Value| {
        fixture.call_by(fixture.builder().with_tool(Cat), &artifacts, "cat", input).await
    };
    let result = call(json!({
        "file": "file://one",
        "files": ["file://two", "skill://csv-helper/assets/sample.csv"],
        "note": "file://one",
    }));
    assert_eq!(result.await.text(), "1;2;a,b\n1,2\nfile://one");
    let result = call(json!({"file": "file://one", "files": ["file://two", "file://three"]})).await;
    assert!(result.is_error, "{result:?}");
    assert!(result.text().starts_with("the input `files[1]` could not be resolved: "), "{result:?}");
    assert!(fixture.executor.installed_content().is_empty());
}

#[tokio::test]
async fn the_approver_sees_references_and_rules_do_not_cover_fetches() {
    let fixture = Fixture::new();
    fixture.web.serve("https://example.com/a.csv", b"x");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let approver = approver_fn(move |call: ToolCall| {
        seen.lock().unwrap().push(call.input_value()["path"].as_str().unwrap().to_owned());
        async { Authorization::Ask { reason: "a person decides".to_owned() } }
    });
    let toolbox = fixture.builder().with_approver(approver).build().unwrap();
    let grant = |rule: &str| Grant { rule: rule.to_owned(), scope: GrantScope::Session };
    let is_allowed = async |rule: &str, path: &str| {
        let session_view = fixture.context(&[]).view.with_grants(vec![grant(rule)]);
        let call = ToolCall::new("a", "view", &json!({"path": path}));
        toolbox.authorize(&call, &session_view).await == Authorization::Allow
    };
    assert!(is_allowed("view", "file://sales").await);
    assert!(!is_allowed("view", "https://example.com/a.csv").await);
    assert!(!is_allowed("view", "HTTP://example.com/a.csv").await);
    assert!(!is_allowed("view(https://example.com/a.csv)", "https://example.com/a.csv").await);
    assert_eq!(asked.lock().unwrap()[..2], ["file://sales", "https://example.com/a.csv"]);
    assert_eq!(fixture.web.request_count(), 0, "nothing is fetched before it is allowed");
}

#[tokio::test]
async fn the_prompt_matches_the_tools_behaviour() {
    let fixture = Fixture::new();
    let artifacts = [fixture.stored("a b%?#'\"", b"1"), fixture.stored("ünï", b"2")];
    let prompt = fixture.tools.prompt(Some(fixture.executor.layout()));
    assert_eq!(prompt.access, ArtifactAccess::Directory("/artifacts".into()));
    assert_eq!(prompt.url_references, UrlReferences::Fetched);
    assert_eq!((prompt.media_type)("a/b.csv"), "text/csv");
    let resolver =
        ReferenceResolver::new(TenantId::new("acme").unwrap(), fixture.store.clone(), Arc::default());
    assert_eq!(ArtifactTools::new(resolver).prompt(None).url_references, UrlReferences::Refused);
    let options = PromptOptions { artifacts: Some(prompt), ..PromptOptions::default() };
    let toolbox = fixture.builder().build().unwrap();
    let composer = SkillComposer::for_session("", &fixture.skills, toolbox.definitions(), &options);
    let session_view = fixture.context(&artifacts).view;
    let reported =
        conjure_conversation::Composer::compose(&composer, &session_view).instructions.pop().unwrap();
    let uris: Vec<&str> =
        reported.split(" uri=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(uris.len(), 3, "{reported}");
    for uri in uris {
        // The prompt has them in the normal form, and they can be resolved.
        assert_eq!(ArtifactUri::parse(uri).unwrap().to_string(), uri);
        let result = fixture.call(&artifacts, "view", json!({"path": uri})).await;
        assert!(!result.is_error, "{uri}: {result:?}");
    }
    let asset = ArtifactUri::skill("csv-helper", SkillPath::new("assets/sample.csv").unwrap());
    assert!(reported.contains(&format!("<asset type=\"text/csv\" uri=\"{asset}\"/>")), "{reported}");
}

/// A reference does not change how a call is scheduled.
#[test]
fn views_of_references_run_concurrently() {
    let fixture = Fixture::new();
    let call = ToolCall::new("a", "view", &json!({"path": "https://example.com/a"}));
    let expected = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
    assert_eq!(fixture.builder().build().unwrap().traits(&call), expected);
}
