//! [`McpServers`]: all servers of a session, as a source of tools.

use std::fmt;
use std::sync::Arc;

use conjure_base::Redactor;
use conjure_conversation::ToolServerFailure;
use conjure_sandbox::Executor;
use conjure_toolbox::{SourcedTools, ToolSource};
use futures_util::future::join_all;

use super::error::McpError;
use super::server::{McpServer, ServerState};
use crate::client::tools::session_tools::SessionTools;

/// All servers of a session. Dropping it ends each server that no other session uses.
pub struct McpServers {
    tools: Arc<SessionTools>,
}

/// A server and its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReport {
    /// The name of the server.
    pub name: String,
    /// The state of the server.
    pub state: ServerState,
}

impl McpServers {
    /// The servers of a session. Servers whose tools are not known are started in the background.
    ///
    /// Large results are written to files in `files`, the sandbox of the session's tools. The secrets of `redactor` are redacted in the
    /// servers' own messages.
    #[must_use]
    pub fn new(servers: Vec<Arc<McpServer>>, files: Option<Arc<dyn Executor>>, redactor: &Redactor) -> Self {
        for server in &servers {
            server.inner.set_redactor(redactor);
            server.inner.prepare();
        }
        Self { tools: SessionTools::new(servers, files) }
    }

    /// Waits until each required server has listed its tools or failed. The wait for each server is limited by its start-up timeout.
    pub async fn wait_required(&self) {
        let required = self.tools.servers().iter().filter(|server| server.spec().required);
        join_all(required.map(|server| server.inner.wait_listed())).await;
    }

    /// The servers whose tools are missing because a start failed.
    #[must_use]
    pub fn failures(&self) -> Vec<ToolServerFailure> {
        let servers = self.tools.servers().iter();
        let failures = servers.filter_map(|server| {
            let error = server.inner.failure()?;
            Some(ToolServerFailure {
                server: server.spec().name.to_string(),
                reason: error.to_string(),
                needs_authorization: matches!(error, McpError::NeedsAuthorization { .. }),
            })
        });
        failures.collect()
    }

    /// All servers with their current states.
    #[must_use]
    pub fn report(&self) -> Vec<ServerReport> {
        let report = |server: &Arc<McpServer>| ServerReport {
            name: server.spec().name.to_string(),
            state: server.state(),
        };
        self.tools.servers().iter().map(report).collect()
    }
}

impl ToolSource for McpServers {
    fn tools(&self) -> Arc<SourcedTools> {
        self.tools.current()
    }
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServers").field("servers", &self.tools.servers()).finish_non_exhaustive()
    }
}
