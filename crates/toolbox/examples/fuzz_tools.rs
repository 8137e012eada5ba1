//! A fuzz campaign over tool calls; `examples/campaign` says how to run it.
//!
//! `inputs`: blocks of the model with damaged names and inputs, over the fake executor. `answers`: sound calls over an
//! executor that answers anything whatever. Each call gives one result under its id that is bounded, clean, without
//! secrets, and fit for the history; what ran is what the input says, and what was refused did nothing.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a campaign is run by hand, prints what it found and fails loudly"
)]

#[path = "../../../examples/campaign/mod.rs"]
mod campaign;

use std::future::ready;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use campaign::Random;
use conjure_base::Redactor;
use conjure_conversation::{
    Authorization, Block, CallConcurrency, CallContext, CallTraits, ResultContent, SessionView, ToolCall,
    ToolDefinition, ToolResult, ToolRunner as _,
};
use conjure_sandbox::{
    ArtifactDir, CallOptions, Command, CommandEnd, CommandOutcome, CommandOutput, DirectoryEntry, DiskUsage,
    EntryKind, Executor, Layout, LineRange, Listing, QuotaExcess, ReachedLimits, SandboxError,
    SandboxErrorKind, View, WriteResult,
};
use conjure_toolbox::fake::{FakeCommand, FakeExecutor, exited};
use conjure_toolbox::{OutputLimits, ToolOutput, Toolbox, tool_fn};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

const SECRET: &str = "s3cr3t-value";

/// Small, so that cases reach them.
const LIMITS: OutputLimits =
    OutputLimits { shell: 2500, view: 1500, text: 3000, image: 4000, spill: 99, input: 3000 };

/// What a result's text may have beyond its limit: notices.
const NOTICES: usize = 300;

const MOST_MEMORY: u64 = 32 << 20;

