//! `cargo bench --bench mcp --features full`: what a server's sandbox and our client of MCP cost, against the official client, which starts the same server as a plain
//! child. The server is `mcp-server-time`, a reference server in Python. `CONJURE_ORACLE_PYTHON_MCP` names the Python that has it and the official SDK.
//!
//! * `warm-call`: a call of the tool `get_current_time`, in turns. Ours runs in a jail.
//! * `start-50`: 50 servers at once, until the tools of all are known.
//! * `memory`: of each of these 50 servers with its sandbox (PSS).
//!
//! Excluded: models, approvals and the journal.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/harness.rs"]
mod harness;
#[path = "support/times.rs"]
mod times;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, Redactor, SystemClock};
use conjure_conversation::{CallContext, ToolCall, ToolRunner};
use conjure_mcp::{
    McpServer, McpServerName, McpServerSpec, McpServers, McpTransport, ServerPlace, StdioServer,
};
use conjure_sandbox::{ExecutionContext, Executor, Jail, Sandbox, SharedDir};
use conjure_toolbox::Toolbox;
use serde_json::json;

use crate::harness::Result;
use crate::times::{Times, header};

const WARM_UP: usize = 50;
const BATCH: usize = 50;
const BATCHES: usize = 20;
const SERVERS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(120);

/// The official client. It reads how many calls to make, or how many servers to start, a line each.
const CLIENT: &str = r#"
import asyncio, json, sys, time
from mcp import Client, StdioServerParameters

server = StdioServerParameters(command=sys.executable, args=["-m", "mcp_server_time"])

async def call(client):
    result = await client.call_tool("get_current_time", {"timezone": "UTC"})
    assert not result.is_error, result

async def start(ready, end):
    async with Client(server) as client:
        await client.list_tools()
        ready.release()
        await end.wait()

async def main():
    async with Client(server) as client:
        await call(client)
        print(json.dumps(0), flush=True)
        for line in sys.stdin:
            took = []
            for _ in range(int(line)):
                before = time.perf_counter()
                await call(client)
                took.append(time.perf_counter() - before)
            print(json.dumps(took), flush=True)

async def many(count):
    print(json.dumps(0), flush=True)
    sys.stdin.readline()
    ready, end = asyncio.Semaphore(0), asyncio.Event()
    before = time.perf_counter()
    tasks = [asyncio.create_task(start(ready, end)) for _ in range(count)]
    for _ in range(count):
        await ready.acquire()
    print(json.dumps(time.perf_counter() - before), flush=True)
    sys.stdin.readline()
    end.set()
    await asyncio.gather(*tasks)

asyncio.run(many(int(sys.argv[1])) if len(sys.argv) > 1 else main())
"#;

fn main() -> Result<()> {
    harness::run(measure())
}

async fn measure() -> Result<()> {
    let python = std::env::var_os("CONJURE_ORACLE_PYTHON_MCP").map(PathBuf::from).ok_or(
        "CONJURE_ORACLE_PYTHON_MCP must name a Python with the packages `mcp` and `mcp-server-time`",
    )?;
    warm_call(&python).await?;
    start(&python).await
}

async fn warm_call(python: &Path) -> Result<()> {
    let servers = JailedServers::start(python, 1).await?;
    let mut official = OfficialClient::start(python, None)?;
    for _ in 0..WARM_UP {
        servers.call().await?;
    }
    official.calls(WARM_UP)?;
    let (mut ours, mut other) = (Times::default(), Times::default());
    for _ in 0..BATCHES {
        for _ in 0..BATCH {
            ours.add(servers.call().await?);
        }
        for took in official.calls(BATCH)? {
            other.add(took);
        }
    }
    println!("a call of a server in Python, in turns");
    header();
    ours.print("jailed server, our client");
    other.print("plain child, official client");
    for (suffix, percent) in [("-p99", 99), ("", 50)] {
        result(&format!("warm-call{suffix}"), ours.percentile(percent), other.percentile(percent), "ms");
    }
    servers.close().await;
    Ok(())
}

async fn start(python: &Path) -> Result<()> {
    let own = std::process::id();
    let started = Instant::now();
    let servers = JailedServers::start(python, SERVERS).await?;
    let ours = started.elapsed().as_secs_f64();
    let our_memory = memory_of_descendants(own)? / SERVERS as f64;
    servers.close().await;
    drop(servers);

    let mut official = OfficialClient::start(python, Some(SERVERS))?;
    let other: f64 = official.ask("start")?;
    let other_memory = memory_of_descendants(official.child.id())? / SERVERS as f64;
    official.tell("end")?;
    println!(
        "\n{SERVERS} servers at once: {ours:.2} s in jails, {other:.2} s as plain children of the official client"
    );
    result(&format!("start-{SERVERS}"), ours, other, "s");
    println!("memory of each: {our_memory:.1} MiB with its jail, {other_memory:.1} MiB as a plain child");
    result("memory", our_memory, other_memory, "MiB");
    Ok(())
}

