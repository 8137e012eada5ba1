//! The tools of `agent_toolset_20260401` over a real sandbox of the kind that isolates nothing: real shells, real files.

#![expect(clippy::unwrap_used, reason = "what helps a test fails as a test does")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use conjure_conversation::{
    AgentToolset, Authorization, CallContext, PermissionPolicy, ResultContent, SessionView, ToolCall,
    ToolEnding, ToolResult, ToolRunner, ToolsetTool, execute_tool_calls,
};
use conjure_sandbox::{ExecutionContext, Executor, Local, Sandbox};
use conjure_toolbox::{OutputLimits, Toolbox};
use serde_json::{Value, json};
use test_support::{processes_with_argument, until};
use tokio_util::sync::CancellationToken;

/// A workspace, a sandbox for it, and a toolbox with the toolset.
struct Fixture {
    dir: tempfile::TempDir,
    sandbox: Arc<Sandbox>,
    toolbox: Toolbox,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(AgentToolset::all(), OutputLimits::default()).await
    }

    async fn with(toolset: AgentToolset, limits: OutputLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let local = Local::without_isolation([("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())]);
        let deadline = SystemClock.deadline(Duration::from_secs(300));
        let context = ExecutionContext::new(dir.path());
        let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), deadline).await.unwrap();
        let sandbox = Arc::new(sandbox);
        let toolbox = Toolbox::builder()
            .with_executor(Arc::clone(&sandbox) as Arc<dyn Executor>)
            .with_timeout(Duration::from_secs(300))
            .with_toolset(toolset)
            .with_limits(limits)
            .build()
            .unwrap();
        Self { dir, sandbox, toolbox }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    async fn call(&self, tool: &str, input: Value) -> ToolResult {
        self.toolbox.run_without_input(&ToolCall::new("toolu_1", tool, &input), CallContext::default()).await
    }

    async fn bash(&self, command: &str) -> String {
        self.call("bash", json!({"command": command})).await.text()
    }

    /// The workspace as a shell names it.
    fn shown(&self) -> String {
        fs::canonicalize(self.dir.path()).unwrap().display().to_string()
    }
}

#[tokio::test]
async fn the_shell_keeps_its_state() {
    let fixture = Fixture::new().await;
    assert_eq!(
        fixture.bash("mkdir -p 'a b'; cd 'a b'; x=5; f() { echo \"f $x\"; }; set -o pipefail").await,
        "[exit code 0, no output]"
    );
    assert_eq!(
        fixture.bash("pwd; f; false | true; echo $?").await,
        format!("{}/a b\nf 5\n1\n", fixture.shown())
    );
    assert_eq!(fixture.bash("export Y=ü☃; bash -c 'echo $Y'").await, "ü☃\n");
    assert_eq!(fixture.bash("cat <<'END'\nsome\n\nlines\nEND").await, "some\n\nlines\n");
    assert_eq!(fixture.bash("echo out; echo err >&2; (exit 7)").await, "out\nerr\n[exit code 7]");
    assert_eq!(fixture.bash("cat; read -r line; echo $?").await, "1\n", "standard input is empty");
    assert!(fixture.bash("if then").await.contains("syntax error"));
    assert_eq!(fixture.bash("echo $x").await, "5\n", "the shell is still the same");
    // It has nothing of the driver's in its descriptors.
    assert_eq!(
        fixture.bash("bash -c 'echo /proc/self/fd/*' | tr ' ' '\\n' | grep -c '/9[0-9]$'").await,
        "0\n[exit code 1]"
    );
}

#[tokio::test]
async fn background_output_is_reported_with_the_next_command() {
    let fixture = Fixture::new().await;
    let started = fixture
        .bash("(until [ -e go ]; do sleep 0.01; done; seq 200000; echo done > finished) &\necho started")
        .await;
    assert_eq!(started, "started\n");
    fixture.put("go", "");
    // It writes more than any pipe holds, and is not held up.
    until("it has finished", || fixture.path("finished").exists()).await;
    let next = fixture.bash("wait; echo next").await;
    assert!(next.starts_with("[output of background jobs since the last command; "), "{next}");
    // What is still on its way when the command begins counts as the command's.
    let (_, own) = next.split_once("[output of this command:]\n").unwrap();
    assert!(own.ends_with("next\n"), "{next}");
    // A line may be split there, so line ends do not count.
    let all = next.replace("[output of this command:]", "").replace('\n', "");
    assert!(all.ends_with("199999200000next"), "{next}");
    assert_eq!(fixture.bash("sleep 1000 & kill %1; wait %1; echo $?").await.lines().last().unwrap(), "143");
}

#[tokio::test]
async fn after_a_timeout_the_next_shell_keeps_the_directory() {
    let fixture = Fixture::new().await;
    let marker = fixture.shown();
    let script = format!("x=1; bash -c 'sleep 1000; true' '{marker}' & echo here; sleep 1000");
    fixture.bash("mkdir sub; cd sub").await;
    let late = fixture.call("bash", json!({"command": script, "timeout_ms": 700})).await;
    assert_eq!(late.ending, ToolEnding::TimedOut);
    assert!(late.is_error && late.text().starts_with("here\n[timed out after "), "{}", late.text());
    let told = format!("the next command runs in a new shell in `{marker}/sub`");
    assert!(late.text().contains(&told), "{}", late.text());
    until("all of it has ended", || processes_with_argument(&marker) == 0).await;
    assert_eq!(fixture.bash("pwd; echo \"x=$x\"").await, format!("{marker}/sub\nx=\n"));
}

#[tokio::test]
async fn a_cancelled_call_stops_the_commands_with_a_notice() {
    let fixture = Fixture::new().await;
    let marker = fixture.shown();
    let call = ToolCall::new(
        "toolu_1",
        "bash",
        &json!({"command": format!("touch ready; bash -c 'sleep 1000; true' '{marker}'")}),
    );
    let cancel = CancellationToken::new();
    let context = CallContext { cancel: cancel.clone(), ..CallContext::default() };
    let cancelling = async {
        until("it runs", || fixture.path("ready").exists() && processes_with_argument(&marker) > 0).await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(fixture.toolbox.run_without_input(&call, context), cancelling);
    assert_eq!(result.ending, ToolEnding::Cancelled);
    assert!(result.text().contains("the next command runs in a new shell"), "{}", result.text());
    until("all of it has ended", || processes_with_argument(&marker) == 0).await;
    assert_eq!(fixture.bash("echo well").await, "well\n");
}

#[tokio::test]
async fn an_ended_shell_is_replaced_with_a_notice() {
    let fixture = Fixture::new().await;
    fixture.bash("mkdir sub; cd sub; x=1").await;
    let left = fixture.bash("echo before; exit 3").await;
    assert!(left.starts_with("before\n[exit code 3]\n[the shell ended with this command"), "{left}");
    assert_eq!(fixture.bash("echo \"x=$x\"; pwd").await, format!("x=\n{}/sub\n", fixture.shown()));
    let killed = fixture.bash("kill -9 $$").await;
    assert!(killed.contains("signal 9 killed it") && killed.contains("new shell"), "{killed}");
    assert_eq!(fixture.bash("set -eu; echo set").await, "set\n");
    assert!(fixture.bash("echo $nope").await.contains("`set -e`"));

    // It ends between two calls, by a background job.
    fixture.bash("x=2; (until [ -e go ]; do sleep 0.01; done; kill -9 $$; touch killed) &").await;
    fixture.put("sub/go", "");
    until("it is killed", || fixture.path("sub/killed").exists()).await;
    let next = fixture.bash("echo \"x=$x\"").await;
    if next.starts_with("[this ran in a new shell, in `") {
        assert!(next.ends_with("\nx=\n"), "{next}");
    } else {
        // Its end was told after this call had begun.
        assert!(next.contains("signal 9") && next.contains("new shell"), "{next}");
        assert_eq!(fixture.bash("echo \"x=$x\"").await, "x=\n");
    }
}

#[tokio::test]
async fn restart_starts_a_new_shell_in_the_working_directory() {
    let fixture = Fixture::new().await;
    let marker = fixture.shown();
    fixture.bash(&format!("mkdir sub; cd sub; x=1; bash -c 'sleep 1000; true' '{marker}' &")).await;
    let restarted = fixture.call("bash", json!({"restart": true})).await;
    assert!(!restarted.is_error && restarted.text().contains("a new one"), "{}", restarted.text());
    until("all of it has ended", || processes_with_argument(&marker) == 0).await;
    assert_eq!(fixture.bash("pwd; echo \"x=$x\"").await, format!("{marker}\nx=\n"));
    let both = fixture.call("bash", json!({"restart": true, "command": "echo again"})).await;
    assert_eq!(both.text(), "again\n");
}

#[tokio::test]
async fn calls_of_one_answer_run_in_their_order() {
    let fixture = Fixture::new().await;
    let calls: Vec<ToolCall> = (0..8)
        .map(|number| {
            let input =
                json!({"command": format!("n=$((n * 2 + {number})); sleep 0.0$((8 - {number})); echo $n")});
            ToolCall::new(format!("toolu_{number}"), "bash", &input)
        })
        .collect();
    let results = execute_tool_calls(&fixture.toolbox, &calls, CallContext::default()).await;
    let texts: Vec<String> = results.iter().map(ToolResult::text).collect();
    assert_eq!(texts, ["0\n", "1\n", "4\n", "11\n", "26\n", "57\n", "120\n", "247\n"]);
}

#[tokio::test]
async fn a_dropped_call_ends_the_shell() {
    let fixture = Fixture::new().await;
    let marker = fixture.shown();
    {
        let script = format!("touch ready; bash -c 'sleep 1000; true' '{marker}'");
        let running = fixture.bash(&script);
        let waiting =
            until("it runs", || fixture.path("ready").exists() && processes_with_argument(&marker) > 0);
        tokio::select! {
            _ = running => panic!("it sleeps"),
            () = waiting => {}
        }
    }
    until("all of it has ended", || processes_with_argument(&marker) == 0).await;
    assert_eq!(fixture.bash("echo well").await, "well\n");
}

#[tokio::test]
async fn long_output_is_truncated_and_a_lost_sandbox_is_reported() {
    let limits = OutputLimits { shell: 8 * 1024, ..OutputLimits::default() };
    let fixture = Fixture::with(AgentToolset::all(), limits).await;
    let long = fixture.bash("seq 100000").await;
    assert!(
        long.len() < 8 * 1024 && long.starts_with("1\n2\n") && long.ends_with("99999\n100000\n"),
        "{long}"
    );
    assert!(
        long.contains(" of 588895 bytes of output are left out here; it was not kept: send it to a file"),
        "{long}"
    );
    fixture.sandbox.cleanup().await;
    let lost = fixture.call("bash", json!({"command": "echo a"})).await;
    assert_eq!((lost.is_error, lost.ending), (true, ToolEnding::Lost), "{}", lost.text());
}

#[tokio::test]
async fn files_are_read_written_and_edited() {
    let fixture = Fixture::new().await;
    let text = |result: ToolResult| result.text();
    let write = json!({"file_path": "src/a.txt", "content": "one\ntwo\none\n"});
    assert_eq!(
        text(fixture.call("write", write.clone()).await),
        "Created the file `src/a.txt` with 12 bytes."
    );
    assert_eq!(
        text(fixture.call("write", write).await),
        "Replaced the file `src/a.txt`, which now has 12 bytes."
    );
    let read = |range: Value| fixture.call("read", json!({"file_path": "src/a.txt", "view_range": range}));
    assert_eq!(text(read(Value::Null).await), "     1\tone\n     2\ttwo\n     3\tone\n");
    assert_eq!(text(read(json!([2, -1])).await), "     2\ttwo\n     3\tone\n");
    let refused = fixture.call("read", json!({"file_path": "src/a.txt", "view_range": [2, 1]})).await;
    assert_eq!(refused.ending, ToolEnding::Rejected);

    let edit = |old: &str, new: &str, all: bool| {
        fixture.call(
            "edit",
            json!({"file_path": "src/a.txt", "old_string": old, "new_string": new, "replace_all": all}),
        )
    };
    let many = edit("one", "1", false).await;
    assert!(many.is_error && many.text().contains("set `replace_all`"), "{}", many.text());
    assert_eq!(
        text(edit("one", "1", true).await),
        "Replaced 2 occurrences of the text in the file `src/a.txt`, which now has 8 bytes."
    );
    assert_eq!(
        text(edit("two\n", "", false).await),
        "Replaced the text in the file `src/a.txt`, which now has 4 bytes."
    );
    assert_eq!(fs::read_to_string(fixture.path("src/a.txt")).unwrap(), "1\n1\n");
    for all in [false, true] {
        let none = edit("three", "3", all).await;
        assert!(
            none.is_error && none.text().contains("`old_string` must be copied exactly"),
            "{}",
            none.text()
        );
    }
    let absent = fixture.call("read", json!({"file_path": "src/b.txt"})).await;
    assert!(
        absent.is_error && absent.text().contains("hint: find its path with `glob`"),
        "{}",
        absent.text()
    );
    let outside = fixture.call("read", json!({"file_path": "/etc/passwd"})).await;
    assert!(outside.is_error, "{}", outside.text());
}

#[tokio::test]
async fn images_documents_and_notebooks_are_rendered() {
    let fixture = Fixture::new().await;
    fixture.put("a.png", b"\x89PNG\r\n\x1a\nrest");
    fixture.put("a.pdf", b"%PDF-1.7 rest");
    fixture.put("not.pdf", b"text");
    fixture.put("a.ipynb", json!({"cells": [{"cell_type": "code", "source": "1 + 1"}]}).to_string());
    fixture.put("broken.ipynb", "{");
    let read = |path: &str| fixture.call("read", json!({"file_path": path}));
    let image = read("a.png").await;
    assert!(
        matches!(image.content.as_slice(), [ResultContent::Image { media_type, .. }] if media_type == "image/png")
    );
    let document = read("a.pdf").await;
    let [ResultContent::Document { media_type, data }] = document.content.as_slice() else {
        panic!("it is no document: {}", document.text());
    };
    assert_eq!((media_type.as_str(), data.as_str()), ("application/pdf", "JVBERi0xLjcgcmVzdA=="));
    assert!(read("not.pdf").await.text().starts_with("`not.pdf` is not a PDF"));
    assert_eq!(read("a.ipynb").await.text(), "[notebook with 1 cells]\n\n[cell 1: code]\n1 + 1\n");
    assert_eq!(read("broken.ipynb").await.text(), "     1\t{\n");
}

#[tokio::test]
async fn files_are_found_by_name_and_by_content() {
    let fixture = Fixture::new().await;
    for (name, content) in [
        ("src/a.py", "import os\nx = 1\n"),
        ("src/deep/b.py", "y = 2\n# X marks\n"),
        ("README.md", "no code\n"),
        (".git/config.py", "x = 9\n"),
        ("data.bin", "x = \0 3\n"),
    ] {
        fixture.put(name, content);
    }
    let search = |tool: &'static str, pattern: &str, path: Value| {
        fixture.call(tool, json!({"pattern": pattern, "path": path}))
    };
    let mut found: Vec<String> =
        search("glob", "**/*.py", Value::Null).await.text().lines().map(str::to_owned).collect();
    found.sort();
    assert_eq!(found, ["src/a.py", "src/deep/b.py"]);
    assert_eq!(search("glob", "*.md", Value::Null).await.text(), "README.md\n");
    assert_eq!(search("glob", "*.py", json!("src")).await.text(), "src/a.py\n");
    assert_eq!(search("glob", "*.rs", Value::Null).await.text(), "[no file in `.` matches `*.rs`]\n");
    assert!(search("glob", "*", json!("none")).await.is_error);

    assert_eq!(
        search("grep", "^[xy] = ", Value::Null).await.text(),
        "src/a.py:2:x = 1\nsrc/deep/b.py:1:y = 2\n"
    );
    assert_eq!(search("grep", "(?i)x", json!("src/deep")).await.text(), "src/deep/b.py:2:# X marks\n");
    assert_eq!(search("grep", "os$", json!("src/a.py")).await.text(), "src/a.py:1:import os\n");
    assert_eq!(search("grep", "nothing here", Value::Null).await.text(), "[no line matches]\n");
    let refused = search("grep", "(", Value::Null).await;
    assert_eq!(refused.ending, ToolEnding::Rejected);
    // Nothing outside is searched, not by a link either.
    std::os::unix::fs::symlink("/etc", fixture.path("etc")).unwrap();
    assert_eq!(search("grep", "root", Value::Null).await.text(), "[no line matches]\n");
    for path in ["/etc", "etc", "../.."] {
        assert!(search("grep", "root", json!(path)).await.is_error, "{path}");
    }
}

#[tokio::test]
async fn many_files_and_matches_are_bounded() {
    let fixture = Fixture::new().await;
    for number in 0..1_200 {
        fixture.put(&format!("d{}/f{number}.txt", number % 40), format!("line of {number}\n"));
    }
    let all = fixture.call("glob", json!({"pattern": "**/*.txt"})).await.text();
    assert_eq!(all.lines().count(), 1_001);
    assert!(all.ends_with("[200 more files match; narrow the pattern]\n"), "{all}");
    let lines = fixture.call("grep", json!({"pattern": "line"})).await.text();
    assert_eq!(lines.lines().count(), 501);
    assert!(
        lines.ends_with("[only the first 500 lines are shown; narrow the pattern, or give a `path`]\n"),
        "{lines}"
    );
    assert_eq!(
        fixture.call("grep", json!({"pattern": "of 1199$"})).await.text(),
        "d39/f1199.txt:1:line of 1199\n"
    );
}

#[tokio::test]
async fn only_selected_tools_are_offered_and_some_need_approval() {
    let toolset = AgentToolset::none()
        .with(ToolsetTool::Bash, PermissionPolicy::AlwaysAsk)
        .with(ToolsetTool::Read, PermissionPolicy::AlwaysAllow);
    let fixture = Fixture::with(toolset, OutputLimits::default()).await;
    let names: Vec<String> = fixture.toolbox.definitions().iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["bash", "read"]);
    let unknown = fixture.call("bash_tool", json!({"command": "true"})).await;
    assert!(
        unknown.is_error && unknown.text().ends_with("the tools are: `bash`, `read`"),
        "{}",
        unknown.text()
    );
    let authorize = async |tool: &str, input: Value| {
        let call = ToolCall::new("toolu_1", tool, &input);
        fixture.toolbox.authorize(&call, &SessionView::default()).await
    };
    let asked = authorize("bash", json!({"command": "true"})).await;
    assert!(
        matches!(asked, Authorization::Ask { reason } if reason == "each call of `bash` is to be decided on")
    );
    assert!(matches!(authorize("read", json!({"file_path": "a"})).await, Authorization::Allow));
    // It only produces an error.
    assert!(matches!(authorize("bash", json!({})).await, Authorization::Allow));
}

