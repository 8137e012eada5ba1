//! [`McpServer`]: a server of one or more sessions, over all its restarts.
//!
//! A task of its own starts the server when it is first wanted, lists its tools, and starts it again when it has ended. So neither a call that
//! is cancelled nor a turn that ends breaks off a start. State: the connection and the tools, in memory; the tools also in a file, so that later
//! sessions know them without starting the server. When the host crashes, the server ends with its sandbox.

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use conjure_base::Redactor;
use conjure_sandbox::{Executor, SandboxNetwork};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::manifest;
use super::program::FindProgram;
use super::restarts::keep;
use super::shared_server::{SharedServer, State};
use crate::client::calls::sampling::Sampler;
use crate::client::sign_in::authorization::Authorize;
use crate::config::McpServerSpec;

/// A server. Dropping it ends the server.
#[derive(Debug)]
pub struct McpServer {
    pub(super) inner: Arc<SharedServer>,
    /// Starts the server, and lists its tools.
    _keeper: JoinSet<()>,
    /// It is dropped after the server.
    _held: Option<Arc<dyn Any + Send + Sync>>,
}

/// What a server does, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerState {
    /// It was not started, and its tools are not known.
    Configured,
    /// It was not started. Its tools are known from an earlier time.
    Known {
        /// How many there are.
        tools: usize,
    },
    /// It is being started.
    Starting,
    /// It runs.
    Running {
        /// How many tools it has.
        tools: usize,
    },
    /// It could not be started.
    Failed {
        /// Why.
        reason: String,
    },
}

impl McpServer {
    /// A server that is not started yet. Its program will run in this sandbox. Its tools are kept in `manifest`, if there is one. Call it within
    /// a Tokio runtime.
    #[must_use]
    pub fn new(spec: McpServerSpec, executor: Option<Arc<dyn Executor>>, manifest: Option<PathBuf>) -> Self {
        Self::build(spec, executor, manifest, None, None)
    }

    /// The same for a program that this one knows.
    #[must_use]
    pub fn of_program(
        spec: McpServerSpec,
        executor: Arc<dyn Executor>,
        manifest: Option<PathBuf>,
        program: Arc<dyn FindProgram>,
    ) -> Self {
        Self::build(spec, Some(executor), manifest, None, Some(program))
    }

    /// The same for a service whose bearer token is asked for at each connection. One that it does not accept is renewed once.
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
        let mut keeper = JoinSet::new();
        keeper.spawn(keep(Arc::clone(&inner)));
        Self { inner, _keeper: keeper, _held: None }
    }

    /// The same server for several sessions. Of their secrets, only those of `redactor` are taken out of what it says about itself; what its
    /// tools return is redacted by each session. `held` is dropped after the server.
    #[must_use]
    pub fn shared(mut self, redactor: &Redactor, held: Arc<dyn Any + Send + Sync>) -> Self {
        self.inner.set_redactor(redactor);
        self._held = Some(held);
        self
    }

    /// The same server, whose sandbox has this network. What that network refused is reported. Its program may reach the start-up's network
    /// until it answers.
    #[must_use]
    pub fn with_sandbox_network(self, network: SandboxNetwork) -> Self {
        let _ = self.inner.sandbox_network.set(network);
        self
    }

    /// The same server, which is told that it may work in these directories, beside the workspace of its sandbox ("roots" in MCP). A service by
    /// HTTP is told of none.
    #[must_use]
    pub fn with_roots(self, directories: Vec<PathBuf>) -> Self {
        let _ = self.inner.roots.set(directories);
        self
    }

    /// The same server, which may ask a model in the middle of a call ("sampling" in MCP).
    #[must_use]
    pub fn with_sampler(self, sampler: Arc<dyn Sampler>) -> Self {
        let _ = self.inner.sampler.set(sampler);
        self
    }

    /// What it is configured as.
    #[must_use]
    pub fn spec(&self) -> &McpServerSpec {
        &self.inner.spec
    }

    /// What it does now.
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