fn result(case: &str, ours: f64, other: f64, unit: &str) {
    let ratio = ours / other;
    println!("RESULT goal=mcp case={case} ours={ours:.3} other={other:.3} unit={unit} ratio={ratio:.3}");
}

/// Servers, each in a jail of its own, as tools of a session.
struct JailedServers {
    toolbox: Toolbox,
    sandboxes: Vec<Arc<Sandbox>>,
    /// The servers end before their sandboxes and workspaces.
    _workspaces: Vec<tempfile::TempDir>,
}

impl JailedServers {
    async fn start(python: &Path, count: usize) -> Result<Self> {
        let resolved = python.canonicalize()?;
        let dirs = [python, &resolved].map(|program| program.parent().and_then(Path::parent));
        // That of packages, and that of the interpreter itself.
        let dirs: BTreeSet<&Path> =
            dirs.into_iter().flatten().filter(|dir| !dir.starts_with("/usr")).collect();
        let (mut servers, mut sandboxes, mut workspaces) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let workspace = tempfile::tempdir()?;
            let mut context = ExecutionContext::new(workspace.path());
            context.read_only = dirs.iter().map(|dir| SharedDir::new(dir, dir)).collect();
            let deadline = SystemClock.deadline(PATIENCE);
            let sandbox = Sandbox::open(&Jail::new([]), &context, Arc::new(SystemClock), deadline).await?;
            let sandbox = Arc::new(sandbox);
            let transport = McpTransport::Stdio(StdioServer {
                command: python.to_str().ok_or("the path is not UTF-8")?.to_owned(),
                args: vec!["-m".to_owned(), "mcp_server_time".to_owned()],
                env: [].into(),
                place: ServerPlace::Sandbox,
                network: None,
            });
            let name = McpServerName::new(&format!("time{number}"))?;
            let spec = McpServerSpec {
                required: true,
                startup_timeout: PATIENCE,
                ..McpServerSpec::new(name, transport)
            };
            let executor = Arc::clone(&sandbox) as Arc<dyn Executor>;
            servers.push(McpServer::new(spec, Some(executor), None).into());
            sandboxes.push(sandbox);
            workspaces.push(workspace);
        }
        let servers = Arc::new(McpServers::new(servers, None, &Redactor::default()));
        servers.wait_required().await;
        if let Some(failure) = servers.failures().first() {
            return Err(failure.reason.clone().into());
        }
        let toolbox = Toolbox::builder().with_tool_source(servers as _).build()?;
        Ok(Self { toolbox, sandboxes, _workspaces: workspaces })
    }

    /// How long a call of the first server takes.
    async fn call(&self) -> Result<Duration> {
        let call = ToolCall::new("toolu_1", "mcp__time0__get_current_time", &json!({"timezone": "UTC"}));
        let started = Instant::now();
        let result = self.toolbox.run_without_input(&call, CallContext::default()).await;
        let took = started.elapsed();
        if result.is_error {
            return Err(result.text().into());
        }
        Ok(took)
    }

    async fn close(&self) {
        for sandbox in &self.sandboxes {
            sandbox.cleanup().await;
        }
    }
}

/// The official client in a process of its own.
struct OfficialClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl OfficialClient {
    fn start(python: &Path, servers: Option<usize>) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", CLIENT]).args(servers.map(|count| count.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut client = Self { child, input, output };
        let _ready: f64 = client.answer()?;
        Ok(client)
    }

    fn calls(&mut self, count: usize) -> Result<Vec<Duration>> {
        let took: Vec<f64> = self.ask(&count.to_string())?;
        Ok(took.into_iter().map(Duration::from_secs_f64).collect())
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, line: &str) -> Result<T> {
        self.tell(line)?;
        self.answer()
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.input, "{line}")?)
    }

    fn answer<T: serde::de::DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for OfficialClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The memory of all processes beneath a process, in MiB. A page that several share counts for each by its part (PSS).
fn memory_of_descendants(root: u32) -> Result<f64> {
    let mut kibibytes = 0.0;
    let mut parents = vec![root.to_string()];
    while let Some(parent) = parents.pop() {
        for task in std::fs::read_dir(format!("/proc/{parent}/task"))? {
            let children = std::fs::read_to_string(task?.path().join("children"))?;
            for child in children.split_whitespace() {
                kibibytes += std::fs::read_to_string(format!("/proc/{child}/smaps_rollup"))?
                    .lines()
                    .find_map(|line| {
                        line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok()
                    })
                    .unwrap_or_default();
                parents.push(child.to_owned());
            }
        }
    }
    Ok(kibibytes / 1024.0)
}
