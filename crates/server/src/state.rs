//! The state that all handlers share.

use std::sync::Arc;

use conjure_journal::Records;
use conjure_runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::access::{Authenticator, RateLimit};
use crate::http::Connections;
use crate::idempotency::RunningKeys;
use crate::live_settings::LiveSettings;
#[cfg(feature = "mcp")]
use crate::mcp::McpClients;
use crate::options::ServerOptions;

/// The state that all handlers share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) runtime: Runtime,
    /// The rows of agents, environments and sessions.
    pub(crate) records: Arc<dyn Records>,
    pub(crate) options: ServerOptions,
    /// The current settings, which a reload replaces.
    pub(crate) settings: LiveSettings,
    /// Admits requests.
    pub(crate) admission: Authenticator,
    /// Limits the requests of each key.
    pub(crate) rate_limit: RateLimit,
    /// Locked while the outputs of a session are stored as files.
    pub(crate) collecting_outputs: tokio::sync::Mutex<()>,
    /// The idempotency keys whose first request is being handled.
    pub(crate) running_keys: RunningKeys,
    /// The clients of the MCP server.
    #[cfg(feature = "mcp")]
    pub(crate) mcp: Arc<McpClients>,
    /// The server's connections and tasks. The shutdown waits for the tasks.
    pub(crate) connections: Connections,
    /// Cancelled when the server stops, so that streams end with a last event.
    pub(crate) closing: CancellationToken,
}
