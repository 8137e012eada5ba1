//! `cargo bench --bench shell_call`: what a warm call of `bash` of the toolset costs, against `bash_tool`.
//!
//! `bash` runs in the session's shell, `bash_tool` in a bash of its own. Both go through the toolbox, with its checks and the
//! rendering of the result, in the same jail, in turns.
//!
//! * `shell-vs-bash_tool`: a command of the shell itself, `echo x`.
//! * `shell-program-vs-bash_tool`: a program, `/bin/true`.
//!
//! Excluded: making the sandbox, and starting the shell, which is printed apart.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/harness.rs"]
mod harness;
#[path = "support/times.rs"]
mod times;

use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_conversation::{AgentToolset, CallContext, ToolCall, ToolRunner};
use conjure_sandbox::{ExecutionContext, Executor, Jail, Sandbox};
use conjure_toolbox::Toolbox;
use serde_json::json;

use crate::harness::Result;
use crate::times::{Times, header, millis};

const WARM_UP: usize = 100;
const ROUNDS: usize = 2000;

fn main() -> Result<()> {
    harness::run(measure())
}

async fn measure() -> Result<()> {
    let workspace = tempfile::tempdir()?;
    let context = ExecutionContext::new(workspace.path());
    let deadline = SystemClock.deadline(Duration::from_secs(30));
    let sandbox = Sandbox::open(&Jail::new([]), &context, Arc::new(SystemClock), deadline).await?;
    let sandbox = Arc::new(sandbox);
    let builder = || Toolbox::builder().with_executor(Arc::clone(&sandbox) as Arc<dyn Executor>);
    let (builtin, toolset) = (builder().build()?, builder().with_toolset(AgentToolset::all()).build()?);
    let first = call(&toolset, "bash", "true").await?;
    let cases = [("shell-vs-bash_tool", "echo x"), ("shell-program-vs-bash_tool", "/bin/true")];
    println!(
        "a command in a jail, in turns; the first call, which starts the shell, took {:.3} ms",
        millis(first)
    );
    header();
    for (case, command) in cases {
        let (mut shell, mut own) = (Times::default(), Times::default());
        for round in 0..WARM_UP + ROUNDS {
            let in_shell = call(&toolset, "bash", command).await?;
            let in_own = call(&builtin, "bash_tool", command).await?;
            if round >= WARM_UP {
                shell.add(in_shell);
                own.add(in_own);
            }
        }
        shell.print(&format!("bash: {command}"));
        own.print(&format!("bash_tool: {command}"));
        for (suffix, percent) in [("-p99", 99), ("", 50)] {
            let (ours, other) = (shell.percentile(percent), own.percentile(percent));
            let ratio = ours / other;
            println!(
                "RESULT goal=shell_call case={case}{suffix} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.3}"
            );
        }
    }
    sandbox.cleanup().await;
    Ok(())
}

async fn call(toolbox: &Toolbox, tool: &str, command: &str) -> Result<Duration> {
    let call = ToolCall::new("toolu_1", tool, &json!({"command": command, "description": "nothing"}));
    let started = Instant::now();
    let result = toolbox.run_without_input(&call, CallContext::default()).await;
    let took = started.elapsed();
    if result.is_error {
        return Err(result.text().into());
    }
    Ok(took)
}
