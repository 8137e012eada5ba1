//! An executor of one's own (specification 17.4), in sessions: tools run wherever the embedder wants. This one keeps files in memory and
//! knows one command; a real one would speak to a virtual machine or a cluster.
//!
//! ```text
//! cargo run -p examples --example custom_executor
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure::journal::SessionKey;
use conjure::model::BlockKind;
use conjure::runtime::{Deadline, ExecutorSource};
use conjure::sandbox::{
    ArtifactDir, CallOptions, Command, CommandEnd, CommandOutcome, CommandOutput, ExecutionContext, Executor,
    Layout, LineRange, ReachedLimits, SandboxError, SandboxErrorKind, View, WriteResult,
};
use conjure::{
    Block, Clock as _, Config, Request, Response, Runtime, RuntimeOptions, SessionEventKind, SessionSpec,
    StopReason, SystemClock, TenantId, TurnEvent, Update, model_fn,
};
use futures_util::future::BoxFuture;
use serde_json::json;

#[derive(Debug, Clone)]
struct InMemory {
    layout: Layout,
    files: Arc<Mutex<BTreeMap<String, String>>>,
}

impl InMemory {
    fn with_files<T>(&self, act: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> T {
        act(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn not_found(path: &str) -> SandboxError {
    SandboxError::new(SandboxErrorKind::NotFound, format!("there is no file `{path}`"))
}

impl Executor for InMemory {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn run<'a>(
        &'a self,
        command: Command,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<CommandOutcome, SandboxError>> {
        Box::pin(async move {
            let (code, text) = match command.argv.last().map(String::as_str) {
                Some("ls") => {
                    (0, self.with_files(|files| files.keys().map(|name| format!("{name}\n")).collect()))
                }
                other => (127, format!("{}: this executor only knows `ls`\n", other.unwrap_or_default())),
            };
            let stdout = CommandOutput {
                total: text.len() as u64,
                head: text.into_bytes(),
                ..CommandOutput::default()
            };
            let stderr = CommandOutput::default();
            let (end, reached) = (CommandEnd::Exited(code), ReachedLimits::default());
            Ok(CommandOutcome { end, stdout, stderr, duration: Duration::ZERO, limits_hit: reached })
        })
    }

    fn view<'a>(
        &'a self,
        path: &'a str,
        _: Option<LineRange>,
        _: u64,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<View, SandboxError>> {
        Box::pin(async move {
            let text = self.with_files(|files| files.get(path).cloned()).ok_or_else(|| not_found(path))?;
            let lines = text.lines().count() as u64;
            let size = text.len() as u64;
            Ok(View::Text {
                text,
                first_line: lines.min(1),
                last_line: lines,
                total_lines: lines,
                size,
                truncated: false,
            })
        })
    }

    fn create_file<'a>(
        &'a self,
        path: &'a str,
        content: &'a [u8],
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            let text = String::from_utf8_lossy(content).into_owned();
            let existed = self.with_files(|files| files.insert(path.to_owned(), text)).is_some();
            Ok(WriteResult { size: content.len() as u64, existed })
        })
    }

    fn str_replace<'a>(
        &'a self,
        path: &'a str,
        old: &'a str,
        new: &'a str,
        _: CallOptions,
    ) -> BoxFuture<'a, Result<WriteResult, SandboxError>> {
        Box::pin(async move {
            self.with_files(|files| {
                let text = files.get_mut(path).ok_or_else(|| not_found(path))?;
                let fault =
                    |kind, what: &str| Err(SandboxError::new(kind, format!("the text occurs {what}")));
                match text.matches(old).count() {
                    0 => return fault(SandboxErrorKind::NoMatch, "nowhere"),
                    1 => *text = text.replacen(old, new, 1),
                    _ => return fault(SandboxErrorKind::NotUnique, "more than once"),
                }
                Ok(WriteResult { size: text.len() as u64, existed: true })
            })
        })
    }
}

/// Where the executors of a session come from: each session has files of its own, and keeps them until it is
/// put away: its next start makes a new source.
#[derive(Debug)]
struct Memory(InMemory);

impl ExecutorSource for Memory {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn create(&self, _: Deadline) -> BoxFuture<'_, Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async { Ok(Box::new(self.0.clone()) as Box<dyn Executor>) })
    }
}

/// Makes the sources, one for each session.
fn in_memory(_: &SessionKey, _: ExecutionContext) -> Result<Arc<dyn ExecutorSource>, SandboxError> {
    let layout =
        Layout { workspace: PathBuf::from("/memory"), read_only: Vec::new(), artifacts: ArtifactDir::None };
    Ok(Arc::new(Memory(InMemory { layout, files: Arc::default() })))
}

/// The model: it calls one tool after another, and then ends its turn.
fn answer(request: &Request) -> Response {
    let calls = [
        (
            "create_file",
            json!({"path": "note.txt", "file_text": "Hello, wrold.\n", "description": "Note it"}),
        ),
        (
            "str_replace",
            json!({"path": "note.txt", "old_str": "wrold", "new_str": "world", "description": "Mend it"}),
        ),
        ("view", json!({"path": "note.txt"})),
        ("bash_tool", json!({"command": "ls", "description": "List the files"})),
    ];
    match calls.get(request.call as usize - 1) {
        Some((name, input)) => {
            let call = Block::tool_use(format!("toolu_{}", request.call), *name, input);
            Response::new(vec![call], StopReason::ToolUse)
        }
        None => Response::text("Done."),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = RuntimeOptions::from(Config::default())
        .model("scripted", model_fn(|request| async move { Ok(answer(&request)) }))
        .executor("memory", in_memory);
    let runtime = Runtime::spawn(options).await?;
    let spec = SessionSpec::new(TenantId::new("acme")?).without_skills().sandbox("memory");
    let session = runtime.open(spec).await?;
    let mut turn = session.send("Write a note.").await?;
    while let Some(event) = turn.next().await {
        if let TurnEvent::Update(Update::Recorded(event)) = event? {
            match event.kind {
                SessionEventKind::AgentToolUse { name, .. } => write!(std::io::stdout(), "{name}: ")?,
                SessionEventKind::AgentToolResult { result, .. } => {
                    if let BlockKind::ToolResult { text, .. } = result.kind() {
                        writeln!(std::io::stdout(), "{}", text.trim_end())?;
                    }
                }
                _ => {}
            }
        }
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
