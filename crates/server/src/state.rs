//! What all handlers share.

use std::sync::Arc;

use conjure_journal::Records;
use conjure_runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::access::{Admission, RateLimit};
use crate::http::Connections;
use crate::idempotency::RunningKeys;
use crate::live_settings::LiveSettings;
#[cfg(feature = "mcp")]
use crate::mcp::McpClients;
use crate::options::ServerOptions;

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) runtime: Runtime,
    /// The rows of agents, environments and sessions.
    pub(crate) records: Arc<dyn Records>,
    pub(crate) options: ServerOptions,
    /// The settings in force, which a reload exchanges.
    pub(crate) settings: LiveSettings,
    /// Lets requests in.
    pub(crate) admission: Admission,
    /// How many requests each key may make.
    pub(crate) rate_limit: RateLimit,
    /// Held while outputs of a session become files.
    pub(crate) collecting_outputs: tokio::sync::Mutex<()>,
    /// The idempotency keys whose first request is being answered.
    pub(crate) running_keys: RunningKeys,
    /// The clients of the MCP server.
    #[cfg(feature = "mcp")]
    pub(crate) mcp: Arc<McpClients>,
    /// The tasks of the server, which its end waits for.
    pub(crate) connections: Connections,
    /// Cancelled when the server stops: streams end with a last event.
    pub(crate) closing: CancellationToken,
}
