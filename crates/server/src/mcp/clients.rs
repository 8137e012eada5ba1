//! [`McpClients`]: the MCP clients of a server, with their sandboxes and their lifetimes.
//!
//! Since revision 2026-07-28 of the protocol, each key is one client. Without keys, this machine is one client. In earlier revisions, each
//! session is one client and belongs to the key that began it.
//!
//! State: the clients, in memory. A restart ends their sandboxes and sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock, TenantId, lock};
use conjure_mcp::server::{HttpService, ServedClient};
use conjure_runtime::SandboxTools;
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::new_client::NewClient;
use crate::access::{ApiKeyId, Caller};
use crate::http::ApiError;

/// The idle time after which a client is removed and its session ends.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The maximum number of sessions per key.
const MAX_SESSIONS: usize = 16;

/// The interval of the search for idle clients and sandboxes.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);

/// The timeout for closing a sandbox.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The owner of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    tenant: TenantId,
    /// The key; `None` on a server without keys.
    key: Option<ApiKeyId>,
}

impl From<&Caller> for Owner {
    fn from(caller: &Caller) -> Self {
        Self { tenant: caller.tenant.clone(), key: caller.key }
    }
}

/// Identifies a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientId {
    owner: Owner,
    /// The session; `None` for requests without a session.
    session: Option<String>,
}

impl ClientId {
    fn new(caller: &Caller, session: Option<&str>) -> Self {
        Self { owner: caller.into(), session: session.map(str::to_owned) }
    }
}

struct Client {
    served: ServedClient,
    tools: Arc<SandboxTools>,
    /// The number of requests that are being answered.
    requests: usize,
    /// The time from which the client is idle, if no request is being answered.
    idle_at: Deadline,
}

impl Client {
    /// Whether a request or a task of the client is running.
    fn is_busy(&self) -> bool {
        self.requests > 0 || self.served.running_tasks() > 0
    }
}

impl From<NewClient> for Client {
    fn from(new: NewClient) -> Self {
        let idle_at = SystemClock.deadline(CLIENT_IDLE_TIMEOUT);
        Self { served: new.client, tools: new.tools, requests: 0, idle_at }
    }
}

/// The clients of a server.
#[derive(Debug)]
pub(crate) struct McpClients {
    service: HttpService,
    clients: Mutex<HashMap<ClientId, Client>>,
}

impl McpClients {
    pub(crate) fn new(max_body: usize) -> Self {
        Self { service: HttpService::new(max_body), clients: Mutex::default() }
    }

    /// The service that answers the clients' requests.
    pub(crate) const fn service(&self) -> &HttpService {
        &self.service
    }

    /// Counts a request of a known client, and returns the client's offer.
    pub(super) fn begin_request(&self, id: &ClientId) -> Option<ServedClient> {
        let mut clients = lock(&self.clients);
        let client = clients.get_mut(id)?;
        client.requests += 1;
        Some(client.served.clone())
    }

    /// Records that a request was answered.
    pub(super) fn end_request(&self, id: &ClientId) {
        if let Some(client) = lock(&self.clients).get_mut(id) {
            client.requests = client.requests.saturating_sub(1);
            client.idle_at = SystemClock.deadline(CLIENT_IDLE_TIMEOUT);
        }
    }

    /// The id of this caller's client, in this session or without one.
    pub(super) fn id(caller: &Caller, session: Option<&str>) -> ClientId {
        ClientId::new(caller, session)
    }

    /// Adds a client without a session. If there is one already, it is kept.
    pub(crate) fn insert(&self, caller: &Caller, new: NewClient) {
        lock(&self.clients).entry(ClientId::new(caller, None)).or_insert_with(|| new.into());
    }

    /// Adds the client of a new session. If the caller has too many sessions, the one that is idle for the longest time ends.
    ///
    /// # Errors
    /// 429 if all sessions of the caller are in use. The new session is then ended.
    pub(crate) async fn insert_session(
        &self,
        caller: &Caller,
        session: &str,
        new: NewClient,
    ) -> Result<(), ApiError> {
        let owner = Owner::from(caller);
        let (room, ended) = {
            let mut clients = lock(&self.clients);
            let of_owner = || clients.iter().filter(|(id, _)| id.owner == owner && id.session.is_some());
            let is_full = of_owner().count() >= MAX_SESSIONS;
            let idle = of_owner().filter(|(_, client)| !client.is_busy());
            let longest = idle.min_by_key(|(_, client)| client.idle_at.instant()).map(|(id, _)| id.clone());
            let ended = longest.filter(|_| is_full).and_then(|id| clients.remove_entry(&id));
            let room = !is_full || ended.is_some();
            if room {
                clients.insert(ClientId::new(caller, Some(session)), new.into());
            }
            (room, ended)
        };
        if let Some((id, client)) = ended {
            self.finish(id, client).await;
        }
        if room {
            return Ok(());
        }
        self.service.end_session(session).await;
        Err(ApiError::rate_limited(
            format!(
                "this key has {MAX_SESSIONS} sessions in use; end one with `DELETE /mcp` and its `Mcp-Session-Id`"
            ),
            SWEEP_INTERVAL,
        ))
    }

    /// Ends a session of this caller, and its sandbox.
    pub(crate) async fn end_session(&self, caller: &Caller, session: &str) {
        let ended = lock(&self.clients).remove_entry(&ClientId::new(caller, Some(session)));
        if let Some((id, client)) = ended {
            self.finish(id, client).await;
        }
    }

    /// Closes idle sandboxes, and removes idle clients.
    async fn sweep(&self) {
        let (tools, ended) = {
            let mut clients = lock(&self.clients);
            // A running task counts as use, so that the client can fetch its result later.
            for client in clients.values_mut().filter(|client| client.served.running_tasks() > 0) {
                client.idle_at = SystemClock.deadline(CLIENT_IDLE_TIMEOUT);
            }
            let is_idle =
                |client: &mut Client| !client.is_busy() && SystemClock.remaining(client.idle_at).is_zero();
            let ended: Vec<_> = clients.extract_if(|_, client| is_idle(client)).collect();
            let tools: Vec<_> = clients.values().map(|client| Arc::clone(&client.tools)).collect();
            (tools, ended)
        };
        join_all(ended.into_iter().map(|(id, client)| self.finish(id, client))).await;
        join_all(tools.iter().map(|tools| with_end_timeout(tools.close_if_idle()))).await;
    }

    /// Ends all sessions and sandboxes. Call it when no request is being answered any more.
    pub(crate) async fn end(&self) {
        self.service.stop();
        let clients = std::mem::take(&mut *lock(&self.clients));
        join_all(clients.into_iter().map(|(id, client)| self.finish(id, client))).await;
    }

    async fn finish(&self, id: ClientId, client: Client) {
        if let Some(session) = &id.session {
            self.service.end_session(session).await;
        }
        with_end_timeout(client.tools.close()).await;
    }
}

/// Waits for a sandbox to close. After the timeout it is closed by being dropped.
async fn with_end_timeout(ending: impl Future<Output = ()>) {
    if tokio::time::timeout(END_TIMEOUT, ending).await.is_err() {
        tracing::warn!("a sandbox of an MCP client did not end in time");
    }
}

/// Removes idle clients and sandboxes until the server closes.
pub(crate) async fn keep_sweeping(clients: Arc<McpClients>, closing: CancellationToken) {
    loop {
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            () = tokio::time::sleep(SWEEP_INTERVAL) => clients.sweep().await,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("requests", &self.requests).finish_non_exhaustive()
    }
}
