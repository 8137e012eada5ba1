//! `cargo bench --bench first_call`: what the first tool call of a session costs.
//!
//! Case `jail-cold`: from asking for a jail, for a workspace that is there, to the end of `/bin/true` in it; against the
//! goal, 10 ms, and, for comparison, `bwrap --unshare-all /bin/true` where bubblewrap is installed. Case
//! `jail-cold-four`: four jails asked for at once, until the last of them has run its program, for each of them. They
//! take turns in one run.
//!
//! Case `docker-cold`: from asking for a container to the end of `/bin/true` in it, against making and starting a bare container
//! of the same image by the engine's interface, which is all that the engine does for it; case `docker-cold-added` is what ours takes
//! more, against the goal, 20 ms. They take turns with each other, after the jails.
//!
//! Cases `pool-hit-jail` and `pool-hit-docker`: from claiming a warm sandbox, for a session with a workspace of its own and one
//! skill, to the end of `/bin/true` in it; against the goal, 5 ms. Case `pool-hit-session`: the same in a jail as a session's model
//! sees it, from its answer to the result, through a runtime, with what is recorded of it on the disk. Excluded there: the creation of the warm sandbox, which nobody waits for. Case
//! `pool-hit-docker-files`: the same for a workspace that has a file, as after the loss of a sandbox. Excluded everywhere: the
//! connector, made once for a process, and the end of the sandbox. What any program in a container costs on this engine's storage
//! driver shows the call after it, which is no part of the case; the driver is printed.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and spawns for comparison")]

#[path = "support/bubblewrap.rs"]
mod bubblewrap;
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
#[path = "support/session_call.rs"]
mod session_call;
#[path = "support/times.rs"]
mod times;

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig};
use bollard::query_parameters::{
    CreateContainerOptions, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, Connector, DataDir, ExecutionContext, Executor, Jail, Local, Sandbox,
    SharedDir, WarmSandbox, WarmSpec,
};
use tokio::task::JoinSet;

use crate::bubblewrap::BUBBLEWRAP;
use crate::containers::{Containers, LABEL};
use crate::engine::{client, docker};
use crate::harness::Result;
use crate::times::{Times, header, millis};

const WARM_UP: usize = 20;
const ROUNDS: usize = 300;

/// A container takes longer.
const CONTAINER_WARM_UP: usize = 3;
const CONTAINER_ROUNDS: usize = 60;
const PROGRAM: &str = "/bin/true";

/// What stands in the table of goals, in milliseconds: for a jail, and beyond the start of a bare container.
const GOAL: f64 = 10.0;
const CONTAINER_GOAL: f64 = 20.0;
const HIT_GOAL: f64 = 5.0;

fn main() -> Result<()> {
    // Before the runtime, and for longer than it.
    let containers = Containers::find("docker-cold")?.map(Arc::new);
    let in_task = containers.clone();
    harness::run(async move {
        jails().await?;
        let fixture = WarmFixture::make()?;
        let jail = Jail::new([]).with_data(fixture.pool.clone());
        fixture.measure("pool-hit-jail", &jail, (WARM_UP, ROUNDS), false).await?;
        let whole = session_call::in_jails(PROGRAM, (WARM_UP, ROUNDS)).await?;
        println!("{PROGRAM} as the first call of a session, {ROUNDS} times, through a runtime");
        header();
        whole.print("from answer to result");
        result("pool-hit-session-p99", &whole, HIT_GOAL, 99);
        result("pool-hit-session", &whole, HIT_GOAL, 50);
        let Some(containers) = in_task else { return Ok(()) };
        one_container(&containers).await?;
        let docker = containers.connector().with_data(fixture.pool.clone());
        let rounds = (CONTAINER_WARM_UP, CONTAINER_ROUNDS);
        fixture.measure("pool-hit-docker-files", &docker, rounds, true).await?;
        fixture.measure("pool-hit-docker", &docker, rounds, false).await
    })
}

async fn jails() -> Result<()> {
    let workspace = tempfile::tempdir()?;
    let context = ExecutionContext::new(workspace.path());
    let started = Instant::now();
    let dir = tempfile::tempdir()?;
    let data = DataDir::open(dir.path())?;
    let (jail, local) = (Jail::new([]).with_data(data), Local::without_isolation([]));
    println!("the connector was made in {:.2} ms", millis(started.elapsed()));
    let has_bwrap = match bwrap().await {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED comparison: `bwrap` does not run here ({error}); install bubblewrap");
            false
        }
    };
    let [mut cold, mut opened, mut four, mut without, mut others] = [(); 5].map(|()| Times::default());
    for round in 0..WARM_UP + ROUNDS {
        let (ready, done) = first_call(&jail, &context).await?;
        let at_once = four_at_once(&jail, &context).await?;
        let (_, local_done) = first_call(&local, &context).await?;
        let other = if has_bwrap { Some(bwrap().await?) } else { None };
        if round >= WARM_UP {
            opened.add(ready);
            cold.add(done);
            four.add(at_once);
            without.add(local_done);
            other.into_iter().for_each(|other| others.add(other));
        }
    }
    println!("{PROGRAM} as the first call of a new sandbox, {ROUNDS} times each, in turns");
    header();
    let rows = [
        ("jail, ready", &opened),
        ("jail, first call", &cold),
        ("four jails at once", &four),
        ("local, first call", &without),
        ("bwrap", &others),
    ];
    rows.iter().for_each(|(name, times)| times.print(name));
    if has_bwrap {
        result("jail-cold-vs-bwrap", &cold, others.percentile(50), 50);
    }
    result("jail-cold-four", &four, GOAL, 50);
    result("jail-cold-p99", &cold, GOAL, 99);
    result("jail-cold", &cold, GOAL, 50);
    Ok(())
}

