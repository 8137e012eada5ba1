//! Checks whether containers can be used: the engine, the image and the runtime. They are required if the
//! configuration selects containers.

use conjure::{Config, ProcessEnv};

use crate::cli::doctor::check::{Check, Finding};

/// The checks of containers.
#[cfg(feature = "docker")]
pub(super) async fn checks(config: Option<&Config>, environment: &ProcessEnv) -> Vec<Check> {
    use conjure::config::ExecutorKind;
    use conjure::sandbox::{Docker, EngineAddress, HostAccess, SandboxErrorKind};

    let usual = Config::default().with_process_env(environment);
    let config = config.unwrap_or(&usual);
    let is_needed = config.executor() == ExecutorKind::Docker;
    let check = |name, finding| {
        let check = Check::new(name, finding);
        if is_needed { check.needed() } else { check }
    };
    let options = match config.docker() {
        Ok(options) => options,
        Err(error) => return vec![check("container engine", Finding::Missing(error.to_string()))],
    };
    let image = options.image.clone();
    let is_remote = matches!(options.engine.as_slice(), [EngineAddress::Tcp(_)]);
    match Docker::new(options, []).check_environment().await {
        Ok(found) => {
            let rootless = if found.is_rootless { ", rootless" } else { "" };
            let sharing = match found.host_access {
                HostAccess::Mounted => "",
                HostAccess::Copied => "; it shares no directories, content travels through the guest",
            };
            let engine =
                format!("{:?} {}{rootless} at {}{sharing}", found.engine, found.version, found.address);
            vec![
                check("container engine", Finding::Good(engine)),
                check("container image", Finding::Good(format!("{image} ({})", found.image_id))),
                check("container runtime", Finding::Good(found.runtime)),
            ]
        }
        Err(error) if error.kind() == SandboxErrorKind::EngineUnavailable => {
            let remedy = if is_remote {
                "start the engine there, and the tunnel to it (`ssh -N -L 127.0.0.1:2375:/var/run/docker.sock HOST`); \
                 DOCKER_HOST says where it is"
            } else {
                "start Docker or Podman and let this user reach its socket; DOCKER_HOST says where it is"
            };
            vec![check("container engine", Finding::Missing(error.to_string())).remedy(remedy)]
        }
        Err(error) if error.kind() == SandboxErrorKind::ImageNotFound => vec![
            check("container engine", Finding::Good("answers".to_owned())),
            check("container image", Finding::Missing(error.to_string())).remedy("conjure image build"),
        ],
        Err(error) => vec![
            check("container engine", Finding::Good("answers".to_owned())),
            // The message says how to fix it: the image may be for another processor, or the runtime may be missing.
            check("containers", Finding::Missing(error.to_string())),
        ],
    }
}

/// The check of containers in a build without them.
#[cfg(not(feature = "docker"))]
pub(super) async fn checks(_: Option<&Config>, _: &ProcessEnv) -> Vec<Check> {
    let found = "this build was made without the feature `docker`".to_owned();
    vec![Check::new("container engine", Finding::Missing(found))]
}
