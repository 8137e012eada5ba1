//! Runs one command in a container of an image, and returns its output.

#![expect(clippy::unwrap_used, reason = "this is test code, which fails by panic")]

use std::time::Duration;

use bollard::Docker;
use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, LogsOptionsBuilder, RemoveContainerOptionsBuilder, WaitContainerOptions,
};
use futures_util::TryStreamExt as _;

pub(crate) async fn docker() -> Docker {
    let docker = Docker::connect_with_defaults().unwrap().with_timeout(Duration::from_secs(120));
    docker.negotiate_version().await.unwrap()
}

/// Runs a script of the shell in the image, with what the image says of user, directory and variables, and without a
/// network. Gives everything that it wrote; fails when it fails.
pub(crate) async fn output_of_image(image: &str, script: &str) -> String {
    let docker = docker().await;
    let name = format!(
        "conjure-test-{}-{}",
        std::process::id(),
        conjure_base::Digest::of_bytes(script.as_bytes()).to_hex()
    );
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(Vec::new()),
        cmd: Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()]),
        host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::new().name(&name).build();
    docker.create_container(Some(options), body).await.unwrap();
    // Whatever comes of it, the container goes before anything is asserted.
    let ran = run(&docker, &name).await;
    let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    docker.remove_container(&name, Some(force)).await.unwrap();
    let (code, text) = ran.unwrap();
    assert_eq!(code, 0, "{text}");
    text
}

async fn run(docker: &Docker, name: &str) -> Result<(i64, String), bollard::errors::Error> {
    docker.start_container(name, None).await?;
    let waited = docker.wait_container(name, None::<WaitContainerOptions>).try_collect::<Vec<_>>().await;
    let code = match waited {
        Ok(answers) => answers.last().map_or(-1, |answer| answer.status_code),
        Err(bollard::errors::Error::DockerContainerWaitError { code, .. }) => code,
        Err(error) => return Err(error),
    };
    let options = LogsOptionsBuilder::new().stdout(true).stderr(true).build();
    let logged: Vec<LogOutput> = docker.logs(name, Some(options)).try_collect().await?;
    Ok((code, logged.iter().map(ToString::to_string).collect()))
}