fn result(case: &str, ours: &Times, other: f64, percent: usize) {
    let ours = ours.percentile(percent);
    let ratio = ours / other;
    println!("RESULT goal=first_call case={case} ours={ours:.3} other={other:.3} unit=ms ratio={ratio:.2}");
}

/// Both sides one after the other, as long as nothing of the last container is left.
async fn one_container(containers: &Containers) -> Result<()> {
    let (connector, engine) = (containers.connector(), client(&docker()).await?);
    println!("the engine's storage driver is {}", engine.info().await?.driver.unwrap_or_default());
    let workspace = tempfile::tempdir()?;
    let context = ExecutionContext::new(workspace.path());
    let [mut opened, mut cold, mut bare] = [(); 3].map(|()| Times::default());
    for round in 0..CONTAINER_WARM_UP + CONTAINER_ROUNDS {
        let (ready, done) = first_call(&connector, &context).await?;
        let other = bare_start(&engine, containers).await?;
        if round >= CONTAINER_WARM_UP {
            opened.add(ready);
            cold.add(done);
            bare.add(other);
        }
    }
    println!("{PROGRAM} as the first call of a new container, in turns");
    header();
    let rows =
        [("docker, ready", &opened), ("docker, first call", &cold), ("bare container, started", &bare)];
    rows.iter().for_each(|(name, times)| times.print(name));
    let added = cold.percentile(50) - bare.percentile(50);
    let ratio = added / CONTAINER_GOAL;
    println!(
        "RESULT goal=first_call case=docker-cold-added ours={added:.3} other={CONTAINER_GOAL:.3} unit=ms ratio={ratio:.2}"
    );
    result("docker-cold-p99", &cold, bare.percentile(99), 99);
    result("docker-cold", &cold, bare.percentile(50), 50);
    Ok(())
}

/// Makes and starts a container without anything that ours have, but the log, which costs time.
async fn bare_start(engine: &bollard::Docker, containers: &Containers) -> Result<Duration> {
    let body = ContainerCreateBody {
        image: Some(containers.image.name().to_owned()),
        labels: Some([(LABEL.to_owned(), containers.mark.clone())].into()),
        cmd: Some(["sleep", "1000"].map(str::to_owned).into()),
        host_config: Some(HostConfig {
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let started = Instant::now();
    let made = engine.create_container(None::<CreateContainerOptions>, body).await?;
    engine.start_container(&made.id, None::<StartContainerOptions>).await?;
    let took = started.elapsed();
    let options = RemoveContainerOptionsBuilder::new().force(true).build();
    engine.remove_container(&made.id, Some(options)).await?;
    Ok(took)
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

/// The data directory of warm sandboxes, and that of a tenant with a skill.
struct WarmFixture {
    pool: DataDir,
    tenant: DataDir,
    skill: std::path::PathBuf,
    _dir: tempfile::TempDir,
}

impl WarmFixture {
    fn make() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let [pool, tenant] = ["pool", "tenant"].map(|name| DataDir::open(&dir.path().join(name)));
        let skill = dir.path().join("skill");
        std::fs::create_dir(&skill)?;
        std::fs::write(skill.join("SKILL.md"), "---\nname: skill\ndescription: One.\n---\n")?;
        Ok(Self { pool: pool?, tenant: tenant?, skill, _dir: dir })
    }

    async fn measure(
        &self,
        case: &str,
        connector: &dyn Connector,
        (warm_up, rounds): (usize, usize),
        has_file: bool,
    ) -> Result<()> {
        let [mut claimed, mut done, mut next] = [(); 3].map(|()| Times::default());
        for round in 0..warm_up + rounds {
            let workspace = self.tenant.workspace()?;
            if has_file {
                std::fs::write(workspace.path().join("file"), "kept")?;
            }
            let read_only = vec![SharedDir::new(&self.skill, "/mnt/skills/skill")];
            let context = ExecutionContext { read_only, ..ExecutionContext::new(workspace.path()) };
            let spec = WarmSpec::from_context(&context);
            let warm = WarmSandbox::open(connector, &self.pool, spec, Arc::new(SystemClock), soon()).await?;
            let started = Instant::now();
            let sandbox = warm.claim(&context, &self.tenant, soon()).await?;
            let ready = started.elapsed();
            let outcome = sandbox.run(Command::new([PROGRAM]), CallOptions::until(soon())).await?;
            let took = started.elapsed();
            let started = Instant::now();
            sandbox.run(Command::new([PROGRAM]), CallOptions::until(soon())).await?;
            let again = started.elapsed();
            sandbox.cleanup().await;
            if outcome.end != CommandEnd::Exited(0) {
                return Err(format!("the call ended otherwise: {:?}", outcome.end).into());
            }
            if round >= warm_up {
                claimed.add(ready);
                done.add(took);
                next.add(again);
            }
        }
        println!("{PROGRAM} as the first call in a warm sandbox, {rounds} times");
        header();
        claimed.print("claimed");
        done.print("first call");
        next.print("the next call");
        result(&format!("{case}-p99"), &done, HIT_GOAL, 99);
        result(case, &done, HIT_GOAL, 50);
        Ok(())
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
    let [program, arguments @ ..] = BUBBLEWRAP;
    let started = Instant::now();
    let mut child = tokio::process::Command::new(program)
        .args(arguments)
        .arg(PROGRAM)
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
