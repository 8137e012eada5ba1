//! MCP servers whose program is in a container image: `docker run …` and `podman run …`.
//!
//! The image becomes a sandbox of its own, whatever kind of sandbox the session's tools have. Its workspace is empty,
//! because the command line names everything that the server may see.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_journal::SessionKey;
use conjure_mcp::{
    ContainerProgram, ContainerRun, FindProgram, McpServerSpec, McpTransport, ServerProgram, StdioServer,
};
use conjure_sandbox::{Access, Docker, DockerOptions, EngineKind, HostMount, NetworkPolicy, SandboxNetwork};
use futures_util::future::BoxFuture;

use super::server_parts::ServerParts;
use crate::config::Settings;
use crate::context::{ContextOptions, create_context};
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::sandbox_kinds::{CustomSandbox, SandboxKind};
use crate::runtime::session::factory::session_factory::Inner;
use crate::sandbox::egress;

impl Inner {
    /// The parts of a server in an image. Blocks.
    pub(super) fn container_part(
        &self,
        key: &SessionKey,
        home: &Arc<TenantDir>,
        (spec, program): (&McpServerSpec, &StdioServer),
        run: ContainerRun,
        manifest: PathBuf,
    ) -> Result<ServerParts, RuntimeError> {
        let refused = |reason: String| RuntimeError::McpServer { server: spec.name.to_string(), reason };
        let env = run.environment(&program.env);
        let network = program.network.clone().or_else(|| run.network.clone());
        let settings = Settings {
            network: Some(network.unwrap_or(NetworkPolicy::None)),
            allowed_paths: Some(Vec::new()),
            ..Settings::default()
        };
        let config = self.config.with(settings).map_err(|error| refused(error.to_string()))?;
        let mounts = run.mounts.iter().map(|mount| HostMount {
            host: mount.host.clone(),
            target: mount.target.clone(),
            access: Access::ReadOnly,
        });
        let options = DockerOptions {
            image: run.image.clone(),
            // The configured user belongs to the configured image, not to this one.
            user: None,
            volumes: mounts.collect(),
            ..config.docker().map_err(|error| refused(error.to_string()))?
        };
        let engine = config.container_engine().map_err(|error| refused(error.to_string()))?;
        let docker = Docker::new(options, config.passthrough_env().clone())
            .with_engine(engine)
            .with_egress(egress(&self.config))
            .with_data(home.data.clone());
        self.home.note_containers()?;
        let options = ContextOptions { data: Some(home.data.clone()), ..ContextOptions::default() };
        let context =
            create_context::<conjure_skill::Skill>(&[], &config, options).map_err(RuntimeError::Sandbox)?;
        let custom = CustomSandbox::Connector(Arc::new(docker.clone()));
        let kind = SandboxKind::Custom(&custom);
        // Creating the source reports mounted directories that do not exist.
        let sandbox_network = SandboxNetwork::new();
        let context = context.with_sandbox_network(sandbox_network.clone());
        let source = self.sandboxes.unpooled_source(key, home, &kind, &config, context)?;
        let transport = McpTransport::Stdio(StdioServer { env, ..program.clone() });
        let part = ServerParts::new(McpServerSpec { transport, ..spec.clone() }, manifest, None);
        let program = Some(Arc::new(ImageProgram { docker, run }) as Arc<dyn FindProgram>);
        Ok(ServerParts { source: Some(source), sandbox_network, program, ..part })
    }
}

/// Asks the container engine which program an image starts.
struct ImageProgram {
    docker: Docker,
    run: ContainerRun,
}

impl ImageProgram {
    async fn find(&self) -> Result<ServerProgram, String> {
        let run = &self.run;
        let image = self.docker.image_command().await.map_err(|error| error.to_string())?;
        if run.program == ContainerProgram::Podman && image.engine != EngineKind::Podman {
            return Err(
                "the line begins with `podman run`, and the engine that is used is no Podman; `engine` in the configuration names another one"
                    .to_owned(),
            );
        }
        let argv = image.argv(run.entrypoint.as_deref(), &run.args);
        if argv.is_empty() {
            return Err(format!(
                "the image `{}` starts nothing by itself; name the server's program after it",
                run.image
            ));
        }
        Ok(ServerProgram { argv, workdir: run.workdir.clone().or(image.workdir) })
    }
}

impl FindProgram for ImageProgram {
    fn find(&self) -> BoxFuture<'_, Result<ServerProgram, String>> {
        Box::pin(self.find())
    }
}

impl fmt::Debug for ImageProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageProgram").field("run", &self.run).finish_non_exhaustive()
    }
}
