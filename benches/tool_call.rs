//! `cargo bench --bench tool_call`: what a warm tool call costs.
//!
//! Case `local-vs-spawn`: `/bin/true` through a sandbox of the kind `local` (request, guest, shim, program,
//! output, reply), against spawning and awaiting it with `tokio::process`, without any output. The two take
//! turns in one run on one task of a runtime of two threads, so that what the machine does else meets both.
//! Excluded: making the sandbox, and what a model's tool adds (checks, rendering).

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and spawns for comparison")]

use std::error::Error;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{CallOptions, Command, CommandEnd, ExecutionContext, Executor, Local, Sandbox};
use tokio::task::JoinSet;

const WARM_UP: usize = 200;
const ROUNDS: usize = 3000;
const PROGRAM: &str = "/bin/true";

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // In a task of the runtime, as a session's turn is, and not on the thread that waits for it.
    let mut tasks = JoinSet::new();
    tasks.spawn_on(measure(), runtime.handle());
    runtime.block_on(async { tasks.join_next().await.ok_or("the task is gone")?? })
}

async fn measure() -> Result<()> {
    let workspace = tempfile::tempdir()?;
    let local = Local::without_isolation([]);
    let context = ExecutionContext::new(workspace.path());
    let started = Instant::now();
    let sandbox = Sandbox::open(&local, &context, Arc::new(SystemClock), soon()).await?;
    let opened = started.elapsed();

    let (mut ours, mut other) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + ROUNDS {
        let pair = (call(&sandbox).await?, spawn().await?);
        if round >= WARM_UP {
            ours.push(pair.0);
            other.push(pair.1);
        }
    }
    sandbox.cleanup().await;

    ours.sort_unstable();
    other.sort_unstable();
    println!(
        "{PROGRAM}, {ROUNDS} times each, in turns; the sandbox was ready after {:.1} ms",
        millis(opened)
    );
    println!("{:24} {:>9} {:>9} {:>9}", "", "p50 ms", "p90 ms", "p99 ms");
    for (name, times) in [("sandbox (local)", &ours), ("tokio::process", &other)] {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| millis(percentile(times, percent)));
        println!("{name:24} {p50:9.3} {p90:9.3} {p99:9.3}");
    }
    for (case, percent) in [("local-vs-spawn-p99", 99), ("local-vs-spawn", 50)] {
        let (ours, other) = (millis(percentile(&ours, percent)), millis(percentile(&other, percent)));
        let ratio = ours / other;
        println!(
            "RESULT goal=tool_call case={case} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.2}"
        );
    }
    Ok(())
}

fn soon() -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(30))
}

async fn call(sandbox: &Sandbox) -> Result<Duration> {
    let started = Instant::now();
    let outcome = sandbox.run(Command::new([PROGRAM]), CallOptions::until(soon())).await?;
    let took = started.elapsed();
    if outcome.end != CommandEnd::Exited(0) {
        return Err(format!("the call ended otherwise: {:?}", outcome.end).into());
    }
    Ok(took)
}

async fn spawn() -> Result<Duration> {
    let started = Instant::now();
    let mut child = tokio::process::Command::new(PROGRAM)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let status = child.wait().await?;
    let took = started.elapsed();
    if !status.success() {
        return Err(format!("the program ended otherwise: {status}").into());
    }
    Ok(took)
}

/// The value below which this many percent of the sorted times lie.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
