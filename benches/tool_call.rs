//! `cargo bench --bench tool_call`: what a warm tool call costs.
//!
//! A program that does nothing through a sandbox (request, guest, shim, program, output, reply), against spawning and
//! awaiting it with `tokio::process`, without any output.
//!
//! * `local-vs-spawn`, `jail-vs-spawn`: `/bin/true`, in the kind `local` and in the jail.
//! * `jail-vs-bwrap`: the jail against a fresh sandbox of bubblewrap for each call, which is what tools do that have no
//!   resident guest; left out, with a word, where `bwrap` is not installed.
//! * `docker-vs-spawn`: a container; on both sides the same file, a static program that lies in the workspace.
//! * `docker-image-vs-spawn`: `/bin/true` of the image, with its libraries, against that of the host. What it takes more than the
//!   case before is the engine's file system, which every program of an image goes through.
//! * `docker-vs-exec`: `/bin/true` of the image, against `docker exec` of it in the same container by the engine's interface.
//! * `docker16-vs-exec16`: 16 containers, a caller each, in calls per second: the static program, against `docker exec` of it in the same
//!   containers. `docker16-image-vs-exec16` is the same with `/bin/true` of the image.
//!
//! All take turns in one run on one task of a runtime of two threads, so that what the machine does else meets all of them.
//! Excluded: making the sandbox, and what a model's tool adds (checks, rendering). The image is made of this machine's own
//! files; without an engine its cases are left out, with a word.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and spawns for comparison")]

#[path = "support/bubblewrap.rs"]
mod bubblewrap;
#[path = "support/containers.rs"]
mod containers;
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/engine.rs"]
mod engine;
#[path = "support/exec.rs"]
mod exec;
#[path = "support/harness.rs"]
mod harness;
#[expect(clippy::unwrap_used, reason = "the tests' own")]
#[path = "../tests/system/support/image.rs"]
mod image;
#[path = "support/many_containers.rs"]
mod many_containers;
#[path = "support/static_program.rs"]
mod static_program;
#[path = "support/times.rs"]
mod times;

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Connector, ExecutionContext, Executor, Jail, Local, Sandbox,
};

use crate::bubblewrap::BUBBLEWRAP;
use crate::containers::Containers;
use crate::engine::{client, docker};
use crate::harness::Result;
use crate::times::{Times, header, millis};

const WARM_UP: usize = 200;
const ROUNDS: usize = 3000;
const PROGRAM: &str = "/bin/true";

/// `docker exec` takes so long that it is measured once in so many rounds.
const EXEC_EVERY: usize = 20;

fn main() -> Result<()> {
    // Before the runtime, and for longer than it.
    let containers = Containers::find("docker-vs-spawn, docker-vs-exec, docker16-vs-exec16")?.map(Arc::new);
    let in_task = containers.clone();
    harness::run(async move {
        one_at_a_time(in_task.as_deref()).await?;
        match in_task {
            Some(containers) => many_containers::measure(&containers).await,
            None => Ok(()),
        }
    })
}

/// One way to run a program, and how long it took.
struct Way<'a> {
    name: &'static str,
    how: How<'a>,
    times: Times,
}

enum How<'a> {
    Sandbox(&'a Sandbox, &'a str),
    Spawn(Vec<&'a str>),
    Exec(&'a bollard::Docker, &'a str),
}

impl<'a> Way<'a> {
    fn new(name: &'static str, how: How<'a>) -> Self {
        Self { name, how, times: Times::default() }
    }

    async fn take_turn(&mut self, round: usize) -> Result<()> {
        let took = match &self.how {
            How::Sandbox(sandbox, program) => call(sandbox, program).await?,
            How::Spawn(argv) => spawn(argv).await?,
            How::Exec(..) if !round.is_multiple_of(EXEC_EVERY) => return Ok(()),
            How::Exec(engine, container) => exec::exec(engine, container, PROGRAM).await?,
        };
        if round >= WARM_UP {
            self.times.add(took);
        }
        Ok(())
    }
}

