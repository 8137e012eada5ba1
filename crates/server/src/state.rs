//! The state that all handlers share.

use std::future::Future;
use std::sync::Arc;

use conjure_base::{KeyedLocks, SessionId, TenantId};
use conjure_journal::Records;
use conjure_runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::access::{Authenticator, RateLimit};
use crate::http::{ApiError, Connections};
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
    /// Locked while the outputs of a session are stored as files or deleted.
    pub(crate) collecting_outputs: KeyedLocks<(TenantId, SessionId)>,
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

impl ServerState {
    /// Runs `work` to its end, even if the client disconnects. The shutdown waits for it.
    ///
    /// # Errors
    /// Those of `work`. 500 if the server stops before its end.
    pub(crate) async fn run_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let dropping = self.connections.dropping.clone();
        let task = async move {
            tokio::select! {
                biased;
                () = dropping.cancelled() => Err(ApiError::internal("the server stops").with_unknown_outcome()),
                done = work => done,
            }
        };
        self.connections.tasks.spawn(task.in_current_span()).await.map_err(|error| {
            tracing::error!(%error, "the task of a request failed");
            ApiError::internal("the server failed; its log has the cause").with_unknown_outcome()
        })?
    }
}
