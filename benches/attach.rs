//! `cargo bench --bench attach`: how much goes into a container and out of it.
//!
//! Against the bare attached streams of a container of the same engine and image, without a log, as ours have none: `head -c SIZE
//! /dev/zero` in it, and `head -c SIZE >/dev/null`. Case `stdout`: the same as the standard output of a command, streamed. Case
//! `read`: a file of the workspace that is read. Case `write`: a new file in the workspace. In turns in one run; the ratio is a rate, so the more, the better. Excluded: making the containers.

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

use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, RemoveContainerOptionsBuilder, StartContainerOptions,
};
use bytes::Bytes;
use conjure_base::{Clock, SystemClock};
use conjure_sandbox::{
    CallOptions, Command, CommandEnd, ExecutionContext, Executor, Limits, RunEvent, Sandbox, SandboxError,
};
use futures_util::{StreamExt as _, stream};
use tokio::io::AsyncWriteExt as _;

use crate::containers::{Containers, LABEL};
use crate::engine::{client, docker};
use crate::harness::Result;

const SIZE: usize = 256 << 20;
const PIECE: usize = 256 * 1024;
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    // Before the runtime, and for longer than it.
    let Some(containers) = Containers::find("all")?.map(Arc::new) else { return Ok(()) };
    let in_task = Arc::clone(&containers);
    harness::run(async move { measure(&in_task).await })
}

async fn measure(containers: &Containers) -> Result<()> {
    let workspace = tempfile::tempdir()?;
    let context = ExecutionContext {
        limits: Limits::default().with_disk(8 << 30)?,
        ..ExecutionContext::new(workspace.path())
    };
    let connector = containers.connector();
    let sandbox = Sandbox::open(&connector, &context, Arc::new(SystemClock), soon()).await?;
    let cases = ["stdout", "read", "write"];
    let [mut ours, mut others] = [(); 2].map(|()| [(); 3].map(|()| Vec::new()));
    // The first round fills caches.
    for round in 0..=ROUNDS {
        let out = bare_out(containers).await?;
        let stdout = stdout(&sandbox).await?;
        let into = bare_in(containers).await?;
        let write = write(&sandbox).await?;
        let read = read(&sandbox).await?;
        if round > 0 {
            for (times, took) in ours.iter_mut().zip([stdout, read, write]) {
                times.push(took);
            }
            for (times, took) in others.iter_mut().zip([out, out, into]) {
                times.push(took);
            }
        }
    }
    println!("{} MB each, {ROUNDS} times, in turns", SIZE / 1_000_000);
    for ((case, ours), others) in cases.into_iter().zip(ours).zip(others) {
        let (ours, other) = (rate(ours), rate(others));
        let ratio = ours / other;
        println!("RESULT goal=attach case={case} ours={ours:.0} other={other:.0} unit=MB/s ratio={ratio:.2}");
    }
    sandbox.cleanup().await;
    Ok(())
}

/// Of the median, in megabytes each second.
fn rate(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    SIZE as f64 / 1_000_000.0 / median.as_secs_f64()
}

async fn stdout(sandbox: &Sandbox) -> Result<Duration> {
    let command = Command::new(["head", "-c", &SIZE.to_string(), "/dev/zero"]);
    let started = Instant::now();
    let process = sandbox.start(command, CallOptions::until(soon())).await?;
    let mut length = 0;
    loop {
        match process.next_event().await? {
            RunEvent::Stdout(piece) => length += piece.len(),
            RunEvent::Stderr(piece) => return Err(String::from_utf8_lossy(&piece).into()),
            RunEvent::Ended(outcome) => break ended_well(&outcome.end)?,
        }
    }
    whole(length)?;
    Ok(started.elapsed())
}

async fn write(sandbox: &Sandbox) -> Result<Duration> {
    let started = Instant::now();
    let written = sandbox.write("file", pieces(), CallOptions::until(soon())).await?;
    whole(usize::try_from(written.size)?)?;
    Ok(started.elapsed())
}

/// What was written before.
async fn read(sandbox: &Sandbox) -> Result<Duration> {
    let started = Instant::now();
    let mut content = sandbox.read("file", CallOptions::until(soon())).await?;
    let mut length = 0;
    while let Some(piece) = content.next().await {
        length += piece?.len();
    }
    whole(length)?;
    Ok(started.elapsed())
}

fn pieces() -> conjure_sandbox::ContentStream {
    let piece = Bytes::from(vec![b'x'; PIECE]);
    stream::iter((0..SIZE / PIECE).map(move |_| Ok::<_, SandboxError>(piece.clone()))).boxed()
}

fn ended_well(end: &CommandEnd) -> Result<()> {
    if *end == CommandEnd::Exited(0) {
        Ok(())
    } else {
        Err(format!("the command ended otherwise: {end:?}").into())
    }
}

fn whole(length: usize) -> Result<()> {
    if length == SIZE { Ok(()) } else { Err(format!("{length} of {SIZE} bytes came").into()) }
}

async fn bare_out(containers: &Containers) -> Result<Duration> {
    bare(containers, &format!("read line; exec head -c {SIZE} /dev/zero"), async |mut streams| {
        streams.input.write_all(b"\n").await?;
        let mut length = 0;
        while length < SIZE {
            match streams.output.next().await.ok_or("the stream ended early")?? {
                LogOutput::StdOut { message } => length += message.len(),
                other => return Err(format!("the container said {other}").into()),
            }
        }
        whole(length)
    })
    .await
}

async fn bare_in(containers: &Containers) -> Result<Duration> {
    bare(containers, &format!("head -c {SIZE} > /dev/null; echo done"), async |mut streams| {
        let piece = vec![b'x'; PIECE];
        for _ in 0..SIZE / PIECE {
            streams.input.write_all(&piece).await?;
        }
        streams.input.flush().await?;
        match streams.output.next().await.ok_or("the stream ended early")?? {
            LogOutput::StdOut { message } if message.starts_with(b"done") => Ok(()),
            other => Err(format!("the container said {other}").into()),
        }
    })
    .await
}

/// How long what is done with a container's streams takes, once it runs.
async fn bare(
    containers: &Containers,
    script: &str,
    act: impl AsyncFnOnce(bollard::container::AttachContainerResults) -> Result<()>,
) -> Result<Duration> {
    let body = ContainerCreateBody {
        image: Some(containers.image.name().to_owned()),
        labels: Some([(LABEL.to_owned(), containers.mark.clone())].into()),
        cmd: Some(["sh", "-c", script].map(str::to_owned).into()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        host_config: Some(HostConfig {
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let engine = client(&docker()).await?;
    let made = engine.create_container(None::<CreateContainerOptions>, body).await?;
    let options = AttachContainerOptions {
        stream: true,
        stdin: true,
        stdout: true,
        stderr: true,
        ..AttachContainerOptions::default()
    };
    let streams = engine.attach_container(&made.id, Some(options)).await?;
    engine.start_container(&made.id, None::<StartContainerOptions>).await?;
    let started = Instant::now();
    let done = act(streams).await;
    let took = started.elapsed();
    let options = RemoveContainerOptionsBuilder::new().force(true).build();
    engine.remove_container(&made.id, Some(options)).await?;
    done.map(|()| took)
}

fn soon() -> conjure_base::Deadline {
    SystemClock.deadline(Duration::from_secs(600))
}