const CALLS: [(&str, &str); 16] = [
    ("view", r#"{"path":"notes.txt"}"#),
    ("view", r#"{"path":"notes.txt","view_range":[2,3]}"#),
    ("view", r#"{"path":"long.txt","view_range":[1,-1],"description":"why"}"#),
    ("view", r#"{"path":"/workspace","view_range":null}"#),
    ("view", r#"{"path":"image.png"}"#),
    ("bash_tool", r#"{"command":"echo","description":"say"}"#),
    ("bash_tool", r#"{"command":"loud"}"#),
    ("bash_tool", r#"{"command":"ls \u00e9\ud83e\udd80 | cat\n"}"#),
    ("create_file", r#"{"path":"new/a.txt","file_text":"hello\n","description":"greet"}"#),
    ("create_file", r#"{"path":"notes.txt","file_text":""}"#),
    ("str_replace", r#"{"path":"notes.txt","old_str":"two","new_str":"2"}"#),
    ("str_replace", r#"{"path":"notes.txt","old_str":"one\n"}"#),
    ("str_replace", r#"{"path":"tool.bin","old_str":"ELF","new_str":null}"#),
    ("host", r#"{"a":1.50,"b":[1e400,-0],"c":{"d":null}}"#),
    ("no_such_tool", "{}"),
    ("view", r#"{"INVALID_JSON":"{\"path\": "}"#),
];

const WORDS: [&str; 30] = [
    "null",
    "true",
    "-1",
    "1e400",
    "0.5",
    "\"\"",
    "[]",
    "{}",
    "[1,2]",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":",
    "\"path\":",
    "\"command\":",
    "\"view_range\":",
    "\"old_str\":",
    "\"file_text\":",
    "\"INVALID_JSON\":\"",
    "{\"$serde_json::private::RawValue\":\"[1]\"}",
    "{\"$serde_json::private::Number\":\"1\"}",
    "\\u0000",
    "\\ud800",
    "\\u001b[31m",
    "\\n",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "s3cr3t-value",
    "../../../etc/passwd",
    "notes.txt",
    ",",
];

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    campaign::run(
        MOST_MEMORY,
        &mut [
            ("inputs", &mut |random| runtime.block_on(inputs(random))),
            ("answers", &mut |random| runtime.block_on(answers(random))),
        ],
    );
}

fn toolbox(executor: Arc<dyn Executor>) -> Toolbox {
    let definition = ToolDefinition {
        name: "host".to_owned(),
        description: "Says what it was given.".to_owned(),
        input_schema: json!({"type": "object"}),
    };
    let traits = CallTraits { concurrency: CallConcurrency::Shared, idempotent: true };
    let host = tool_fn(definition, traits, |input: Value, _| {
        assert!(input.is_object(), "{input}");
        ready(ToolOutput::text(input.to_string()))
    });
    let redactor = Redactor::new([("KEY", SECRET)]);
    Toolbox::builder()
        .with_executor(executor)
        .with_tool(host)
        .with_limits(LIMITS)
        .with_redactor(redactor)
        .build()
        .unwrap()
}

async fn run(toolbox: &Toolbox, call: &ToolCall) -> ToolResult {
    let _ = toolbox.traits(call);
    assert_eq!(toolbox.authorize(call, &SessionView::default()).await, Authorization::Allow);
    let context = CallContext::default();
    let result = toolbox.run_without_input(call, context).await;
    check(call, &result);
    result
}

/// What holds of every result.
fn check(call: &ToolCall, result: &ToolResult) {
    assert_eq!(result.tool_use_id, call.id);
    let text = result.text();
    assert!(text.len() <= LIMITS.text + NOTICES, "{} bytes", text.len());
    assert!(!text.contains(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r')), "{text:?}");
    assert!(!text.contains(SECRET), "{text}");
    let has_image = result.content.iter().any(|part| matches!(part, ResultContent::Image { .. }));
    assert!(has_image || !text.trim().is_empty(), "an empty result");
    for part in &result.content {
        if let ResultContent::Image { media_type, data } = part {
            assert!(data.len() <= LIMITS.image && media_type.starts_with("image/"), "{media_type}");
        }
    }
    let block = Block::tool_result(result);
    assert!(Block::from_json(block.json()).unwrap().kind() == block.kind(), "{block:?}");
}

async fn inputs(random: &mut Random) -> &'static str {
    let (name, sample) = random.pick(&CALLS);
    let mut input = sample.as_bytes().to_vec();
    random.mutate(&mut input, 4, &WORDS);
    if random.below(200) == 0 {
        let size = random.below(5000);
        let at = input.iter().position(|byte| *byte == b'.').unwrap_or(0);
        input.splice(at..at, std::iter::repeat_n(b'x', size));
    }
    let (mut id, mut name) = ("toolu_1".as_bytes().to_vec(), name.as_bytes().to_vec());
    if random.below(20) == 0 {
        random.mutate(&mut id, 2, &WORDS);
        random.mutate(&mut name, 2, &WORDS);
    }
    let parts =
        [br#"{"type":"tool_use","id":""#, &id[..], br#"","name":""#, &name, br#"","input":"#, &input, b"}"];
    let json = String::from_utf8_lossy(&parts.concat()).into_owned();
    let Ok(block) = Block::from_json(json) else { return "no block" };
    let Some(call) = block.tool_call() else { return "another block" };

    let executor = FakeExecutor::new()
        .with_file("notes.txt", "one\ntwo\nthree\n")
        .with_file("long.txt", "a line that has a s3cr3t-value in it\n".repeat(80))
        .with_file("image.png", b"\x89PNG\x01".as_slice())
        .with_file("tool.bin", b"\x7fELF\xff".as_slice())
        .with_command("echo", FakeCommand::Exits(exited(0, "out s3cr3t-value\n")))
        .with_command("loud", FakeCommand::Exits(exited(1, b"\x1b[31m\xff s3cr3t-value".repeat(200))));
    let result = run(&toolbox(Arc::new(executor.clone())), call).await;

    // What ran is what the input says, read in another way.
    let input: Value = serde_json::from_str(call.input.get()).unwrap_or(Value::Null);
    let ran = executor.commands();
    match (call.name.as_str(), ran.as_slice()) {
        ("bash_tool", [command]) => assert_eq!(input["command"], *command.argv.last().unwrap()),
        ("bash_tool", []) => assert!(result.is_error),
        (_, ran) => assert!(ran.is_empty()),
    }
    let notes = executor.file("notes.txt").unwrap();
    if !matches!(call.name.as_str(), "create_file" | "str_replace") || result.is_error {
        assert_eq!(notes, b"one\ntwo\nthree\n", "who must not write wrote");
    }
    if call.name == "create_file" && !result.is_error {
        let written = executor.file(input["path"].as_str().unwrap()).unwrap();
        assert_eq!(written, input["file_text"].as_str().unwrap().as_bytes());
    }
    if result.is_error { "an error" } else { "a result" }
}

async fn answers(random: &mut Random) -> &'static str {
    let (name, sample) = random.pick(&CALLS);
    let input: Value = serde_json::from_str(sample).unwrap_or_default();
    let call = ToolCall::new("toolu_1", name, &input);
    let layout =
        Layout { workspace: PathBuf::from("/"), read_only: Vec::new(), artifacts: ArtifactDir::None };
    let executor = Liar { layout, random: Mutex::new(Random::of(random.next())) };
    let result = run(&toolbox(Arc::new(executor)), &call).await;
    if result.is_error { "an error" } else { "a result" }
}

/// An executor that answers anything.
#[derive(Debug)]
struct Liar {
    layout: Layout,
    random: Mutex<Random>,
}

impl Liar {
    fn any<T>(&self, make: impl FnOnce(&mut Random) -> T) -> Result<T, SandboxError> {
        let random = &mut self.random.lock().unwrap();
        if random.below(8) == 0 {
            let kind = random.pick(&[
                SandboxErrorKind::NotFound,
                SandboxErrorKind::TooLarge,
                SandboxErrorKind::Lost,
                SandboxErrorKind::TimedOut,
                SandboxErrorKind::Cancelled,
                SandboxErrorKind::Io,
            ]);
            return Err(SandboxError::new(kind, text(random)));
        }
        Ok(make(random))
    }
}

fn number(random: &mut Random) -> u64 {
    let small = random.below(50) as u64;
    random.pick(&[0, 1, 2, 100, u64::MAX, u64::MAX - 1, i64::MAX as u64, u32::MAX.into(), small, small])
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let size = if random.below(10) == 0 { 6000 } else { 60 };
    let mut bytes =
        random.pick(&["", "line\n", "é🦀", "s3cr3t-value", "\u{1b}[0m\r\n", "x"]).as_bytes().to_vec();
    bytes = bytes.repeat(random.below(size) / bytes.len().max(1));
    random.mutate(&mut bytes, 3, &["\n", "\u{85}", "\u{2028}", "s3cr3t-value", "🦀"]);
    bytes
}

fn text(random: &mut Random) -> String {
    String::from_utf8_lossy(&bytes(random)).into_owned()
}

fn output(random: &mut Random) -> CommandOutput {
    let (head, tail) = (bytes(random), bytes(random));
    let sum = (head.len() + tail.len()) as u64;
    let total = if random.below(3) == 0 { number(random) } else { sum + random.below(2) as u64 * 1000 };
    let spill_path = (random.below(2) == 0).then(|| text(random));
    CommandOutput { head, tail, total, spill_path, spilled: number(random) }
}

fn listing(random: &mut Random) -> Listing {
    let kinds = [EntryKind::File, EntryKind::Directory, EntryKind::Symlink, EntryKind::Other];
    let entries = (0..random.below(20)).map(|_| DirectoryEntry {
        path: text(random),
        kind: random.pick(&kinds),
        size: number(random),
        modified_ns: i64::MIN,
        mode: 0o644,
    });
    let entries = entries.collect();
    Listing { entries, truncated: random.below(2) == 0 }
}

impl Executor for Liar {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn run<'a>(&'a self, _: Command, _: CallOptions) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        let outcome = self.any(|random| CommandOutcome {
            end: random.pick(&[
                CommandEnd::Exited(0),
                CommandEnd::Exited(i32::MIN),
                CommandEnd::Signaled(i32::MAX),
                CommandEnd::Signaled(9),
                CommandEnd::OutOfMemory,
                CommandEnd::TimedOut,
                CommandEnd::Cancelled,
                CommandEnd::Lost,
                CommandEnd::QuotaExceeded(QuotaExcess {
                    used: DiskUsage::default(),
                    allowed: DiskUsage::default(),
                }),
            ]),
            stdout: output(random),
            stderr: if random.below(2) == 0 { output(random) } else { CommandOutput::default() },
            duration: random.pick(&[Duration::ZERO, Duration::MAX, Duration::from_nanos(1)]),
            limits_hit: ReachedLimits {
                memory: random.below(2) == 0,
                processes: random.below(2) == 0,
                ended_leftovers: random.below(2) == 0,
            },
        });
        ready(outcome).boxed()
    }

    fn view<'a>(
        &'a self,
        _: &'a str,
        _: Option<LineRange>,
        _: u64,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        let view = self.any(|random| match random.below(6) {
            0 => View::Binary { size: number(random) },
            1 => View::Directory(listing(random)),
            2 => {
                let media_type = random.pick(&["image/png", "image/svg+xml", "\u{1b}", ""]).to_owned();
                View::Image { media_type, bytes: bytes(random) }
            }
            _ => View::Text {
                text: text(random),
                first_line: number(random),
                last_line: number(random),
                total_lines: number(random),
                size: number(random),
                truncated: random.below(2) == 0,
            },
        });
        ready(view).boxed()
    }

    fn create_file<'a>(
        &'a self,
        _: &'a str,
        _: &'a [u8],
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        let written = self.any(|random| WriteResult { size: number(random), existed: random.below(2) == 0 });
        ready(written).boxed()
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        _: &'a str,
        _: &'a str,
        options: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        self.create_file(path, b"", options)
    }
}