#[tokio::test]
async fn invalid_inputs_are_explained() {
    let fixture = Fixture::new().await;
    for (tool, input, reason) in [
        ("bash", json!({}), "field `command` is missing"),
        ("bash", json!({"command": "true", "timeout_ms": 0}), "field `timeout_ms` is 0"),
        ("bash", json!({"command": "true", "timeout_ms": 600_001}), "the maximum is 600000"),
        ("bash", json!({"command": "true", "timeout_ms": -1}), "whole number that is not negative"),
        ("bash", json!({"command": "true", "restart": "yes"}), "field `restart` must be true or false"),
        ("read", json!({"path": "a"}), "field `file_path` is missing"),
        (
            "edit",
            json!({"file_path": "a", "old_string": "", "new_string": "b"}),
            "field `old_string` is empty",
        ),
        ("edit", json!({"file_path": "a", "old_string": "b", "new_string": "b"}), "nothing would change"),
        ("glob", json!({"pattern": "a{"}), "is not a glob pattern"),
        ("web_fetch", json!({"url": "example.com"}), "which is no URL"),
    ] {
        let result = fixture.call(tool, input).await;
        assert_eq!(result.ending, ToolEnding::Rejected);
        assert!(result.text().contains(reason), "{}", result.text());
    }
    let fetch = fixture.call("web_fetch", json!({"url": "https://example.com"})).await;
    assert!(fetch.is_error && fetch.text().contains("fetches no URLs"), "{}", fetch.text());
}
