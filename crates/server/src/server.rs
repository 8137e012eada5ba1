//! A server: its socket, start and shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn_with_state, map_request};
use conjure_base::{KeyedLocks, SessionId, TenantId};
use conjure_runtime::{Runtime, RuntimeError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::{ApiKeys, ApiKeysError, AuthenticationMode, Authenticator, RateLimit};
use crate::expiry::keep_deleting_expired;
use crate::http::request_scope;
use crate::http::{Connections, accept, limit_body_time, method_not_allowed, not_found};
use crate::idempotency::RunningKeys;
use crate::live_settings::LiveSettings;
#[cfg(feature = "mcp")]
use crate::mcp::{McpClients, keep_sweeping};
use crate::options::ServerOptions;
use crate::reload::ServerHandle;
use crate::routes;
use crate::sessions::sweep;
use crate::state::ServerState;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The server cannot listen on the address.
    #[error("the server cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        reason: std::io::Error,
    },
    /// The sessions cannot be listed.
    #[error("the sessions cannot be listed: {0}")]
    Sessions(#[from] RuntimeError),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] ApiKeysError),
    /// Other machines can reach the address, and there are no keys.
    #[error(
        "the server listens on {address} only if there are keys, since other machines reach it there; create one with `conjure keys create`"
    )]
    NotLocal {
        /// The address.
        address: SocketAddr,
    },
}

/// A Managed Agents API server that is listening.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    connections: Connections,
    options: ServerOptions,
    state: Arc<ServerState>,
    /// The sessions that existed before this server created any.
    former_sessions: Vec<(TenantId, SessionId)>,
    needs_keys: bool,
}

impl Server {
    /// Starts to listen. Requests wait until [`Server::serve`] is called.
    ///
    /// # Errors
    /// - The server cannot listen on the address.
    /// - Other machines can reach the address, and there are no keys.
    /// - The keys or the sessions cannot be read.
    pub async fn bind(options: ServerOptions, runtime: Runtime) -> Result<Self, ServeError> {
        let wanted = options.listen;
        let failed = |reason| ServeError::Listen { address: wanted, reason };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        Self::with_listener(listener, options, runtime).await
    }

    /// Uses a socket that is listening already. The address in the options is ignored.
    ///
    /// # Errors
    /// - Other machines can reach the address, and there are no keys.
    /// - The keys or the sessions cannot be read.
    pub async fn with_listener(
        listener: TcpListener,
        options: ServerOptions,
        runtime: Runtime,
    ) -> Result<Self, ServeError> {
        let wanted = options.listen;
        let address =
            listener.local_addr().map_err(|reason| ServeError::Listen { address: wanted, reason })?;
        let records = runtime.records();
        let admission = Authenticator::new(ApiKeys::new(Arc::clone(&records)), options.tenant.clone());
        let mode = admission.mode().await?;
        if mode == AuthenticationMode::Local && !address.ip().is_loopback() {
            return Err(ServeError::NotLocal { address });
        }
        let closing = CancellationToken::new();
        let connections = Connections::new(options.connections, closing.clone(), options.tls.clone());
        let state = Arc::new(ServerState {
            runtime,
            records,
            options: options.clone(),
            admission,
            settings: LiveSettings::new(options.serve.clone()),
            rate_limit: RateLimit::per_minute(options.serve.requests_per_minute),
            collecting_outputs: KeyedLocks::default(),
            running_keys: RunningKeys::default(),
            #[cfg(feature = "mcp")]
            mcp: Arc::new(McpClients::new(options.body_limit)),
            connections: connections.clone(),
            closing,
        });
        let router = router(&state);
        let mut former_sessions = Vec::new();
        for tenant in state.admission.tenants().await? {
            let ids = state.runtime.session_ids(&tenant).await?;
            former_sessions.extend(ids.into_iter().map(|id| (tenant.clone(), id)));
        }
        let needs_keys = mode == AuthenticationMode::Keys;
        Ok(Self { listener, address, router, connections, options, state, former_sessions, needs_keys })
    }

    /// The address of the socket, with the port that the system chose.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for clients. Its scheme is `https` if the server has a certificate.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.connections.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// A handle that changes the settings of the running server.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle::new(Arc::clone(&self.state))
    }

    /// Whether requests needed a key when the server was created. Without keys, programs on this machine are admitted. As soon as a key
    /// exists, requests need one.
    #[must_use]
    pub const fn needs_keys(&self) -> bool {
        self.needs_keys
    }

    /// Answers requests until `stop` completes. Streams then end with a last event. Requests in progress may finish within
    /// [`ServerOptions::shutdown_time`]. The runtime is not shut down.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let Self { listener, router, connections, options, state, former_sessions, .. } = self;
        connections.tasks.spawn(keep_deleting_expired(Arc::clone(&state)));
        #[cfg(feature = "mcp")]
        let mcp = Arc::clone(&state.mcp);
        #[cfg(feature = "mcp")]
        connections.tasks.spawn(keep_sweeping(Arc::clone(&mcp), connections.closing.clone()));
        connections.tasks.spawn(async move { sweep(&state, former_sessions).await });
        let stopped = connections.closing.clone();
        if let Some(metrics) = options.metrics.clone() {
            connections.tasks.spawn(async move {
                tokio::select! {
                    () = metrics.keep_up() => {}
                    () = stopped.cancelled() => {}
                }
            });
        }
        let accepting = accept(listener, router, connections.clone());
        tokio::pin!(accepting);
        tokio::select! {
            () = stop => {}
            () = &mut accepting => {}
        }
        connections.closing.cancel();
        accepting.await;
        connections.tasks.close();
        if tokio::time::timeout(options.shutdown_time, connections.tasks.wait()).await.is_err() {
            connections.dropping.cancel();
            connections.tasks.wait().await;
        }
        #[cfg(feature = "mcp")]
        mcp.end().await;
    }
}

fn router(state: &Arc<ServerState>) -> Router {
    let router = routes::all().into_iter().fold(Router::new(), |router, route| route.add_to(router, state));
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(state), request_scope))
        .layer(map_request(limit_body_time))
        .layer(DefaultBodyLimit::max(state.options.body_limit))
        .with_state(Arc::clone(state))
}
