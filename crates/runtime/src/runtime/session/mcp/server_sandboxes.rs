//! The sandboxes of MCP servers that are programs.
//!
//! Each server has a sandbox of its own, apart from that of the session's tools. So the model cannot reach the secrets of
//! a server.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use conjure_base::{Digest, Redactor, SessionId, TenantId};
use conjure_conversation::{RemoteToolServer, SessionProfile};
use conjure_journal::SessionKey;
use conjure_mcp::{
    AddressScope, Authorize, ContainerRun, HttpServer, McpServerName, McpServerSpec, McpTransport,
    ServerPlace, StdioServer,
};
use conjure_sandbox::{NetworkPolicy, SandboxNetwork, SharedDir};
use conjure_vault::LOGIN_VAULT;

use super::program_files::SearchPaths;
use super::program_files::program_files;
use super::server_parts::{ServerParts, Sharing};
use super::vault_authorization::VaultAuthorization;
use crate::config::{ExecutorKind, PACKAGE_REGISTRIES, Settings};
use crate::context::{ContextOptions, create_context};
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::sandbox_kinds::SandboxKind;
use crate::runtime::session::factory::session_factory::Inner;

/// Programs that fetch a package and run it. They may reach the package registries until the server's first response.
const PACKAGE_RUNNERS: [&str; 6] = ["npx", "bunx", "pnpx", "uvx", "uv", "pipx"];

impl Inner {
    /// All servers of a session: its own, the configured ones that its profile names, and its remote servers. A server
    /// that is no longer configured is left out with a warning. Blocks.
    pub(in crate::runtime::session) fn server_parts(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
        home: &Arc<TenantDir>,
        workspace: Option<&Path>,
        redactor: &Redactor,
    ) -> Result<Vec<ServerParts>, RuntimeError> {
        let mut parts = Vec::new();
        let session_kind = profile.executor.as_deref().unwrap_or(self.config.executor().as_str());
        let own =
            self.sessions().get(key).map(|known| known.secrets.own_servers().to_vec()).unwrap_or_default();
        for spec in &own {
            let manifest = format!("session-{}.json", spec.name);
            parts.push(self.server_part(key, session_kind, home, (workspace, redactor), spec, &manifest)?);
        }
        for name in &profile.mcp_servers {
            if own.iter().any(|own| own.name.as_str() == name) {
                continue;
            }
            let Some(spec) = self.config.mcp_servers().get(name) else {
                tracing::warn!(session = %key, server = name, "an MCP server of the session is not configured any more");
                continue;
            };
            let manifest = format!("{name}.json");
            parts.push(if spec.shared {
                self.shared_part(&key.tenant, home, redactor, spec, &manifest)?
            } else {
                self.server_part(key, session_kind, home, (workspace, redactor), spec, &manifest)?
            });
        }
        for server in &profile.remote_servers {
            parts.push(self.remote_server(key, profile, home, redactor, server)?);
        }
        Ok(parts)
    }

    /// The parts of a server that the sessions of the tenant share. They contain nothing of a single session.
    fn shared_part(
        &self,
        tenant: &TenantId,
        home: &Arc<TenantDir>,
        redactor: &Redactor,
        spec: &McpServerSpec,
        manifest: &str,
    ) -> Result<ServerParts, RuntimeError> {
        let running = self.tenant_servers.get().and_then(|servers| servers.get(tenant, spec.name.as_str()));
        if let Some(server) = running {
            let part = ServerParts::new(spec.clone(), home.data.path().join("mcp").join(manifest), None);
            return Ok(ServerParts { sharing: Sharing::Live(server), ..part });
        }
        let id = SessionId::random().map_err(|error| RuntimeError::interrupted("making an id", &error))?;
        let (key, kind) = (SessionKey::new(tenant.clone(), id), self.config.executor().as_str());
        let part = self.server_part(&key, kind, home, (None, redactor), spec, manifest)?;
        Ok(ServerParts { sharing: Sharing::Shared, ..part })
    }

    /// The parts of one server. `kind` is the kind of its sandbox. `manifest` is the name of the file that caches its
    /// tools.
    fn server_part(
        &self,
        key: &SessionKey,
        kind: &str,
        home: &Arc<TenantDir>,
        (workspace, redactor): (Option<&Path>, &Redactor),
        spec: &McpServerSpec,
        manifest: &str,
    ) -> Result<ServerParts, RuntimeError> {
        let name = spec.name.as_str();
        let manifest = home.data.path().join("mcp").join(manifest);
        match &spec.transport {
            McpTransport::Http(http) => {
                let authorization = self.login_authorization(key, redactor, http, name);
                Ok(ServerParts::new(spec.clone(), manifest, authorization))
            }
            McpTransport::Stdio(stdio) => {
                if let Some(run) = container_run(name, stdio)? {
                    return self.container_part(key, home, (spec, stdio), run, manifest);
                }
                self.program_part(key, kind, home, workspace, (spec, stdio), manifest)
            }
        }
    }

