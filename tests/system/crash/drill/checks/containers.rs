//! The containers of killed hosts.

use crate::drill::Result;
use crate::drill::fixture::Sandboxes;
use crate::drill::process::Identity;

/// Those of the drill's image that are of no host that lives, in whatever state.
#[cfg(feature = "docker")]
pub(crate) fn of_dead_hosts(sandboxes: &Sandboxes, living: &[Identity]) -> Result<Vec<String>> {
    use std::collections::HashMap;

    use bollard::query_parameters::ListContainersOptionsBuilder;

    let Sandboxes::Containers { image, engine } = sandboxes else { return Ok(Vec::new()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let seconds = 60;
        let client = match engine.strip_prefix("unix://") {
            Some(path) => bollard::Docker::connect_with_unix(path, seconds, bollard::API_DEFAULT_VERSION)?,
            None => bollard::Docker::connect_with_http(engine, seconds, bollard::API_DEFAULT_VERSION)?,
        };
        let client = client.negotiate_version().await?;
        let of_image = HashMap::from([("ancestor", vec![image.as_str()])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&of_image).build();
        let mut leftovers = Vec::new();
        for container in client.list_containers(Some(options)).await? {
            let labels = container.labels.unwrap_or_default();
            let owner = labels.get("conjure.owner").cloned().unwrap_or_default();
            let is_live =
                living.iter().any(|host| owner.contains(&format!("-{}-{}-", host.pid, host.started)));
            if !is_live {
                leftovers.push(format!("{:?} of `{owner}`, {:?}", container.id, container.status));
            }
        }
        Ok(leftovers)
    })
}

#[cfg(not(feature = "docker"))]
pub(crate) fn of_dead_hosts(_: &Sandboxes, _: &[Identity]) -> Result<Vec<String>> {
    Ok(Vec::new())
}