async fn one_at_a_time(containers: Option<&Containers>) -> Result<()> {
    let local = open(&Local::without_isolation([])).await?;
    let jail = open(&Jail::new([])).await?;
    let container = match containers {
        Some(containers) => Some(InContainer::open(containers).await?),
        None => None,
    };
    let mut ways = vec![
        Way::new("sandbox (local)", How::Sandbox(&local.sandbox, PROGRAM)),
        Way::new("sandbox (jail)", How::Sandbox(&jail.sandbox, PROGRAM)),
        Way::new("tokio::process", How::Spawn(vec![PROGRAM])),
    ];
    let bwrap = [&BUBBLEWRAP[..], &[PROGRAM]].concat();
    match spawn(&bwrap).await {
        Ok(_) => ways.push(Way::new("bwrap", How::Spawn(bwrap))),
        Err(error) => {
            println!("SKIPPED jail-vs-bwrap: `bwrap` does not run here ({error}); install bubblewrap");
        }
    }
    if let Some(container) = &container {
        let sandbox = &container.opened.sandbox;
        ways.push(Way::new("docker, static", How::Sandbox(sandbox, static_program::INSIDE)));
        ways.push(Way::new("tokio::process, static", How::Spawn(vec![&container.program])));
        ways.push(Way::new("docker, of the image", How::Sandbox(sandbox, PROGRAM)));
        ways.push(Way::new("docker exec", How::Exec(&container.engine, &container.name)));
    }
    for round in 0..WARM_UP + ROUNDS {
        for way in &mut ways {
            way.take_turn(round).await?;
        }
    }
    println!(
        "a program that does nothing, in turns; the sandboxes were ready after {:.1} ms (local) and {:.1} ms (jail)",
        millis(local.opened),
        millis(jail.opened)
    );
    header();
    for way in &ways {
        way.times.print(way.name);
    }
    let times = |name: &str| ways.iter().find(|way| way.name == name).map(|way| &way.times);
    let cases = [
        ("jail-vs-bwrap", "sandbox (jail)", "bwrap"),
        ("jail-vs-spawn", "sandbox (jail)", "tokio::process"),
        ("local-vs-spawn", "sandbox (local)", "tokio::process"),
        ("docker-image-vs-spawn", "docker, of the image", "tokio::process"),
        ("docker-vs-spawn", "docker, static", "tokio::process, static"),
        ("docker-vs-exec", "docker, of the image", "docker exec"),
    ];
    for (case, ours, other) in cases {
        let (Some(ours), Some(other)) = (times(ours), times(other)) else { continue };
        for (suffix, percent) in [("-p99", 99), ("", 50)] {
            let (ours, other) = (ours.percentile(percent), other.percentile(percent));
            let ratio = ours / other;
            println!(
                "RESULT goal=tool_call case={case}{suffix} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.3}"
            );
        }
    }
    drop(ways);
    local.sandbox.cleanup().await;
    jail.sandbox.cleanup().await;
    if let Some(container) = container {
        container.opened.sandbox.cleanup().await;
    }
    Ok(())
}

/// A container with a program of the host's in its workspace.
struct InContainer {
    opened: Opened,
    /// Where the host has the program.
    program: String,
    /// What the engine calls the container.
    name: String,
    engine: bollard::Docker,
}

impl InContainer {
    async fn open(containers: &Containers) -> Result<Self> {
        let opened = open(&containers.connector()).await?;
        let program = static_program::make(opened.workspace.path())?;
        let engine = client(&docker()).await?;
        let name =
            exec::names(&engine, containers).await?.pop().ok_or("the engine has no container of ours")?;
        Ok(Self { opened, program, name, engine })
    }
}

struct Opened {
    sandbox: Sandbox,
    opened: Duration,
    workspace: tempfile::TempDir,
}

async fn open(connector: &dyn Connector) -> Result<Opened> {
    let workspace = tempfile::tempdir()?;
    let started = Instant::now();
    let context = ExecutionContext::new(workspace.path());
    let sandbox = Sandbox::open(connector, &context, Arc::new(SystemClock), soon()).await?;
    Ok(Opened { sandbox, opened: started.elapsed(), workspace })
}

fn soon() -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(30))
}

async fn call(sandbox: &Sandbox, program: &str) -> Result<Duration> {
    let started = Instant::now();
    let outcome = sandbox.run(Command::new([program]), CallOptions::until(soon())).await?;
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
