//! [`ServerParts`]: the parts from which an MCP server is built.

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

/// The secrets of the servers, which are redacted wherever they would leave. Several servers may have variables or headers of the same name,
/// with different values.
pub(in crate::runtime::session) fn secrets(parts: &[ServerParts]) -> impl Iterator<Item = (&str, &str)> {
    parts.iter().flat_map(|part| part.spec.secrets())
}

#[cfg(test)]
mod tests {
    use conjure_base::Redactor;
    use conjure_mcp::parse_mcp_json;

    use super::*;

    #[test]
    fn the_secrets_of_all_servers_are_redacted_whatever_their_names_are() {
        let text = r#"{"mcpServers": {
            "one": {"command": "a", "env": {"API_KEY": "first-s3cret"}},
            "two": {"command": "b", "env": {"API_KEY": "second-s3cret"}}
        }}"#;
        let servers = parse_mcp_json(text, &|_: &str| None).unwrap().servers.into_iter();
        let parts: Vec<_> = servers.map(|spec| ServerParts::new(spec, PathBuf::new(), None)).collect();
        let redacted = Redactor::new(secrets(&parts)).redact("first-s3cret second-s3cret").into_owned();
        assert_eq!(redacted, "[REDACTED:API_KEY] [REDACTED:API_KEY]");
    }
}
