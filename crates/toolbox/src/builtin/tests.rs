//! What the model reads of the built-in tools, over the fake executor.

use std::sync::Arc;

use conjure_base::Redactor;
use conjure_conversation::{CallContext, ResultContent, ToolCall, ToolResult, ToolRunner as _};
use conjure_sandbox::{
    CommandEnd, CommandOutcome, CommandOutput, DiskUsage, QuotaExcess, ReachedLimits, SandboxError,
    SandboxErrorKind,
};
use serde_json::{Value, json};

use crate::fake::{FakeCommand, FakeExecutor, ended, exited};
use crate::{OutputLimits, Toolbox};

async fn call_with(executor: &FakeExecutor, limits: OutputLimits, tool: &str, input: Value) -> ToolResult {
    let toolbox =
        Toolbox::builder().with_executor(Arc::new(executor.clone())).with_limits(limits).build().unwrap();
    let context = CallContext::default();
    toolbox.run_without_input(&ToolCall::new("toolu_1", tool, &input), context).await
}

async fn call(executor: &FakeExecutor, tool: &str, input: Value) -> ToolResult {
    call_with(executor, OutputLimits::default(), tool, input).await
}

/// Runs the calls and shows each with what the model reads of it.
async fn transcript(executor: &FakeExecutor, calls: impl IntoIterator<Item = (&str, Value)>) -> String {
    let mut text = String::new();
    for (tool, input) in calls {
        let result = call(executor, tool, input.clone()).await;
        let verdict = if result.is_error { "error" } else { "ok" };
        text.push_str(&format!(">>> {tool} {input}\n{verdict}: {}\n\n", result.text()));
    }
    text
}

fn sandbox() -> FakeExecutor {
    FakeExecutor::new()
        .with_file("notes.txt", "one\ntwo\nthree\n")
        .with_file("twice.txt", "a b a")
        .with_file("empty.txt", "")
        .with_file("data/sales.csv", "region,sum\n")
        .with_file("data/deep/er/x", "")
        .with_file("tool.bin", b"\x7fELF\xff\xfe".as_slice())
        .with_file("odd.txt", "form\x0cfeed \x1b[31mred\r\n")
}

#[tokio::test]
async fn a_secret_in_a_truncated_line_is_not_shown() {
    let limits = OutputLimits { view: 1024 + 60, ..OutputLimits::default() };
    // The cut, wherever it falls, falls into one of them.
    let executor = FakeExecutor::new().with_file("long.txt", "s3cr3t-value".repeat(200));
    let toolbox = Toolbox::builder()
        .with_executor(Arc::new(executor))
        .with_limits(limits)
        .with_redactor(Redactor::new([("KEY", "s3cr3t-value")]))
        .build()
        .unwrap();
    let context = CallContext::default();
    let result = toolbox
        .run_without_input(&ToolCall::new("toolu_1", "view", &json!({"path": "long.txt"})), context)
        .await;
    let text = result.text();
    assert!(text.contains("too long") && text.contains("[REDACTED:KEY]") && !text.contains("s3cr"), "{text}");
}

#[tokio::test]
async fn view_results() {
    let calls = [
        json!({"path": "notes.txt"}),
        json!({"path": "/workspace/notes.txt", "view_range": [2, 3]}),
        json!({"path": "notes.txt", "view_range": [2, -1]}),
        json!({"path": "notes.txt", "view_range": [2, 99]}),
        json!({"path": "notes.txt", "view_range": [7, 9]}),
        json!({"path": "notes.txt", "view_range": null}),
        json!({"path": "empty.txt"}),
        json!({"path": "odd.txt"}),
        json!({"path": "/workspace"}),
        json!({"path": "tool.bin"}),
        json!({"path": "absent.txt"}),
    ];
    insta::assert_snapshot!(transcript(&sandbox(), calls.map(|input| ("view", input))).await);
}

#[tokio::test]
async fn write_tool_results() {
    let calls = [
        ("create_file", json!({"path": "new.txt", "file_text": "hello\n", "description": "greet"})),
        ("create_file", json!({"path": "new.txt", "file_text": "", "unknown": 1})),
        ("str_replace", json!({"path": "notes.txt", "old_str": "two", "new_str": "2"})),
        ("str_replace", json!({"path": "notes.txt", "old_str": "one\n"})),
        ("str_replace", json!({"path": "notes.txt", "old_str": "three\n", "new_str": null})),
        ("str_replace", json!({"path": "notes.txt", "old_str": "absent", "new_str": ""})),
        ("str_replace", json!({"path": "twice.txt", "old_str": "a", "new_str": "c"})),
        ("str_replace", json!({"path": "tool.bin", "old_str": "ELF", "new_str": ""})),
        ("str_replace", json!({"path": "gone.txt", "old_str": "a", "new_str": "b"})),
    ];
    let executor = sandbox();
    insta::assert_snapshot!(transcript(&executor, calls).await);
    assert_eq!(executor.file("notes.txt").unwrap(), b"2\n");
    assert_eq!(executor.file("twice.txt").unwrap(), b"a b a");
}

