//! [`McpClients`]: who is a client, which sandbox is whose, and when both end.
//!
//! Since the revision 2026-07-28 of the protocol, a client is a key, or this machine where there are no keys. In the era before, each session is
//! one, and belongs to the key that began it.
//!
//! State, in memory: the clients. A restart ends their sandboxes and sessions.

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

/// After how long without a request a client is forgotten, and a session ends.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(3_600);

/// How many sessions a key may have at once.
const MAX_SESSIONS: usize = 16;

/// How often idle clients and sandboxes are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);

/// How long the end of a sandbox may take.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Whom a client belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    tenant: TenantId,
    /// `None` on a server without keys.
    key: Option<ApiKeyId>,
}

impl From<&Caller> for Owner {
    fn from(caller: &Caller) -> Self {
        Self { tenant: caller.tenant.clone(), key: caller.key }
    }
}

/// Which client it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ClientId {
    owner: Owner,
    /// The session; `None` for requests without one.
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
    /// How many requests are being answered.
    requests: usize,
    /// When it counts as idle, if no request is being answered.
    idle_at: Deadline,
}

impl Client {
    /// Whether something is done for it.
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

    /// Answers the requests of clients.
    pub(crate) const fn service(&self) -> &HttpService {
        &self.service
    }

    /// Counts a request of a known client, in this session or in none, and returns what the client is offered.
    pub(super) fn begin_request(&self, id: &ClientId) -> Option<ServedClient> {
        let mut clients = lock(&self.clients);
        let client = clients.get_mut(id)?;
        client.requests += 1;
        Some(client.served.clone())
    }

    /// The request was answered.
    pub(super) fn end_request(&self, id: &ClientId) {
        if let Some(client) = lock(&self.clients).get_mut(id) {
            client.requests = client.requests.saturating_sub(1);
            client.idle_at = SystemClock.deadline(CLIENT_IDLE_TIMEOUT);
        }
    }

    /// The client of this caller, in this session or in none.
    pub(super) fn id(caller: &Caller, session: Option<&str>) -> ClientId {
        ClientId::new(caller, session)
    }

    /// Takes in a client that has no session. One that came first stays.
    pub(crate) fn insert(&self, caller: &Caller, new: NewClient) {
        lock(&self.clients).entry(ClientId::new(caller, None)).or_insert_with(|| new.into());
    }

    /// Takes in the client of a session that has just begun. If the caller has too many, the one that was idle for the longest time ends.
    ///
    /// # Errors
    /// 429 if all sessions of the caller are in use. The new one has ended then.
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

    /// Ends idle sandboxes, and forgets idle clients.
    async fn sweep(&self) {
        let (tools, ended) = {
            let mut clients = lock(&self.clients);
            // The time of a task counts as use, so that its result can be fetched.
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
        join_all(tools.iter().map(|tools| in_time(tools.close_if_idle()))).await;
    }

    /// Ends all sessions and sandboxes. No request is being answered any more.
    pub(crate) async fn end(&self) {
        self.service.stop();
        let clients = std::mem::take(&mut *lock(&self.clients));
        join_all(clients.into_iter().map(|(id, client)| self.finish(id, client))).await;
    }

    async fn finish(&self, id: ClientId, client: Client) {
        if let Some(session) = &id.session {
            self.service.end_session(session).await;
        }
        in_time(client.tools.close()).await;
    }
}

/// Waits for the end of a sandbox. One that takes too long ends when it is dropped.
async fn in_time(ending: impl Future<Output = ()>) {
    if tokio::time::timeout(END_TIMEOUT, ending).await.is_err() {
        tracing::warn!("a sandbox of an MCP client did not end in time");
    }
}

/// Ends what is idle, until the server closes.
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