    /// The tenant's login at a configured server. `None` if the configured headers contain `Authorization`.
    fn login_authorization(
        &self,
        key: &SessionKey,
        redactor: &Redactor,
        http: &HttpServer,
        name: &str,
    ) -> Option<Arc<dyn Authorize>> {
        let has_header = http.headers.keys().any(|header| header.eq_ignore_ascii_case("authorization"));
        (!has_header).then(|| {
            Arc::new(VaultAuthorization {
                vaults: self.vaults.get().cloned(),
                tenant: key.tenant.clone(),
                names: vec![LOGIN_VAULT.to_owned()],
                url: http.url.clone(),
                addresses: http.addresses,
                redactor: redactor.clone(),
                renewal: Mutex::default(),
                advice: format!("sign in with `conjure mcp login {name}`, or give its token as a header, such as `headers = {{ Authorization = \"Bearer ${{TOKEN}}\" }}`"),
            }) as Arc<dyn Authorize>
        })
    }

    /// Which addresses may be dialled for remote servers, whose addresses any client may choose.
    pub(in crate::runtime::session) fn remote_addresses(&self) -> AddressScope {
        match self.config.serve().private_mcp_servers {
            Some(true) => AddressScope::AsWritten,
            _ => AddressScope::PublicOnly,
        }
    }

    /// The parts of a remote server. Anybody may have chosen its address, so private addresses are refused unless the
    /// operator permits them.
    fn remote_server(
        &self,
        key: &SessionKey,
        profile: &SessionProfile,
        home: &Arc<TenantDir>,
        redactor: &Redactor,
        server: &RemoteToolServer,
    ) -> Result<ServerParts, RuntimeError> {
        let refused = |reason: String| RuntimeError::McpServer { server: server.name.clone(), reason };
        let addresses = self.remote_addresses();
        let http = HttpServer { url: server.url.clone(), headers: BTreeMap::new(), addresses };
        let name = McpServerName::new(&server.name).map_err(refused)?;
        let tools_by_state = |is_enabled: bool| {
            let tools = server.tools.iter().filter(move |(_, rule)| rule.enabled == is_enabled);
            tools.map(|(name, _)| name.clone()).collect::<BTreeSet<_>>()
        };
        let spec = McpServerSpec {
            required: true,
            enabled_tools: (!server.default.enabled).then(|| tools_by_state(true)),
            disabled_tools: tools_by_state(false),
            permission: server.default.permission,
            tool_permissions: server
                .tools
                .iter()
                .map(|(name, rule)| (name.clone(), rule.permission))
                .collect(),
            ..McpServerSpec::new(name, McpTransport::Http(http))
        };
        // The tools of a server may depend on the credential, so the file name depends on the vaults, too.
        let identity = format!("{}\0{}", server.url, profile.vaults.join("\0"));
        let digits = Digest::of_bytes(identity.as_bytes()).to_hex();
        let manifest = home.data.path().join("mcp").join(format!("remote-{digits}.json"));
        let authorization = VaultAuthorization {
            vaults: self.vaults.get().cloned(),
            tenant: key.tenant.clone(),
            names: profile.vaults.clone(),
            url: server.url.clone(),
            addresses,
            redactor: redactor.clone(),
            renewal: Mutex::default(),
            advice: vault_advice(&profile.vaults, &server.url),
        };
        let authorization: Option<Arc<dyn Authorize>> = Some(Arc::new(authorization));
        Ok(ServerParts::new(spec, manifest, authorization))
    }

