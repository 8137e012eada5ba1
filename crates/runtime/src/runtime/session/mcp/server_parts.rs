//! [`ServerParts`]: the parts from which an MCP server is built.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use conjure_actors::executors::ExecutorSource;
use conjure_mcp::{Authorize, FindProgram, McpServer, McpServerSpec, Sampler};
use conjure_sandbox::{Executor, SandboxNetwork};

/// The parts of an MCP server. A server that is a program has the source of its sandbox among them.
pub(crate) struct ServerParts {
    pub(super) spec: McpServerSpec,
    pub(super) source: Option<Arc<dyn ExecutorSource>>,
    /// Whether the sessions of the tenant share the server.
    pub(super) sharing: Sharing,
    pub(super) manifest: PathBuf,
    /// Supplies the token of a remote server.
    pub(super) authorization: Option<Arc<dyn Authorize>>,
    /// The network of its sandbox.
    pub(super) sandbox_network: SandboxNetwork,
    /// The directories among its arguments. The server may work in them.
    pub(super) roots: Vec<PathBuf>,
    /// Asks the session's model on behalf of the server.
    pub(super) sampler: Option<Arc<dyn Sampler>>,
    /// Finds the program of a server in an image.
    pub(super) program: Option<Arc<dyn FindProgram>>,
}

/// Whether the sessions of a tenant share a server.
pub(in crate::runtime::session) enum Sharing {
    /// The session has a server of its own.
    Own,
    /// They share it, and it may have to be started.
    Shared,
    /// They share this one, which runs.
    Live(Arc<McpServer>),
}

impl ServerParts {
    /// A server of a session, without a sandbox.
    pub(super) fn new(
        spec: McpServerSpec,
        manifest: PathBuf,
        authorization: Option<Arc<dyn Authorize>>,
    ) -> Self {
        Self {
            spec,
            source: None,
            sharing: Sharing::Own,
            manifest,
            authorization,
            sandbox_network: SandboxNetwork::new(),
            roots: Vec::new(),
            sampler: None,
            program: None,
        }
    }

    /// The server, whose program runs in this sandbox.
    pub(super) fn server(self, executor: Option<Arc<dyn Executor>>) -> McpServer {
        let manifest = Some(self.manifest);
        let server = match (self.authorization, executor, self.program) {
            (Some(authorization), _, _) => McpServer::authorized(self.spec, manifest, authorization),
            (None, Some(executor), Some(program)) => {
                McpServer::of_program(self.spec, executor, manifest, program)
            }
            (None, executor, _) => McpServer::new(self.spec, executor, manifest),
        };
        let server = server.with_sandbox_network(self.sandbox_network).with_roots(self.roots);
        match self.sampler {
            Some(sampler) => server.with_sampler(sampler),
            None => server,
        }
    }
}

/// The secrets of the servers, which are redacted wherever they would leave.
pub(in crate::runtime::session) fn secrets(parts: &[ServerParts]) -> BTreeMap<String, String> {
    let all = parts.iter().flat_map(|part| part.spec.secrets());
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
