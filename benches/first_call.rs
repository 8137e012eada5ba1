//! `cargo bench --bench first_call`: what the first tool call of a session costs.
//!
//! Case `jail-cold`: from asking for a jail, for a workspace that is there, to the end of `/bin/true` in it; against the
//! goal, 10 ms, and, for comparison, `bwrap --unshare-all /bin/true` where bubblewrap is installed. Case
//! `jail-cold-four`: four jails asked for at once, until the last of them has run its program, for each of them. They
//! take turns in one run. Excluded: the connector, made once for a process, and the end of the sandbox.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and spawns for comparison")]

use std::error::Error;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Connector, DataFolder, ExecutionContext, Executor, Jail, Local, Sandbox,
};
use tokio::task::JoinSet;

const WARM_UP: usize = 20;
const ROUNDS: usize = 300;
const PROGRAM: &str = "/bin/true";

/// What stands in the table of goals, in milliseconds.
const GOAL: f64 = 10.0;

/// A sandbox as tools make one with bubblewrap: nothing is shared, the system is read-only.
const BWRAP: [&str; 22] = [
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
    PROGRAM,
];

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
    let context = ExecutionContext::new(workspace.path());
    let started = Instant::now();
    let folder = tempfile::tempdir()?;
    let data = DataFolder::open(folder.path())?;
    let (jail, local) = (Jail::new([]).with_data(data), Local::without_isolation([]));
    println!("the connector was made in {:.2} ms", millis(started.elapsed()));
    let has_bwrap = match bwrap().await {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED comparison: `bwrap` does not run here ({error}); install bubblewrap");
            false
        }
    };
    let [mut cold, mut opened, mut four, mut without, mut others] = [(); 5].map(|()| Vec::new());
    for round in 0..WARM_UP + ROUNDS {
        let (ready, done) = first_call(&jail, &context).await?;
        let at_once = four_at_once(&jail, &context).await?;
        let (_, local_done) = first_call(&local, &context).await?;
        let other = if has_bwrap { Some(bwrap().await?) } else { None };
        if round >= WARM_UP {
            opened.push(ready);
            cold.push(done);
            four.push(at_once);
            without.push(local_done);
            others.extend(other);
        }
    }
    for times in [&mut cold, &mut opened, &mut four, &mut without, &mut others] {
        times.sort_unstable();
    }
    println!("{PROGRAM} as the first call of a new sandbox, {ROUNDS} times each, in turns");
    println!("{:24} {:>9} {:>9} {:>9}", "", "p50 ms", "p90 ms", "p99 ms");
    let rows = [
        ("jail, ready", &opened),
        ("jail, first call", &cold),
        ("four jails at once", &four),
        ("local, first call", &without),
        ("bwrap", &others),
    ];
    for (name, times) in rows.into_iter().filter(|(_, times)| !times.is_empty()) {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| millis(percentile(times, percent)));
        println!("{name:24} {p50:9.3} {p90:9.3} {p99:9.3}");
    }
    if has_bwrap {
        result("jail-cold-vs-bwrap", &cold, millis(percentile(&others, 50)), 50);
    }
    result("jail-cold-four", &four, GOAL, 50);
    result("jail-cold-p99", &cold, GOAL, 99);
    result("jail-cold", &cold, GOAL, 50);
    Ok(())
}

fn result(case: &str, ours: &[Duration], other: f64, percent: usize) {
    let ours = millis(percentile(ours, percent));
    let ratio = ours / other;
    println!("RESULT goal=first_call case={case} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.2}");
}

/// From nothing to the sandbox, and to the end of the first call.
async fn first_call(connector: &dyn Connector, context: &ExecutionContext) -> Result<(Duration, Duration)> {
    let started = Instant::now();
    let sandbox = Sandbox::open(connector, context, Arc::new(SystemClock), soon()).await?;
    let ready = started.elapsed();
    let outcome = sandbox.run(Command::new([PROGRAM]), CallOptions::until(soon())).await?;
    let done = started.elapsed();
    sandbox.cleanup().await;
    match outcome.end {
        CommandEnd::Exited(0) => Ok((ready, done)),
        end => Err(format!("the call ended otherwise: {end:?}").into()),
    }
}

/// Four sandboxes, until the last of them has run its program.
async fn four_at_once(jail: &Jail, context: &ExecutionContext) -> Result<Duration> {
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (jail, context) = (jail.clone(), context.clone());
        tasks.spawn(async move { first_call(&jail, &context).await });
    }
    let mut last = Duration::ZERO;
    while let Some(done) = tasks.join_next().await {
        last = last.max(done??.1);
    }
    Ok(last)
}

async fn bwrap() -> Result<Duration> {
    let [program, arguments @ ..] = BWRAP;
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
    if status.success() { Ok(took) } else { Err(format!("it ended otherwise: {status}").into()) }
}

fn soon() -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(30))
}

/// The value below which this many percent of the sorted times lie.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
