//! [`HttpService`]: serves clients over Streamable HTTP, in the newest revision of the protocol and in earlier ones.
//!
//! Since the revision 2026-07-28, each request is independent. In earlier revisions, a client begins a session with `initialize` and names
//! it in each request.
//!
//! State: the sessions of clients of earlier revisions, in memory. They end with the service or with [`HttpService::end_session`].

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::ServedClient;
use super::handler::Handler;

/// The header that names the session, in requests and in the response that begins a session.
pub const SESSION_HEADER: &str = "mcp-session-id";

/// Serves clients over Streamable HTTP. It checks neither credentials nor `Host` nor `Origin`: the caller must do that first.
pub struct HttpService {
    service: StreamableHttpService<Handler, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    /// Ends all sessions and streams when the service is dropped.
    _ending: DropGuard,
}

impl HttpService {
    /// A service that refuses bodies of more than `max_body` bytes. Its sessions and streams end with it.
    #[must_use]
    pub fn new(max_body: usize) -> Self {
        let mut sessions = LocalSessionManager::default();
        // The caller ends idle sessions, since it knows which ones are in use.
        sessions.session_config.keep_alive = None;
        let sessions = Arc::new(sessions);
        let ending = CancellationToken::new();
        let config = StreamableHttpServerConfig::default()
            .with_max_request_body_bytes(max_body)
            .with_cancellation_token(ending.clone())
            .disable_allowed_hosts()
            .disable_allowed_origins();
        let service = StreamableHttpService::new(|| Ok(Handler::OfRequest), Arc::clone(&sessions), config);
        Self { service, sessions, _ending: ending.drop_guard() }
    }

    /// Answers a request of this client. The response to `initialize` has the header [`SESSION_HEADER`].
    pub async fn answer<B>(
        &self,
        client: ServedClient,
        mut request: Request<B>,
    ) -> Response<impl Body<Data = Bytes, Error = Infallible> + Send + use<B>>
    where
        B: Body + Send + 'static,
        B::Error: Display,
    {
        request.extensions_mut().insert(client);
        self.service.handle(request).await
    }

    /// Ends all sessions and streams.
    pub fn stop(&self) {
        self.service.config.cancellation_token.cancel();
    }

    /// Ends a session. It does nothing if the session does not exist.
    pub async fn end_session(&self, id: &str) {
        if let Err(error) = self.sessions.close_session(&id.into()).await {
            tracing::warn!(%error, "a session of an MCP client did not end in order");
        }
    }
}

impl std::fmt::Debug for HttpService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpService").finish_non_exhaustive()
    }
}
