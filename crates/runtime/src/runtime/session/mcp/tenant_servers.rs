//! [`TenantServers`]: MCP servers that all sessions of a tenant share.
//!
//! Such a server starts with the first live session that uses it, and ends with the last one. Its sandbox runs below a
//! supervisor of its own, next to those of the sessions.
//!
//! State, in memory: the servers that sessions use, and the supervisors of their sandboxes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use conjure_actors::executors::{ExecutorSource, SupervisedExecutorBuilder};
use conjure_actors::supervision::{
    ChildId, ChildSpec, Failure, IntensityScope, RequestError, SpecError, Supervisor, SupervisorSpec,
};
use conjure_base::{Clock as _, Deadline, Redactor, SystemClock, TenantId, lock};
use conjure_mcp::McpServer;
use conjure_sandbox::Executor;
use tokio_util::sync::CancellationToken;

use super::server_parts::{ServerParts, secrets};
use crate::runtime::error::RuntimeError;
use crate::runtime::task_set::TaskSet;

/// How long the start or the end of a supervisor may take.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause before another attempt to end a sandbox.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The shared servers of all tenants. Two tenants never share a server.
#[derive(Debug)]
pub(crate) struct TenantServers {
    supervisor: Supervisor,
    servers: Mutex<HashMap<(TenantId, String), Weak<McpServer>>>,
    /// Locked while a session starts a server, so that only one session starts it.
    starting: tokio::sync::Mutex<()>,
    sandboxes: Arc<Mutex<Sandboxes>>,
    /// The tasks that end the sandboxes of unused servers.
    ending: TaskSet,
}

/// The supervisors of the servers' sandboxes.
#[derive(Debug, Default)]
struct Sandboxes {
    created: u64,
    tenants: HashMap<ChildId, TenantId>,
}

impl TenantServers {
    /// Creates an empty set of servers, and the spec of the supervisor below which their sandboxes will run.
    pub(crate) fn new() -> Result<(ChildSpec, Self), SpecError> {
        let spec = SupervisorSpec::dynamic(ChildId::new("mcp-servers")?);
        let (actor, supervisor) = spec.intensity_scope(IntensityScope::PerChild).build();
        let servers = Self {
            supervisor,
            servers: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            sandboxes: Arc::default(),
            ending: TaskSet::default(),
        };
        Ok((actor, servers))
    }

    /// The server of this name, if a session of the tenant uses it.
    pub(super) fn get(&self, tenant: &TenantId, name: &str) -> Option<Arc<McpServer>> {
        lock(&self.servers).get(&(tenant.clone(), name.to_owned())).and_then(Weak::upgrade)
    }

    /// The server that the tenant's sessions share. Starts it if no session uses it.
    pub(super) async fn get_or_start(
        &self,
        tenant: &TenantId,
        part: ServerParts,
        source: Arc<dyn ExecutorSource>,
        executors: &SupervisedExecutorBuilder,
    ) -> Result<Arc<McpServer>, Failure> {
        let _start_guard = self.starting.lock().await;
        let name = (tenant.clone(), part.spec.name.to_string());
        if let Some(server) = self.get(tenant, &name.1) {
            return Ok(server);
        }
        let id = lock(&self.sandboxes).add(tenant)?;
        // Dropping the guard ends the sandbox, also if a later step fails.
        let in_use = CancellationToken::new();
        self.end_after(id.clone(), in_use.clone());
        let in_use = in_use.drop_guard();
        let (actor, executor) = executors.supervise_detached(id, source)?;
        self.supervisor.start_child(actor, SystemClock.deadline(SUPERVISOR_TIMEOUT)).await?;
        let redactor = Redactor::new(secrets(std::slice::from_ref(&part)));
        let executor: Arc<dyn Executor> = Arc::new(executor);
        let server = Arc::new(part.server(Some(executor)).shared(&redactor, Arc::new(in_use)));
        let mut servers = lock(&self.servers);
        servers.retain(|_, server| server.strong_count() > 0);
        servers.insert(name, Arc::downgrade(&server));
        Ok(server)
    }

    /// Starts a task that ends a sandbox as soon as its server is unused.
    fn end_after(&self, id: ChildId, unused: CancellationToken) {
        let (supervisor, sandboxes) = (self.supervisor.clone(), Arc::clone(&self.sandboxes));
        self.ending.spawn(async move {
            unused.cancelled().await;
            loop {
                let deadline = SystemClock.deadline(SUPERVISOR_TIMEOUT);
                let Err(error) = end(&supervisor, &sandboxes, &id, deadline).await else { return };
                tracing::warn!(sandbox = id.as_str(), %error, "the sandbox of an MCP server has not ended yet");
                SystemClock.sleep_until(SystemClock.deadline(RETRY_PAUSE)).await;
            }
        });
    }

    /// Stops the tasks that wait for unused servers. Called when no server is left.
    pub(crate) async fn close(&self, deadline: Deadline) {
        self.ending.close(deadline).await;
    }

    /// Ends the sandboxes of a tenant. The tenant must not have sessions any more.
    pub(crate) async fn end_tenant(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), RuntimeError> {
        let ids = lock(&self.sandboxes).ids_of_tenant(tenant);
        for id in ids {
            let ended = end(&self.supervisor, &self.sandboxes, &id, deadline).await;
            ended.map_err(|error| RuntimeError::interrupted("ending a tenant's MCP servers", &error))?;
        }
        Ok(())
    }
}

impl Sandboxes {
    /// Registers another supervisor of the tenant, and returns its id.
    fn add(&mut self, tenant: &TenantId) -> Result<ChildId, SpecError> {
        self.created += 1;
        let id = ChildId::new(format!("server-{}", self.created))?;
        self.tenants.insert(id.clone(), tenant.clone());
        Ok(id)
    }

    fn ids_of_tenant(&self, tenant: &TenantId) -> Vec<ChildId> {
        let of_tenant = self.tenants.iter().filter(|(_, owner)| *owner == tenant);
        of_tenant.map(|(id, _)| id.clone()).collect()
    }
}

/// Ends a sandbox with its supervisor and forgets it. Does not fail if it has ended already.
async fn end(
    supervisor: &Supervisor,
    sandboxes: &Mutex<Sandboxes>,
    id: &ChildId,
    deadline: Deadline,
) -> Result<(), RequestError> {
    match supervisor.terminate_child(id, deadline).await {
        Ok(())
        | Err(RequestError::NotFound(_) | RequestError::NotRunning(_) | RequestError::ShuttingDown(_)) => {}
        Err(error) => return Err(error),
    }
    lock(sandboxes).tenants.remove(id);
    Ok(())
}
