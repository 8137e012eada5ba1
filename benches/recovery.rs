//! `cargo bench --bench recovery`: from a sandbox's death to the next good call.
//!
//! Case `jail`: a session's supervised jail is killed from outside, by SIGKILL, between two calls, and `/bin/true` is run at
//! once, and again when that call failed with the jail, until it ran; against the goal, 20 ms. In that time the death is noticed, what
//! is left of the jail is cleared away, its supervisor waits (at most 2 ms, by chance), and another jail is made for the
//! same workspace and runs the program. For comparison, in turns: the same program in a jail that lives. Excluded: the
//! looking for the process to kill.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_actors::executors::{ConnectorSource, ExecutorOptions, ExecutorsSpec, SupervisedExecutor};
use conjure_actors::supervision::{Backoff, ChildId, Intensity, Root, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{CallOptions, Command, CommandEnd, DataFolder, ExecutionContext, Executor, Jail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

const WARM_UP: usize = 10;
const ROUNDS: usize = 200;
const PROGRAM: &str = "/bin/true";

/// What stands in the table of goals, in milliseconds.
const GOAL: f64 = 20.0;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // In a task of the runtime, as a session's turn is, and not on the thread that waits for it.
    let mut tasks = JoinSet::new();
    tasks.spawn_on(measure(), runtime.handle());
    runtime.block_on(async { tasks.join_next().await.ok_or("the task is gone")?? })
}

async fn measure() -> Result<()> {
    let (workspace, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let jail = Jail::new([]).with_data(DataFolder::open(folder.path())?);
    let source = ConnectorSource::new(Arc::new(jail), ExecutionContext::new(workspace.path()))?;
    let mut options = ExecutorOptions::default();
    // It dies more often than any session's should.
    options.intensity = Intensity::new(u32::MAX, Duration::from_secs(1));
    options.backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(2), Duration::ZERO);
    let (child, executor) = ExecutorsSpec::new(Arc::new(source)).options(options).build()?;
    let root = SupervisorSpec::ordered(ChildId::new("root")?, Strategy::OneForOne).child(child)?;
    let root = Root::spawn(root.build().0, soon()).await?;
    let (mut recovered, mut warm, mut lost) = (Vec::new(), Vec::new(), 0_usize);
    for round in 0..WARM_UP + ROUNDS {
        let (took, _) = call(&executor).await?;
        let victim = guest()?;
        let started = Instant::now();
        kill_process(victim, Signal::KILL)?;
        let (_, losses) = call(&executor).await?;
        let recovery = started.elapsed();
        if round >= WARM_UP {
            warm.push(took);
            recovered.push(recovery);
            lost += losses;
        }
    }
    root.shutdown(soon()).await?;
    recovered.sort_unstable();
    warm.sort_unstable();
    println!(
        "{PROGRAM} after the death of its jail, {ROUNDS} times; {lost} calls came so soon that they failed with it"
    );
    println!("{:24} {:>9} {:>9} {:>9}", "", "p50 ms", "p90 ms", "p99 ms");
    for (name, times) in [("jail, killed before", &recovered), ("jail, warm", &warm)] {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| percentile(times, percent));
        println!("{name:24} {p50:9.3} {p90:9.3} {p99:9.3}");
    }
    for (case, percent) in [("jail-p99", 99), ("jail", 50)] {
        let ours = percentile(&recovered, percent);
        let ratio = ours / GOAL;
        println!("RESULT goal=recovery case={case} ours={ours:.3} other={GOAL:.3} unit=ms ratio={ratio:.2}");
    }
    Ok(())
}

/// Runs the program until it ran: how long the last attempt took, and how many were lost before.
async fn call(executor: &SupervisedExecutor) -> Result<(Duration, usize)> {
    let mut losses = 0;
    loop {
        let started = Instant::now();
        match executor.run(Command::new([PROGRAM]), CallOptions::until(soon())).await {
            Ok(outcome) if outcome.end == CommandEnd::Exited(0) => return Ok((started.elapsed(), losses)),
            Ok(outcome) => return Err(format!("the call ended otherwise: {:?}", outcome.end).into()),
            // A jail that is dying may still say that it has no processes.
            Err(error) if error.is_retryable() => losses += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The first process in the jail: the child of the one outside, which is the child of this one.
fn guest() -> Result<Pid> {
    let outside = child_of(i32::try_from(std::process::id())?)?;
    Pid::from_raw(child_of(outside)?).ok_or_else(|| "no process has the number 0".into())
}

/// The one child of a process.
fn child_of(parent: i32) -> Result<i32> {
    let is_child = |pid: i32| -> Option<bool> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything; the parent is the second field after it.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let is_alive = fields.next()? != "Z";
        Some(is_alive && fields.next()?.parse() == Ok(parent))
    };
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        children.extend(pid.filter(|pid| is_child(*pid) == Some(true)));
    }
    match children[..] {
        [pid] => Ok(pid),
        _ => Err(format!("the jail's process cannot be told below {parent}: {children:?}").into()),
    }
}

fn soon() -> Deadline {
    SystemClock.deadline(Duration::from_secs(30))
}

/// The value in milliseconds below which this many percent of the sorted times lie.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default().as_secs_f64() * 1000.0
}
