//! The tools over a real sandbox of the kind that isolates nothing: real bash, real files, real processes.

#![expect(clippy::unwrap_used, reason = "what helps a test fails as a test does")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_conversation::{
    CallConcurrency, CallContext, CallTraits, ToolCall, ToolDefinition, ToolResult, ToolRunner,
    execute_tool_calls,
};
use conjure_sandbox::{ExecutionContext, Executor, Local, Sandbox, SharedDir};
use conjure_toolbox::{OutputLimits, ToolOutput, Toolbox, ToolboxBuilder, tool_fn};
use serde_json::{Value, json};
use test_support::{processes_with_argument, until};

/// A workspace, a skill beside it, and a sandbox for both.
struct Fixture {
    dir: tempfile::TempDir,
    sandbox: Arc<Sandbox>,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut ExecutionContext)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let skill = dir.path().join("skills/greet");
        let workspace = dir.path().join("workspace");
        fs::create_dir_all(&skill).unwrap();
        fs::create_dir(&workspace).unwrap();
        fs::write(skill.join("SKILL.md"), "# Greet\n").unwrap();
        let mut context = ExecutionContext::new(workspace);
        context.read_only.push(SharedDir::new(dir.path().join("skills"), "/mnt/skills"));
        change(&mut context);
        let local = Local::without_isolation([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
        let deadline = SystemClock.deadline(Duration::from_secs(300));
        let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), deadline).await.unwrap();
        Self { dir, sandbox: Arc::new(sandbox) }
    }

    fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    fn toolbox(&self) -> ToolboxBuilder {
        Toolbox::builder().with_executor(Arc::clone(&self.sandbox) as Arc<dyn Executor>)
    }

    async fn call(&self, tool: &str, input: Value) -> ToolResult {
        self.toolbox()
            .build()
            .unwrap()
            .run_without_input(&ToolCall::new("toolu_1", tool, &input), context())
            .await
    }

    async fn bash(&self, command: &str) -> ToolResult {
        self.call("bash_tool", json!({"command": command, "description": "a test"})).await
    }
}

fn context() -> CallContext {
    CallContext::default()
}

fn bash(id: &str, command: &str) -> ToolCall {
    ToolCall::new(id, "bash_tool", &json!({"command": command, "description": "a test"}))
}

#[tokio::test]
async fn bash_runs_in_the_workspace_and_reports_the_exit_code() {
    let fixture = Fixture::new().await;
    let good = fixture.bash("pwd; x=(a b); echo ${x[1]}").await;
    assert!(!good.is_error);
    assert_eq!(good.text(), format!("{}\nb\n", fs::canonicalize(fixture.workspace()).unwrap().display()));

    let bad = fixture.bash("echo out; echo err >&2; exit 7").await;
    assert!(bad.is_error);
    assert_eq!(bad.text(), "out\nerr\n[exit code 7]");

    assert_eq!(fixture.bash("true").await.text(), "[exit code 0, no output]");
    let killed = fixture.bash("echo so far; kill -SEGV $$").await;
    assert_eq!(killed.text(), "so far\n[killed by signal 11 (SIGSEGV); the output until then is above]");
    assert_eq!(fixture.bash(r"printf 'a\0b\xff\033[1m\n'").await.text(), "a␀b\u{FFFD}␛[1m\n");
}

#[tokio::test]
async fn one_answer_may_create_a_file_edit_it_and_run_it() {
    let fixture = Fixture::new().await;
    let script = "echo hello\n";
    let calls = [
        ToolCall::new(
            "1",
            "create_file",
            &json!({"path": "bin/run.sh", "file_text": script, "description": "x"}),
        ),
        bash("2", "bash bin/run.sh"),
        ToolCall::new(
            "3",
            "str_replace",
            &json!({"path": "bin/run.sh", "old_str": "hello", "new_str": "there"}),
        ),
        bash("4", "bash bin/run.sh"),
        ToolCall::new("5", "view", &json!({"path": "bin/run.sh"})),
        ToolCall::new("6", "view", &json!({"path": "."})),
        ToolCall::new("7", "str_replace", &json!({"path": "bin/run.sh", "old_str": "absent"})),
        ToolCall::new("8", "str_replace", &json!({"path": "bin/run.sh", "old_str": "e", "new_str": "i"})),
    ];
    let results = execute_tool_calls(&fixture.toolbox().build().unwrap(), &calls, context()).await;
    let texts: Vec<String> = results.iter().map(ToolResult::text).collect();
    assert_eq!(texts[0], "Created the file `bin/run.sh` with 11 bytes.");
    assert_eq!(texts[1], "hello\n");
    assert_eq!(texts[3], "there\n");
    assert_eq!(texts[4], "     1\techo there\n");
    assert!(texts[5].contains("bin/\nbin/run.sh (11 bytes)\n"), "{}", texts[5]);
    assert!(results[6].is_error && texts[6].contains("does not occur"), "{}", texts[6]);
    assert!(results[7].is_error && texts[7].contains("3 times"), "{}", texts[7]);
}

