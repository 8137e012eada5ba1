//! `cargo bench --bench recovery`: from a sandbox's death to the next good call.
//!
//! Case `jail`: a session's supervised jail is killed from outside, by SIGKILL, between two calls, and `/bin/true` is run at
//! once, and again when that call failed with the jail, until it ran; against the goal, 20 ms. In that time the death is noticed, the
//! workspace is given back, its supervisor waits (at most 2 ms, by chance), and another jail is made for the
//! same workspace and runs the program. For comparison, in turns: the same program in a jail that lives. Case `container`: the
//! same with a container, whose first process is killed; without a pool, so that the start of a container is in it, against the
//! goal for one of the pool. Case `container-pool`: the same, in a session's own workspace with a file, from a pool of one warm sandbox that is
//! ready when the container is killed. Excluded: the looking for the process to kill, and the creation of warm sandboxes.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

#[path = "support/containers.rs"]
mod containers;
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/engine.rs"]
mod engine;
#[path = "support/harness.rs"]
mod harness;
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/image.rs"]
mod image;

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use conjure_actors::executors::{
    ConnectorSource, ExecutorOptions, ExecutorSource, PriorSandbox, SupervisedExecutor,
};
use conjure_actors::supervision::{Backoff, ChildId, Intensity, Root, Strategy, SupervisorSpec};
use conjure_base::{Clock, Deadline, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Connector, DataDir, Docker, ExecutionContext, Executor, Jail, Layout,
    SandboxError, WarmSandbox, WarmSpec,
};
use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process};

use crate::containers::{Containers, LABEL, labelled};
use crate::engine::{client, docker};
use crate::harness::Result;

/// How often, for a jail and for a container, and how often before that.
const ROUNDS: [usize; 2] = [200, 40];
const WARM_UP: [usize; 2] = [10, 3];
const PROGRAM: &str = "/bin/true";

/// What stands in the table of goals, in milliseconds.
const GOAL: f64 = 20.0;

fn main() -> Result<()> {
    // Before the runtime, and for longer than it.
    let containers = Containers::find("container")?.map(Arc::new);
    let in_task = containers.clone();
    harness::run(async move {
        println!("{:24} {:>9} {:>9} {:>9}", "", "p50 ms", "p90 ms", "p99 ms");
        let dir = tempfile::tempdir()?;
        let jail = Jail::new([]).with_data(DataDir::open(dir.path())?);
        let workspace = tempfile::tempdir()?;
        let context = ExecutionContext::new(workspace.path());
        let made = |connector| ConnectorSource::new(connector, context.clone());
        measure(&Victim::Jail, "jail", Arc::new(made(Arc::new(jail))?)).await?;
        let Some(containers) = in_task else { return Ok(()) };
        let connector = Arc::new(containers.connector());
        let victim = Victim::Container(containers);
        measure(&victim, "container", Arc::new(made(connector.clone())?)).await?;
        pooled(&victim, &connector).await
    })
}

/// What is killed.
enum Victim {
    Jail,
    Container(Arc<Containers>),
}

impl Victim {
    /// Its first process, which takes all others along.
    async fn first_process(&self) -> Result<Pid> {
        match self {
            Self::Jail => guest(),
            Self::Container(containers) => first_process(containers).await,
        }
    }
}

/// From a pool of one.
async fn pooled(victim: &Victim, connector: &Docker) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let pool = DataDir::open(&dir.path().join("pool"))?;
    let tenant = DataDir::open(&dir.path().join("tenant"))?;
    let workspace = tenant.workspace()?;
    fs::write(workspace.path().join("file"), "kept")?;
    let context = ExecutionContext::new(workspace.path());
    let connector: Arc<dyn Connector> = Arc::new(connector.clone().with_data(pool.clone()));
    let made = ConnectorSource::new(Arc::clone(&connector), context.clone())?;
    let warm = Mutex::new(None);
    let pooled = Pooled { connector, pool, tenant, context, made, warm };
    measure(victim, "container-pool", Arc::new(pooled)).await
}

/// One warm sandbox that is ready, and the next one when the sandbox before is warm.
#[derive(Debug)]
struct Pooled {
    connector: Arc<dyn Connector>,
    pool: DataDir,
    tenant: DataDir,
    context: ExecutionContext,
    made: ConnectorSource,
    warm: Mutex<Option<WarmSandbox>>,
}