    /// The parts of a server that is a program, with the source of its sandbox.
    fn program_part(
        &self,
        key: &SessionKey,
        kind: &str,
        home: &Arc<TenantDir>,
        workspace: Option<&Path>,
        (spec, program): (&McpServerSpec, &StdioServer),
        manifest: PathBuf,
    ) -> Result<ServerParts, RuntimeError> {
        let name = spec.name.as_str();
        let refused = |reason: String| RuntimeError::McpServer { server: name.to_owned(), reason };
        let kind = match program.place {
            ServerPlace::Local => SandboxKind::BuiltIn(ExecutorKind::Local),
            ServerPlace::Sandbox => match self.sandboxes.kind(kind)? {
                Some(kind) => kind,
                // The session has no sandbox of its own.
                None => SandboxKind::BuiltIn(self.config.executor()),
            },
        };
        let mut program = program.clone();
        let mut roots = Vec::new();
        let mut allowed_paths = Vec::new();
        let mut read_only = Vec::new();
        let is_runner = PACKAGE_RUNNERS.contains(&program.command.rsplit('/').next().unwrap_or_default());
        // A container has its own programs.
        if matches!(kind, SandboxKind::BuiltIn(ExecutorKind::Jail | ExecutorKind::Local)) {
            let path =
                self.config.passthrough_env().get(&OsString::from("PATH")).cloned().unwrap_or_default();
            let real_workspace = workspace.and_then(|workspace| workspace.canonicalize().ok());
            let search_paths =
                SearchPaths { path: &path, home: self.config.home(), workspace: real_workspace.as_deref() };
            let files = program_files(&program.command, &program.args, search_paths).map_err(refused)?;
            program.command = utf8(&files.program).map_err(refused)?;
            roots = files.arguments;
            if matches!(kind, SandboxKind::BuiltIn(ExecutorKind::Jail)) {
                for dir in files.dirs {
                    match workspace.filter(|workspace| dir.starts_with(workspace)) {
                        // The program may write the session's workspace, also by its path on the host.
                        Some(workspace) => allowed_paths.push(workspace.to_owned()),
                        None => read_only.push(SharedDir::new(dir.clone(), dir)),
                    }
                }
                allowed_paths.dedup();
                let aliases = files.aliases.into_iter().map(|(alias, real)| SharedDir::new(real, alias));
                read_only.extend(aliases);
                let system = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
                let path = std::env::join_paths(files.path.into_iter().chain(system));
                let path = path.map_err(|error| refused(error.to_string()))?;
                program.env.entry("PATH".to_owned()).or_insert(path.to_string_lossy().into_owned());
                if is_runner {
                    let home_dir = home
                        .data
                        .named_workspace(&home_name(name))
                        .map_err(|error| refused(error.to_string()))?;
                    program.env.entry("HOME".to_owned()).or_insert(utf8(&home_dir).map_err(refused)?);
                    allowed_paths.push(home_dir);
                }
            }
        }
        let network = program.network.clone().unwrap_or(NetworkPolicy::None);
        // `local` isolates nothing. It would refuse a list of hosts, because it cannot enforce one.
        let network = match (&kind, network) {
            (SandboxKind::BuiltIn(ExecutorKind::Local), _) => NetworkPolicy::None,
            // With an empty list, a jail can still report which hosts the program asked for.
            (SandboxKind::BuiltIn(ExecutorKind::Jail), NetworkPolicy::None) => {
                NetworkPolicy::Limited(Vec::new())
            }
            (_, network) => network,
        };
        let config = self
            .config
            .with(Settings {
                network: Some(network),
                allowed_paths: Some(allowed_paths),
                ..Settings::default()
            })
            .map_err(|error| refused(error.to_string()))?;
        let options = ContextOptions {
            workspace: workspace.map(Path::to_owned),
            data: Some(home.data.clone()),
            ..ContextOptions::default()
        };
        let context =
            create_context::<conjure_skill::Skill>(&[], &config, options).map_err(RuntimeError::Sandbox)?;
        let sandbox_network = SandboxNetwork::new();
        let context = context
            .with_read_only(read_only)
            .with_startup_hosts(startup_hosts(is_runner, program.network.as_ref()));
        let context = context.with_sandbox_network(sandbox_network.clone());
        let source = self.sandboxes.unpooled_source(key, home, &kind, &config, context)?;
        let spec = McpServerSpec { transport: McpTransport::Stdio(program), ..spec.clone() };
        let part = ServerParts::new(spec, manifest, None);
        Ok(ServerParts { source: Some(source), sandbox_network, roots, ..part })
    }
}

/// The hosts that a program may reach until its first response, in addition to the configured ones. With `network = "none"` there
/// are none, so the package must be installed already.
fn startup_hosts(is_runner: bool, configured: Option<&NetworkPolicy>) -> &'static [&'static str] {
    if is_runner && configured != Some(&NetworkPolicy::None) { &PACKAGE_REGISTRIES } else { &[] }
}

/// Parses the command of a server as a `docker run` line, if it is one. A server that runs on the host is started as it
/// is.
fn container_run(name: &str, program: &StdioServer) -> Result<Option<ContainerRun>, RuntimeError> {
    if program.place == ServerPlace::Local {
        return Ok(None);
    }
    ContainerRun::parse(&program.command, &program.args)
        .map_err(|reason| RuntimeError::McpServer { server: name.to_owned(), reason })
}

/// The advice for the user if no credential of a session is accepted.
fn vault_advice(vaults: &[String], url: &str) -> String {
    match vaults.len() {
        0 => "the session has no vaults; create it with `vault_ids`, one of which has a credential for this server's URL".to_owned(),
        _ => format!("no credential for `{url}` in the session's vaults was accepted; add or update one"),
    }
}

/// The name of the directory that is the home directory of a server's program. All sessions of a tenant share it.
fn home_name(server: &str) -> String {
    let digits = Digest::of_bytes(server.as_bytes()).to_hex();
    format!("mcp-{}-{}", server.to_ascii_lowercase(), digits.get(..8).unwrap_or_default())
}

fn utf8(path: &Path) -> Result<String, String> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("the path `{}` is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_alone_reach_the_registries_and_not_where_the_network_is_off() {
        let hosts = NetworkPolicy::Limited(vec!["api.example".to_owned()]);
        for configured in [None, Some(&hosts), Some(&NetworkPolicy::Full)] {
            assert_eq!(startup_hosts(true, configured), PACKAGE_REGISTRIES);
            assert!(startup_hosts(false, configured).is_empty());
        }
        assert!(startup_hosts(true, Some(&NetworkPolicy::None)).is_empty());
    }
}