#[tokio::test]
async fn commands_of_one_response_run_concurrently() {
    let fixture = Fixture::new().await;
    fixture.bash("mkfifo there back").await;
    // Each waits for the other; one after the other, they would wait for ever.
    let calls = [
        bash("1", "read word < there; echo \"got $word\"; echo pong > back"),
        bash("2", "echo ping > there; read word < back; echo \"got $word\""),
    ];
    let results = execute_tool_calls(&fixture.toolbox().build().unwrap(), &calls, context()).await;
    assert_eq!(results.iter().map(ToolResult::text).collect::<Vec<_>>(), ["got ping\n", "got pong\n"]);
}

#[tokio::test]
async fn one_call_that_fails_times_out_or_panics_leaves_its_siblings_results() {
    let definition = ToolDefinition {
        name: "panics".to_owned(),
        description: "A tool.".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
    let toolbox = |fixture: &Fixture, timeout| {
        let panics = tool_fn(definition.clone(), traits, |_, _| async { panic!("a bug") as ToolOutput });
        fixture.toolbox().with_tool(panics).with_timeout(Duration::from_secs(timeout)).build().unwrap()
    };
    let calls = [
        bash("1", "echo one"),
        bash("2", "exit 1"),
        bash("3", "echo until then; sleep 1000"),
        ToolCall::new("4", "panics", &json!({})),
        ToolCall::new("5", "unknown", &json!({})),
        bash("6", "echo six"),
    ];
    let mut results = Vec::new();
    // A loaded machine may take longer for all of them than a short timeout lasts, and lose the sandbox over it.
    for timeout in [5, 50, 250] {
        let fixture = Fixture::new().await;
        results = execute_tool_calls(&toolbox(&fixture, timeout), &calls, context()).await;
        if !results[0].is_error && !results[5].is_error && results[2].text().starts_with("until then") {
            break;
        }
    }
    let ids: Vec<&str> = results.iter().map(|result| result.tool_use_id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5", "6"]);
    let errors: Vec<bool> = results.iter().map(|result| result.is_error).collect();
    assert_eq!(errors, [false, true, true, true, true, false], "{results:?}");
    assert_eq!((results[0].text(), results[5].text()), ("one\n".to_owned(), "six\n".to_owned()));
    assert!(results[2].text().starts_with("until then\n[timed out after "), "{}", results[2].text());
}

#[tokio::test]
async fn a_gigabyte_of_output_is_bounded_counted_and_kept_in_part() {
    let fixture = Fixture::new().await;
    let limits = OutputLimits { spill: 1024 * 1024, ..OutputLimits::default() };
    let toolbox =
        fixture.toolbox().with_limits(limits).with_timeout(Duration::from_secs(600)).build().unwrap();
    let command = "echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last";
    let result = toolbox.run_without_input(&bash("1", command), context()).await;
    let text = result.text();
    assert!(!result.is_error && text.len() <= 100 * 1024, "{}", text.len());
    assert!(text.starts_with("first\nxxx") && text.ends_with("xxx\nlast\n"));
    // `first`, the gigabyte, an empty line's end and `last`.
    assert!(
        text.contains(
            "of 1000000012 bytes of output are left out here; the first 1048576 bytes of it are in `"
        )
    );
    let notice = text.split_once("\n[").unwrap().1;
    let omitted: u64 = notice.split_once(' ').unwrap().0.parse().unwrap();
    let shown = text.len() - notice.split_once("]\n").unwrap().0.len() - "\n[".len() - "]\n".len();
    assert_eq!(omitted + shown as u64, 1_000_000_012);

    let spill = text.split_once("are in `").unwrap().1.split_once('`').unwrap().0;
    let size = fixture.bash(&format!("stat -c %s '{spill}'")).await;
    assert_eq!(size.text(), "1048576\n");
    let viewed = fixture.call("view", json!({"path": spill, "view_range": [1, 1]})).await;
    assert_eq!(viewed.text().lines().next(), Some("     1\tfirst"));
}

#[tokio::test]
async fn a_timeout_kills_the_process_tree() {
    let fixture = Fixture::new().await;
    let marker = format!("{}.25", 100_000 + std::process::id());
    let command = format!("setsid sleep {marker} & (setsid sleep {marker} &) ; echo started; sleep {marker}");
    let run = async |timeout| {
        let toolbox = fixture.toolbox().with_timeout(Duration::from_secs(timeout)).build().unwrap();
        toolbox.run_without_input(&bash("1", &command), context()).await
    };
    let mut result = run(3).await;
    // A loaded machine may take longer to start it than a short timeout lasts.
    if !result.text().starts_with("started") {
        result = run(50).await;
    }
    assert!(result.is_error && result.text().starts_with("started\n[timed out"), "{}", result.text());
    until("the tree has ended", || processes_with_argument(&marker) == 0).await;
}

#[tokio::test]
async fn cancelling_or_dropping_a_call_kills_the_process_tree() {
    let fixture = Fixture::new().await;
    let marker = format!("{}.75", 100_000 + std::process::id());
    let toolbox = fixture.toolbox().build().unwrap();
    let call = bash("1", &format!("setsid sleep {marker} & sleep {marker}"));

    let context = context();
    let cancel = context.cancel.clone();
    let (result, ()) = tokio::join!(toolbox.run_without_input(&call, context), async {
        until("the tree has started", || processes_with_argument(&marker) == 2).await;
        cancel.cancel();
    });
    assert!(result.is_error && result.text().contains("[cancelled after "), "{}", result.text());
    until("the tree has ended", || processes_with_argument(&marker) == 0).await;

    tokio::select! {
        result = toolbox.run_without_input(&call, self::context()) => panic!("it ended: {}", result.text()),
        () = until("the tree has started", || processes_with_argument(&marker) == 2) => {}
    }
    until("the tree has ended", || processes_with_argument(&marker) == 0).await;
}

#[tokio::test]
async fn devices_and_pipes_are_errors_and_do_not_block() {
    let fixture = Fixture::new().await;
    fixture.bash("mkfifo pipe; ln -s /dev/zero zero").await;
    for path in ["pipe", "zero", "/dev/zero", "/proc/self/mem"] {
        let result = fixture.call("view", json!({"path": path})).await;
        assert!(result.is_error && result.text().contains(path), "{}", result.text());
    }
}

#[tokio::test]
async fn skills_can_be_read_but_not_changed_and_nothing_outside_reached() {
    let fixture = Fixture::new().await;
    let skill = fs::canonicalize(fixture.dir.path()).unwrap().join("skills/greet/SKILL.md");
    let read = fixture.call("view", json!({"path": skill})).await;
    assert_eq!(read.text(), "     1\t# Greet\n");
    let outside = fixture.dir.path().join("outside.txt");
    for path in [skill.as_path(), &outside, Path::new("../outside.txt"), Path::new("/etc/conjure-test")] {
        let result = fixture.call("create_file", json!({"path": path, "file_text": "x"})).await;
        assert!(result.is_error, "{}", result.text());
    }
    let edited =
        fixture.call("str_replace", json!({"path": skill, "old_str": "Greet", "new_str": "x"})).await;
    assert!(edited.is_error, "{}", edited.text());
    assert_eq!(fs::read_to_string(&skill).unwrap(), "# Greet\n");
    assert!(!outside.exists());
}

#[tokio::test]
async fn a_sandbox_without_bash_is_an_error() {
    let fixture = Fixture::with(|context| {
        context.environment.insert("PATH".to_owned(), "/nonexistent".to_owned());
    })
    .await;
    let result = fixture.bash("echo hello").await;
    assert!(result.is_error && result.text().contains("needs `bash` in the sandbox"), "{}", result.text());
}

#[tokio::test]
async fn content_of_many_megabytes_is_written_and_edits_too_large_are_refused() {
    let fixture = Fixture::new().await;
    let long = "0123456789abcde\n".repeat(512 * 1024);
    let result = fixture.call("create_file", json!({"path": "long.txt", "file_text": long})).await;
    assert_eq!(result.text(), "Created the file `long.txt` with 8388608 bytes.");
    let viewed = fixture.call("view", json!({"path": "long.txt"})).await.text();
    assert!(viewed.len() <= 256 * 1024, "{}", viewed.len());
    assert!(viewed.contains("of 524288 are shown"), "{:.200}", viewed);

    let result =
        fixture.call("str_replace", json!({"path": "long.txt", "old_str": long, "new_str": ""})).await;
    assert!(result.is_error, "{}", result.text());
    assert_eq!(fs::metadata(fixture.workspace().join("long.txt")).unwrap().len(), 8_388_608);
    // The sandbox is none the worse for it.
    assert_eq!(fixture.bash("echo alive").await.text(), "alive\n");
}
