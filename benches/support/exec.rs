//! `docker exec` by the engine's interface, as tools use it: made, started attached, its end looked at.

use std::time::{Duration, Instant};

use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures_util::TryStreamExt as _;

use crate::containers::{Containers, LABEL, labelled};
use crate::harness::Result;

/// What the engine calls the containers of this run.
pub(crate) async fn names(engine: &bollard::Docker, containers: &Containers) -> Result<Vec<String>> {
    let label = format!("{LABEL}={}", containers.mark);
    let all = engine.list_containers(Some(labelled(&label))).await?;
    Ok(all.into_iter().filter_map(|container| container.id).collect())
}

pub(crate) async fn exec(engine: &bollard::Docker, container: &str, program: &str) -> Result<Duration> {
    let started = Instant::now();
    let config = ExecConfig {
        cmd: Some(vec![program.to_owned()]),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    };
    let made = engine.create_exec(container, config).await?;
    match engine.start_exec(&made.id, None).await? {
        StartExecResults::Attached { output, .. } => drop(output.try_collect::<Vec<_>>().await?),
        StartExecResults::Detached => return Err("the exec was started detached".into()),
    }
    let ended = engine.inspect_exec(&made.id).await?;
    let took = started.elapsed();
    match ended.exit_code {
        Some(0) => Ok(took),
        code => Err(format!("`docker exec` ended otherwise: {code:?}").into()),
    }
}