fn reaching(outcome: CommandOutcome, memory: bool, processes: bool, made_room: bool) -> CommandOutcome {
    CommandOutcome { limits_hit: ReachedLimits { memory, processes, ended_leftovers: made_room }, ..outcome }
}

#[tokio::test]
async fn bash_results() {
    let excess = QuotaExcess {
        used: DiskUsage { bytes: 1_200_000_000, inodes: 12 },
        allowed: DiskUsage { bytes: 1 << 30, inodes: 200_000 },
    };
    let outcomes = [
        ("good", exited(0, "42\n")),
        ("silent", exited(0, "")),
        ("bad", exited(2, "no such file\n")),
        ("bad and silent", exited(1, "")),
        ("no newline", exited(3, "half a line")),
        ("killed", ended(CommandEnd::Signaled(11), "so far\n")),
        ("memory", ended(CommandEnd::OutOfMemory, "")),
        ("slow", ended(CommandEnd::TimedOut, "so far\n")),
        ("cancelled", ended(CommandEnd::Cancelled, "")),
        ("lost", ended(CommandEnd::Lost, "so far\n")),
        ("quota", ended(CommandEnd::QuotaExceeded(excess), "so far\n")),
        ("memory of a child", reaching(exited(1, "a worker died\n"), true, false, false)),
        ("memory twice", reaching(ended(CommandEnd::OutOfMemory, ""), true, false, false)),
        (
            "forks",
            reaching(exited(254, "bash: fork: Resource temporarily unavailable\n"), false, true, false),
        ),
        ("storm", reaching(ended(CommandEnd::TimedOut, ""), true, true, false)),
        ("room", reaching(exited(0, ""), false, false, true)),
        ("bytes", exited(0, b"a\0b\xffc\x1b[1m\n".as_slice())),
        (
            "apart",
            CommandOutcome {
                stderr: CommandOutput { head: b"warning".to_vec(), total: 7, ..CommandOutput::default() },
                ..exited(0, "out")
            },
        ),
    ];
    let mut executor = FakeExecutor::new();
    let mut calls = vec![("bash_tool", json!({"command": "unknown", "description": "why"}))];
    for (script, outcome) in outcomes {
        executor = executor.with_command(script, FakeCommand::Exits(outcome));
        calls.push(("bash_tool", json!({"command": script, "description": "why"})));
    }
    let failures = [
        ("no bash", SandboxErrorKind::NotFound, "`bash` is not there"),
        ("dead", SandboxErrorKind::Lost, "the sandbox died"),
        ("full", SandboxErrorKind::Exhausted, "no more processes"),
        ("refused", SandboxErrorKind::Unavailable, "the sandbox could not be made"),
    ];
    for (script, kind, message) in failures {
        executor = executor.with_command(script, FakeCommand::FailsToStart(SandboxError::new(kind, message)));
        calls.push(("bash_tool", json!({"command": script})));
    }
    insta::assert_snapshot!(transcript(&executor, calls).await);
    let ran = &executor.commands()[1];
    assert_eq!(
        (ran.argv.as_slice(), ran.merge_stderr),
        (&["bash", "-c", "good"].map(String::from)[..], true)
    );
}

#[tokio::test]
async fn invalid_input_results() {
    let long = "x".repeat(200_000);
    let calls = [
        ("view", json!([1])),
        ("view", json!(null)),
        ("view", json!({})),
        ("view", json!({"path": null})),
        ("view", json!({"path": 7})),
        ("view", json!({"path": ""})),
        ("view", json!({"path": "a\u{0}b"})),
        ("view", json!({"path": "notes.txt", "view_range": [0, 5]})),
        ("view", json!({"path": "notes.txt", "view_range": [5, 2]})),
        ("view", json!({"path": "notes.txt", "view_range": [5, -2]})),
        ("view", json!({"path": "notes.txt", "view_range": [1]})),
        ("view", json!({"path": "notes.txt", "view_range": [1.5, 2]})),
        ("view", json!({"path": "notes.txt", "view_range": "1-2"})),
        ("bash_tool", json!({"description": "why"})),
        ("bash_tool", json!({"command": " \n"})),
        ("create_file", json!({"path": "a"})),
        ("create_file", json!({"path": "a", "file_text": ["b"]})),
        ("str_replace", json!({"path": "a", "old_str": ""})),
        ("str_replace", json!({"path": "a", "old_str": "b", "new_str": 1})),
        ("rm_rf", json!({})),
    ];
    let mut text = transcript(&sandbox(), calls).await;
    for (tool, field) in [("view", "path"), ("bash_tool", "command")] {
        let result = call(&sandbox(), tool, json!({field: long})).await;
        text.push_str(&format!(">>> {tool} with a {field} of 200,000\nerror: {}\n\n", result.text()));
    }
    insta::assert_snapshot!(text);
}