impl Measured for Pooled {
    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let spec = WarmSpec::from_context(&self.context);
            let clock = Arc::new(SystemClock);
            let warm = WarmSandbox::open(&*self.connector, &self.pool, spec, clock, soon()).await?;
            *self.warm.lock().map_err(|error| error.to_string())? = Some(warm);
            Ok(())
        })
    }
}

impl Measured for ConnectorSource {}

/// A source of sandboxes, and what it does before one is killed.
trait Measured: ExecutorSource {
    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl ExecutorSource for Pooled {
    fn layout(&self) -> &Layout {
        self.made.layout()
    }

    fn create(
        &self,
        deadline: Deadline,
    ) -> BoxFuture<'_, std::result::Result<Box<dyn Executor>, SandboxError>> {
        Box::pin(async move {
            let warm = self.warm.lock().ok().and_then(|mut warm| warm.take());
            match warm {
                Some(warm) => Ok(Box::new(warm.claim(&self.context, &self.tenant, deadline).await?) as _),
                None => self.made.create(deadline).await,
            }
        })
    }
}

async fn measure(victim: &Victim, case: &str, source: Arc<impl Measured + 'static>) -> Result<()> {
    let place = usize::from(matches!(victim, Victim::Container(_)));
    let (rounds, warm_up) = (ROUNDS[place], WARM_UP[place]);
    let mut options = ExecutorOptions::default();
    // It dies more often than any session's should.
    options.intensity = Intensity::new(u32::MAX, Duration::from_secs(1));
    options.backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(2), Duration::ZERO);
    let id = ChildId::new("executors")?;
    let (child, executor) =
        SupervisedExecutor::detached(id, Arc::clone(&source) as _, options, PriorSandbox::None)?;
    let root = SupervisorSpec::ordered(ChildId::new("root")?, Strategy::OneForOne).child(child)?;
    let root = Root::spawn(root.build().0, soon()).await?;
    let (mut recovered, mut warm, mut lost) = (Vec::new(), Vec::new(), 0_usize);
    for round in 0..warm_up + rounds {
        // The first call may make the sandbox.
        call(&executor).await?;
        let (took, _) = call(&executor).await?;
        let process = victim.first_process().await?;
        source.prepare().await?;
        let started = Instant::now();
        kill_process(process, Signal::KILL)?;
        let (_, losses) = call(&executor).await?;
        let recovery = started.elapsed();
        if round >= warm_up {
            warm.push(took);
            recovered.push(recovery);
            lost += losses;
        }
    }
    root.shutdown(soon()).await?;
    recovered.sort_unstable();
    warm.sort_unstable();
    println!(
        "{PROGRAM} after the death of its {case}, {rounds} times; {lost} calls came so soon that they failed with it"
    );
    for (what, times) in [("killed before", &recovered), ("warm", &warm)] {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| percentile(times, percent));
        println!("{:24} {p50:9.3} {p90:9.3} {p99:9.3}", format!("{case}, {what}"));
    }
    for (suffix, percent) in [("-p99", 99), ("", 50)] {
        let ours = percentile(&recovered, percent);
        let ratio = ours / GOAL;
        println!(
            "RESULT goal=recovery case={case}{suffix} ours={ours:.3} other={GOAL:.3} unit=ms ratio={ratio:.2}"
        );
    }
    Ok(())
}

/// The first process of the one container of this run that runs. The engine may not know yet that the one before does not.
async fn first_process(containers: &Containers) -> Result<Pid> {
    let engine = client(&docker()).await?;
    let mut options = labelled(&format!("{LABEL}={}", containers.mark));
    options.all = false;
    let until = soon();
    let running = loop {
        let running = engine.list_containers(Some(options.clone())).await?;
        if running.len() < 2 || SystemClock.remaining(until).is_zero() {
            break running;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let [container] = &running[..] else {
        return Err(format!("there are {} containers", running.len()).into());
    };
    let name = container.id.as_deref().ok_or("the container has no id")?;
    let state = engine.inspect_container(name, None).await?.state.and_then(|state| state.pid);
    let pid = i32::try_from(state.ok_or("the container has no process")?)?;
    Pid::from_raw(pid).ok_or_else(|| "no process has the number 0".into())
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
