//! `cargo bench --bench cancel`: from cancelling a call to its last process' end.
//!
//! Case `plain`: a shell and three programs that it waits for. Case `setsid`: three that left the session, one of them also
//! its parents. Both for the jail, as `local-plain` and `local-setsid` for the kind `local`, and as `docker-plain` and
//! `docker-setsid` for a container, in turns in one run; against the limit, 100 ms. It is the processes that are watched, by handles of the kernel's (pidfd), not what the sandbox
//! says; the handles are got before the call is cancelled. Printed besides: when the call returned. Excluded: making
//! the sandbox, and starting the processes.

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
#[path = "support/kinds.rs"]
mod kinds;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{CallOptions, Command, CommandEnd, ExecutionContext, Executor, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::task::JoinSet;

use crate::containers::Containers;
use crate::harness::Result;
use crate::kinds::{Kind, kinds};

const WARM_UP: usize = 10;
const ROUNDS: usize = 200;

/// What stands in the table of goals, in milliseconds.
const GOAL: f64 = 100.0;

/// Longer than this no cancelled process lives, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many processes of each tree are called `MARK 1000`.
const SLEEPERS: usize = 3;

const TREES: [(&str, &str); 2] = [
    ("plain", "(exec -a MARK sleep 1000) & (exec -a MARK sleep 1000) & (exec -a MARK sleep 1000) & wait"),
    (
        "setsid",
        "setsid bash -c 'exec -a MARK sleep 1000' & nohup setsid bash -c 'exec -a MARK sleep 1000' & \
         (setsid bash -c '(exec -a MARK sleep 1000) & exit') & sleep 2000",
    ),
];

fn main() -> Result<()> {
    // Before the runtime, and for longer than it.
    let containers = Containers::find("docker-plain, docker-setsid")?;
    harness::run(measure(kinds(containers.as_ref())))
}

/// One tree in one sandbox.
struct Case {
    name: String,
    tree: &'static str,
    fixture: Arc<Fixture>,
    gone: Vec<Duration>,
    returned: Vec<Duration>,
}

struct Fixture {
    sandbox: Sandbox,
    workspace: tempfile::TempDir,
}

async fn measure(kinds: Vec<Kind>) -> Result<()> {
    let mut cases = Vec::new();
    for (prefix, connector) in kinds {
        let workspace = tempfile::tempdir()?;
        let context = ExecutionContext::new(workspace.path());
        let sandbox = Sandbox::open(&*connector, &context, Arc::new(SystemClock), soon(30)).await?;
        let fixture = Arc::new(Fixture { sandbox, workspace });
        cases.extend(TREES.map(|(name, tree)| Case {
            name: format!("{prefix}{name}"),
            tree,
            fixture: Arc::clone(&fixture),
            gone: Vec::new(),
            returned: Vec::new(),
        }));
    }
    for round in 0..WARM_UP + ROUNDS {
        for case in &mut cases {
            let (gone, returned) = cancel(&case.fixture, case.tree).await?;
            if round >= WARM_UP {
                case.gone.push(gone);
                case.returned.push(returned);
            }
        }
    }
    println!("from the cancellation of a call, {ROUNDS} times each, in turns");
    println!("{:24} {:>12} {:>12} {:>12} {:>12}", "", "gone p50 ms", "gone p99 ms", "most ms", "call p50 ms");
    for case in &mut cases {
        case.gone.sort_unstable();
        case.returned.sort_unstable();
        let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(&case.gone, percent));
        let call = percentile(&case.returned, 50);
        println!("{:24} {p50:12.3} {p99:12.3} {most:12.3} {call:12.3}", case.name);
    }
    for case in &cases {
        for (suffix, percent) in [("-p99", 99), ("", 50)] {
            let ours = percentile(&case.gone, percent);
            let ratio = ours / GOAL;
            println!(
                "RESULT goal=cancel case={}{suffix} ours={ours:.3} other={GOAL:.3} unit=ms ratio={ratio:.3}",
                case.name
            );
        }
        case.fixture.sandbox.cleanup().await;
    }
    Ok(())
}

/// Until all processes of the tree are gone, and until the call has returned.
async fn cancel(fixture: &Arc<Fixture>, tree: &str) -> Result<(Duration, Duration)> {
    let mark = fixture.workspace.path().to_str().ok_or("the workspace has no name")?.to_owned();
    let options = CallOptions::until(soon(60));
    let token = options.cancel.clone();
    let script = tree.replace("MARK", &mark);
    let mut tasks = JoinSet::new();
    let in_task = Arc::clone(fixture);
    tasks.spawn(async move {
        let outcome = in_task.sandbox.run(Command::bash(&script), options).await;
        (outcome, Instant::now())
    });
    let handles = loop {
        let (handles, sleepers) = processes(&mark)?;
        if sleepers == SLEEPERS {
            break handles;
        }
        if let Some(ended) = tasks.try_join_next() {
            return Err(format!("the call ended early: {:?}", ended?.0).into());
        }
        SystemClock.sleep_until(SystemClock.deadline(Duration::from_millis(1))).await;
    };
    let watching = tokio::task::spawn_blocking(move || until_gone(&handles));
    let started = Instant::now();
    token.cancel();
    let gone = watching.await??;
    let (outcome, returned) = tasks.join_next().await.ok_or("the call is gone")??;
    match outcome?.end {
        CommandEnd::Cancelled => {}
        end => return Err(format!("the call ended otherwise: {end:?}").into()),
    }
    match processes(&mark)?.0.len() {
        0 => Ok((gone.duration_since(started), returned.duration_since(started))),
        left => Err(format!("{left} processes are left").into()),
    }
}

/// Handles of the processes that bear the mark in their arguments, and how many of them are the tree's leaves.
fn processes(mark: &str) -> Result<(Vec<OwnedFd>, usize)> {
    let mut handles = Vec::new();
    let mut sleepers = 0;
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if !arguments.contains(mark) {
            continue;
        }
        // It may have ended since.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        handles.push(handle);
        sleepers += usize::from(arguments.trim() == format!("{mark} 1000"));
    }
    Ok((handles, sleepers))
}

/// When the last of these processes had ended.
fn until_gone(handles: &[OwnedFd]) -> Result<Instant> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    for handle in handles {
        if poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&patience))? == 0 {
            return Err(format!("a process is there after {PATIENCE:?}").into());
        }
    }
    Ok(Instant::now())
}

fn soon(seconds: u64) -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(seconds))
}

/// The value in milliseconds below which this many percent of the sorted times lie.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default().as_secs_f64() * 1000.0
}