#[tokio::test]
async fn output_beyond_the_limit_keeps_head_and_tail_and_counts_exactly() {
    let output = |spill: Option<(&str, u64)>| CommandOutcome {
        stdout: CommandOutput {
            head: b"head\n".to_vec(),
            tail: b"tail\n".to_vec(),
            total: 1_000_000,
            spill_path: spill.map(|(path, _)| path.to_owned()),
            spilled: spill.map_or(0, |(_, bytes)| bytes),
        },
        ..exited(0, "")
    };
    let executor = FakeExecutor::new()
        .with_command("kept", FakeCommand::Exits(output(Some(("/spill/1", 1_000_000)))))
        .with_command("part", FakeCommand::Exits(output(Some(("/spill/2", 64)))))
        .with_command("none", FakeCommand::Exits(output(None)));
    let calls = ["kept", "part", "none"].map(|script| ("bash_tool", json!({"command": script})));
    insta::assert_snapshot!(transcript(&executor, calls).await);
}

#[tokio::test]
async fn a_result_of_the_shell_never_exceeds_its_limit() {
    // Each byte becomes three, so what fitted the guest does not fit the model.
    let executor =
        FakeExecutor::new().with_command("binary", FakeCommand::Exits(exited(0, vec![0xff; 90 * 1024])));
    let result = call(&executor, "bash_tool", json!({"command": "binary"})).await;
    assert!(result.text().len() <= 100 * 1024, "{}", result.text().len());
    assert!(result.text().contains("of 92160 bytes of output are left out here"));
}

#[tokio::test]
async fn a_long_text_is_shown_in_complete_lines_with_a_hint() {
    let text: String = (1..=2000).map(|line| format!("line {line}\n")).collect();
    let executor = FakeExecutor::new().with_file("long.txt", text);
    let limits = OutputLimits { view: 2 * 1024, ..OutputLimits::default() };
    let mut next = 1;
    let mut seen = Vec::new();
    // Following the notices shows every line once.
    loop {
        let input = json!({"path": "long.txt", "view_range": [next, -1]});
        let result = call_with(&executor, limits, "view", input).await.text();
        assert!(result.len() <= limits.view, "{}", result.len());
        seen.extend(result.lines().filter(|line| !line.starts_with('[')).map(str::to_owned));
        match result.split_once("\"view_range\": [") {
            Some((_, rest)) => next = rest.split_once(',').unwrap().0.parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 2000);
    assert_eq!(seen[1999], "  2000\tline 2000");
}

#[tokio::test]
async fn a_line_that_does_not_fit_is_shown_from_its_start() {
    let executor = FakeExecutor::new().with_file("wide.txt", format!("{}\nend\n", "ä".repeat(100_000)));
    for view in [2 * 1024, 150_000, 210_000] {
        let limits = OutputLimits { view, ..OutputLimits::default() };
        let result = call_with(&executor, limits, "view", json!({"path": "wide.txt"})).await;
        assert!(!result.is_error && result.text().len() <= view, "{}", result.text().len());
        assert!(result.text().starts_with("     1\tää"));
        let reported = if view < 200_000 { "line 1 of 2 is too long" } else { "     2\tend" };
        assert!(result.text().contains(reported), "{view}");
    }
}

#[tokio::test]
async fn an_image_is_a_block_and_one_too_large_is_an_error() {
    let png = |size: usize| [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![0; size - 8]].concat();
    let most = 5 * 1024 * 1024 / 4 * 3;
    let executor = FakeExecutor::new()
        .with_file("small.png", png(100))
        .with_file("most.png", png(most))
        .with_file("large.png", png(most + 1));
    for (path, base64) in [("small.png", 136), ("most.png", 5 * 1024 * 1024)] {
        let result = call(&executor, "view", json!({"path": path})).await;
        assert!(!result.is_error);
        let [ResultContent::Image { media_type, data }] = result.content.as_slice() else {
            panic!("{path} is no image: {}", result.text());
        };
        assert_eq!((media_type.as_str(), data.len()), ("image/png", base64));
    }
    insta::assert_snapshot!(transcript(&executor, [("view", json!({"path": "large.png"}))]).await);
}
