//! `cargo bench --bench tool_call`: what a warm tool call costs.
//!
//! `/bin/true` through a sandbox (request, guest, shim, program, output, reply), against spawning and awaiting it with
//! `tokio::process`, without any output: case `local-vs-spawn` for the kind `local`, `jail-vs-spawn` for the jail. Case
//! `jail-vs-bwrap` is the jail against a fresh sandbox of bubblewrap for each call, which is what tools do that have no
//! resident guest; it is left out, with a word, where `bwrap` is not installed. All take turns in one run on one task of
//! a runtime of two threads, so that what the machine does else meets all of them. Excluded: making the sandbox, and
//! what a model's tool adds (checks, rendering).

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and spawns for comparison")]

use std::error::Error;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Connector, ExecutionContext, Executor, Jail, Local, Sandbox,
};
use tokio::task::JoinSet;

const WARM_UP: usize = 200;
const ROUNDS: usize = 3000;
const PROGRAM: &str = "/bin/true";

/// A sandbox as tools make one with bubblewrap: nothing is shared, the system is read-only.
const BWRAP: [&str; 21] = [
    "bwrap",
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
];

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // In a task of the runtime, as a session's turn is, and not on the thread that waits for it.
    let mut tasks = JoinSet::new();
    tasks.spawn_on(measure(), runtime.handle());
    runtime.block_on(async { tasks.join_next().await.ok_or("the task is gone")?? })
}

/// One way to run the program, and how long it took.
#[derive(Default)]
struct Times(Vec<Duration>);

async fn measure() -> Result<()> {
    let local = open(&Local::without_isolation([])).await?;
    let jail = open(&Jail::new([])).await?;
    let bwrap: Option<Vec<&str>> = match spawn(&[&BWRAP[..], &[PROGRAM]].concat()).await {
        Ok(_) => Some([&BWRAP[..], &[PROGRAM]].concat()),
        Err(error) => {
            println!("SKIPPED jail-vs-bwrap: `bwrap` does not run here ({error}); install bubblewrap");
            None
        }
    };
    let [mut in_local, mut in_jail, mut spawned, mut in_bwrap] = [(); 4].map(|()| Times::default());
    for round in 0..WARM_UP + ROUNDS {
        let keep = round >= WARM_UP;
        in_local.add(call(&local.sandbox).await?, keep);
        in_jail.add(call(&jail.sandbox).await?, keep);
        spawned.add(spawn(&[PROGRAM]).await?, keep);
        if let Some(bwrap) = &bwrap {
            in_bwrap.add(spawn(bwrap).await?, keep);
        }
    }
    local.sandbox.cleanup().await;
    jail.sandbox.cleanup().await;

    for times in [&mut in_local, &mut in_jail, &mut spawned, &mut in_bwrap] {
        times.0.sort_unstable();
    }
    println!(
        "{PROGRAM}, {ROUNDS} times each, in turns; the sandboxes were ready after {:.1} ms (local) and {:.1} ms (jail)",
        millis(local.opened),
        millis(jail.opened)
    );
    println!("{:24} {:>9} {:>9} {:>9}", "", "p50 ms", "p90 ms", "p99 ms");
    let rows = [
        ("sandbox (local)", &in_local),
        ("sandbox (jail)", &in_jail),
        ("tokio::process", &spawned),
        ("bwrap", &in_bwrap),
    ];
    for (name, times) in rows.into_iter().filter(|(_, times)| !times.0.is_empty()) {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| times.percentile(percent));
        println!("{name:24} {p50:9.3} {p90:9.3} {p99:9.3}");
    }
    let cases = [
        ("jail-vs-bwrap", &in_jail, &in_bwrap),
        ("jail-vs-spawn", &in_jail, &spawned),
        ("local-vs-spawn", &in_local, &spawned),
    ];
    for (case, ours, other) in cases.into_iter().filter(|(_, _, other)| !other.0.is_empty()) {
        for (suffix, percent) in [("-p99", 99), ("", 50)] {
            let (ours, other) = (ours.percentile(percent), other.percentile(percent));
            let ratio = ours / other;
            println!(
                "RESULT goal=tool_call case={case}{suffix} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.2}"
            );
        }
    }
    Ok(())
}

struct Opened {
    sandbox: Sandbox,
    opened: Duration,
    _workspace: tempfile::TempDir,
}

async fn open(connector: &dyn Connector) -> Result<Opened> {
    let workspace = tempfile::tempdir()?;
    let started = Instant::now();
    let context = ExecutionContext::new(workspace.path());
    let sandbox = Sandbox::open(connector, &context, Arc::new(SystemClock), soon()).await?;
    Ok(Opened { sandbox, opened: started.elapsed(), _workspace: workspace })
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

async fn spawn(argv: &[&str]) -> Result<Duration> {
    let (program, arguments) = argv.split_first().ok_or("no program")?;
    let started = Instant::now();
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
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

impl Times {
    fn add(&mut self, took: Duration, keep: bool) {
        if keep {
            self.0.push(took);
        }
    }

    /// The value in milliseconds below which this many percent of the sorted times lie.
    fn percentile(&self, percent: usize) -> f64 {
        let place = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        millis(self.0.get(place).copied().unwrap_or_default())
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
