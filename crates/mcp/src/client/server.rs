//! [`McpServer`]: a server of one or more sessions, across all its restarts.
//!
//! A task starts the server on demand, lists its tools, and restarts it after it ends. So neither a cancelled call nor the end of a turn
//! aborts a start.
//!
//! State: the connection and the tools, in memory. The tools are also stored in a file, so that later sessions know them without starting
//! the server. If the host crashes, the server ends with its sandbox.

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conjure_base::Redactor;
use conjure_sandbox::{Executor, SandboxNetwork};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::find_program::FindProgram;
use super::manifest;
use super::server_supervisor::supervise;
use super::shared_server::{SharedServer, State};
use crate::client::calls::sampling::Sampler;
use crate::client::sign_in::authorization::Authorize;
use crate::config::McpServerSpec;

/// A server. Dropping it ends the server.
#[derive(Debug)]
pub struct McpServer {
    pub(super) inner: Arc<SharedServer>,
    /// The task that starts the server and lists its tools.
    _supervisor: JoinSet<()>,
    /// A value that must outlive the server, so it is dropped after the server.
    _keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

/// The state of a server, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerState {
    /// The server was not started, and its tools are not known.
    Configured,
    /// The server was not started. Its tools are known from an earlier start.
    Known {
        /// The number of its tools.
        tools: usize,
    },
    /// The server is being started.
    Starting,
    /// The server runs.
    Running {
        /// The number of its tools.
        tools: usize,
    },
    /// The last start failed.
    Failed {
        /// The reason.
        reason: String,
    },
}

impl McpServer {
    /// A server that is not started yet. Its program will run in `executor`. Its tools are stored in the file `manifest`, if given. Must be
    /// called within a Tokio runtime.
    #[must_use]
    pub fn new(spec: McpServerSpec, executor: Option<Arc<dyn Executor>>, manifest: Option<PathBuf>) -> Self {
        Self::build(spec, executor, manifest, None, None)
    }

    /// Like [`McpServer::new`], with a program that `program` finds at each start.
    #[must_use]
    pub fn of_program(
        spec: McpServerSpec,
        executor: Arc<dyn Executor>,
        manifest: Option<PathBuf>,
        program: Arc<dyn FindProgram>,
    ) -> Self {
        Self::build(spec, Some(executor), manifest, None, Some(program))
    }

    /// Like [`McpServer::new`], for a service. `authorization` supplies the bearer token for each connection. If the service refuses the
    /// token, it is renewed once.
    #[must_use]
    pub fn authorized(
        spec: McpServerSpec,
        manifest: Option<PathBuf>,
        authorization: Arc<dyn Authorize>,
    ) -> Self {
        Self::build(spec, None, manifest, Some(authorization), None)
    }

    fn build(
        spec: McpServerSpec,
        executor: Option<Arc<dyn Executor>>,
        manifest: Option<PathBuf>,
        authorization: Option<Arc<dyn Authorize>>,
        program: Option<Arc<dyn FindProgram>>,
    ) -> Self {
        let listing = manifest.as_deref().and_then(|path| manifest::read(path, &spec)).map(Arc::new);
        let inner = Arc::new(SharedServer {
            spec,
            executor,
            manifest,
            redactor: OnceLock::new(),
            sandbox_network: OnceLock::new(),
            authorization,
            program,
            roots: OnceLock::new(),
            sampler: OnceLock::new(),
            state: watch::Sender::new(State { listing, ..State::default() }),
            wanted: Notify::new(),
            changed: Arc::default(),
        });
        let mut supervisor = JoinSet::new();
        supervisor.spawn(supervise(Arc::clone(&inner)));
        Self { inner, _supervisor: supervisor, _keep_alive: None }
    }

    /// Lets several sessions use the server. The server's own messages are redacted with `redactor` only. Each session redacts the tool
    /// results itself. `held` is dropped after the server.
    #[must_use]
    pub fn shared(mut self, redactor: &Redactor, held: Arc<dyn Any + Send + Sync>) -> Self {
        self.inner.set_redactor(redactor);
        self._keep_alive = Some(held);
        self
    }

    /// Reports the connections that `network`, the network of the server's sandbox, refused. Until the program answers, it may also reach
    /// the start-up network.
    #[must_use]
    pub fn with_sandbox_network(self, network: SandboxNetwork) -> Self {
        let _ = self.inner.sandbox_network.set(network);
        self
    }

    /// Tells the server that it may use these directories in addition to the workspace of its sandbox ("roots" in MCP). A service over HTTP
    /// gets no roots.
    #[must_use]
    pub fn with_roots(self, directories: Vec<PathBuf>) -> Self {
        let _ = self.inner.roots.set(directories);
        self
    }

    /// Lets the server send requests to a model during a call ("sampling" in MCP).
    #[must_use]
    pub fn with_sampler(self, sampler: Arc<dyn Sampler>) -> Self {
        let _ = self.inner.sampler.set(sampler);
        self
    }

    /// The configuration of the server.
    #[must_use]
    pub fn spec(&self) -> &McpServerSpec {
        &self.inner.spec
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> ServerState {
        let state = self.inner.state.borrow();
        let tools = state.listing.as_ref().map(|listing| listing.tools.len());
        match (&state.connection, &state.failure, tools) {
            (Some(connection), _, tools) if !connection.is_closed() => {
                ServerState::Running { tools: tools.unwrap_or_default() }
            }
            _ if state.is_starting => ServerState::Starting,
            (_, Some(failure), _) => ServerState::Failed { reason: failure.error.to_string() },
            (_, None, Some(tools)) => ServerState::Known { tools },
            (_, None, None) => ServerState::Configured,
        }
    }
}
