//! The handle of the session runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, Redactor, SessionId, SystemClock, TenantId, with_deadline};
use conjure_conversation::{SessionOverview, SessionState};
use conjure_journal::{AppendBatch, Epoch, Journal, JournalError, LeaseOwner, SessionKey};
use tokio_util::sync::CancellationToken;

use super::error::TreeError;
use super::options::{Health, NewSession, TreeOptions, TurnAdmission};
use super::session_index::SessionIndex;
use super::tenant_supervisors::{StopIdleTenants, TenantSupervisors};
use crate::catalogs::CatalogRegistry;
use crate::journal::{JournalCallError, JournalHandle, journal_actor};
use crate::maintenance::MaintenanceScheduler;
use crate::maintenance::maintenance;
use crate::metrics::RuntimeMetrics;
use crate::session::{
    Session, SessionEntry, SessionError, SessionServices, encoded, first_events, session_child_spec, to_row,
};
use crate::supervision::{
    ActorTree, ChildId, ChildSpec, Intensity, IntensityScope, Partitions, RequestError, Root, StartError,
    Strategy, SupervisorSpec,
};
use crate::tenants::{TenantAccounts, TenantLimits};

/// The sessions of many tenants, supervised. Cheap to clone. Dropping the last clone stops everything in order in the
/// background; use [`SessionRuntime::shutdown`] to wait for that.
#[derive(Clone)]
pub struct SessionRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    root: Root,
    services: SessionServices,
    registry: CatalogRegistry,
    index: Arc<SessionIndex>,
    tenants: Arc<TenantSupervisors>,
    maintenance: MaintenanceScheduler,
}

impl SessionRuntime {
    /// Starts the tree. Returns when the journal is open.
    ///
    /// # Errors
    /// If the journal cannot be opened in time.
    pub async fn spawn(options: TreeOptions) -> Result<Self, TreeError> {
        Self::spawn_with_pools(options, Vec::new()).await
    }

    /// Starts the tree with pools ([`crate::pool::Pool::spec`]), each under its own restart limit. Does not wait until the
    /// pools are filled. Pools stop after all sessions.
    ///
    /// # Errors
    /// As for [`SessionRuntime::spawn`].
    pub async fn spawn_with_pools(options: TreeOptions, pools: Vec<ChildSpec>) -> Result<Self, TreeError> {
        let (journal, access) = journal_actor(options.journal, options.journal_timeout)?;
        let (registry_spec, registry) = CatalogRegistry::spec(options.registry)?;
        let (tenants_spec, partitions) =
            Partitions::spec(ChildId::new("tenants")?, options.partitions, TenantSupervisors::partition)?;
        let (tenants_spec, _) = tenants_spec.build();
        let tenants = TenantSupervisors::new(partitions);
        let accounts = TenantAccounts::new(access.clone(), options.clock);
        let tasks = options.maintenance_tasks.into_iter().chain([StopIdleTenants::task(&tenants, &accounts)]);
        let (maintenance_spec, maintenance) = maintenance(tasks.collect())?;
        let (pools_spec, pools_supervisor) =
            SupervisorSpec::dynamic(ChildId::new("pools")?).intensity_scope(IntensityScope::PerChild).build();
        // The limit is high, so that a lost journal is opened again however long that takes. Meanwhile sessions only wait.
        let spec = SupervisorSpec::ordered(ChildId::new("root")?, Strategy::OneForOne)
            .intensity(Intensity::new(1_000, Duration::from_secs(5)))
            .child(journal)?
            .child(registry_spec)?
            .child(pools_spec)?
            .child(tenants_spec)?
            .child(maintenance_spec)?;
        let (spec, _) = spec.build();
        let deadline = SystemClock.deadline(options.start_timeout);
        let root = Root::spawn(spec, deadline).await.map_err(TreeError::NotStarted)?;
        for pool in pools {
            pools_supervisor.start_child(pool, deadline).await.map_err(TreeError::NotStarted)?;
        }
        let services = SessionServices {
            journal: access,
            session_factory: options.session_factory,
            options: Arc::new(options.sessions),
            metrics: RuntimeMetrics::new(options.metrics),
            draining: CancellationToken::new(),
            accounts,
        };
        Ok(Self {
            inner: Arc::new(Inner { root, services, registry, index: Arc::default(), tenants, maintenance }),
        })
    }

    /// Opens a new session: records it with its profile, and starts it.
    ///
    /// # Errors
    /// If it cannot be recorded or started. Recorded events stay, even if the start fails.
    pub async fn open(&self, spec: NewSession) -> Result<Session, TreeError> {
        if self.is_draining() {
            return Err(TreeError::Draining);
        }
        let id = spec.id.map_or_else(SessionId::random, Ok).map_err(TreeError::NoEntropy)?;
        let key = SessionKey::new(spec.tenant, id);
        let events =
            if spec.events.is_empty() { first_events(spec.profile, spec.history)? } else { spec.events };
        let journal = &self.inner.services.journal;
        let _slot = self.inner.services.accounts.record_one(&key.tenant).await?;
        let encoded =
            encoded(&events).map_err(|error| TreeError::JournalUnavailable { reason: error.to_string() })?;
        journal.call(|journal| journal.create(&key)).await.map_err(to_tree_error)?;
        // No other caller knows the session yet, so it is written without a lease.
        let row = to_row(&SessionOverview::after(&SessionState::default(), &events));
        let first = AppendBatch::new(encoded).with_row(row);
        journal
            .call(|journal| journal.append_batch(&key, 0, Epoch::NONE, first))
            .await
            .map_err(to_tree_error)?;
        self.get_or_attach(&key).await
    }

    /// Finds a session that was opened before, by this or another process. An interrupted turn continues.
    ///
    /// # Errors
    /// [`TreeError::NotFound`] if the tenant has no session with this id.
    pub async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Session, TreeError> {
        let key = SessionKey::new(tenant.clone(), id);
        if let Some(entry) = self.inner.index.get(&key) {
            let session = Session::from_entry(entry);
            session.attach().await?;
            return Ok(session);
        }
        // The journal is asked before anything is created, so a guessed id leaves nothing in memory.
        match self.inner.services.journal.call(|journal| journal.session(&key)).await {
            Ok(_) => self.get_or_attach(&key).await,
            Err(JournalCallError::Journal(JournalError::NotFound { .. })) => {
                Err(TreeError::NotFound { session: id })
            }
            Err(error) => Err(to_tree_error(error)),
        }
    }

    /// Starts the session with this key, which must be in the journal.
    async fn get_or_attach(&self, key: &SessionKey) -> Result<Session, TreeError> {
        let deadline = SystemClock.deadline(self.inner.services.options.deadline);
        let parent = match self.inner.tenants.supervisor(&key.tenant, deadline).await {
            Ok(parent) => parent,
            Err(TreeError::Tenant(StartError::Request(
                RequestError::NotRunning(_) | RequestError::ShuttingDown(_),
            ))) => return Err(SessionError::ShuttingDown.into()),
            Err(error) => return Err(error),
        };
        let services = self.inner.services.clone();
        let create = |on_drop| SessionEntry::new(key.clone(), services, parent, session_child_spec, on_drop);
        let session = Session::from_entry(self.inner.index.get_or_insert(key, create));
        session.attach().await?;
        Ok(session)
    }

    /// Whether a session is live in this process or has a handle here.
    #[must_use]
    pub fn contains(&self, key: &SessionKey) -> bool {
        self.inner.index.get(key).is_some()
    }

    /// Redacts these secrets in a session from now on; see [`Session::add_secrets`]. Does nothing if the session is not
    /// known here.
    pub fn add_secrets(&self, key: &SessionKey, secrets: &Redactor) {
        if let Some(entry) = self.inner.index.get(key) {
            entry.add_secrets(secrets);
        }
    }

    /// Stops a session in order and waits until nothing of it runs here. A message through one of its handles revives
    /// it.
    ///
    /// # Errors
    /// If it did not stop before the deadline.
    pub async fn stop(&self, key: &SessionKey, deadline: Deadline) -> Result<(), TreeError> {
        let Some(supervisor) = self.inner.tenants.get(&key.tenant) else { return Ok(()) };
        let child = ChildId::new(key.session.to_string())?;
        match supervisor.terminate_child(&child, deadline).await {
            // The session is not live.
            Ok(()) | Err(RequestError::NotFound(_) | RequestError::NotRunning(_)) => Ok(()),
            Err(error) => Err(TreeError::NotStopped { session: key.session, reason: error.to_string() }),
        }
    }

    /// Deletes a session here and in the journal. A live session is stopped first.
    ///
    /// # Errors
    /// [`TreeError::NotFound`] if the tenant has no session with this id; [`SessionError::TakenOver`] if another process
    /// has the session; [`TreeError::NotStopped`] if it did not stop before the deadline. In this last case it is
    /// unknown whether it was deleted.
    pub async fn delete(&self, key: &SessionKey, deadline: Deadline) -> Result<(), TreeError> {
        self.delete_as(key, None, deadline).await
    }

    /// Deletes a session if it still has exactly this many `events`.
    ///
    /// # Errors
    /// As for [`SessionRuntime::delete`]; [`JournalError::Conflict`] if it has a different number. Then it is kept.
    pub async fn delete_unchanged(
        &self,
        key: &SessionKey,
        events: u64,
        deadline: Deadline,
    ) -> Result<(), TreeError> {
        self.delete_as(key, Some(events), deadline).await
    }

    async fn delete_as(
        &self,
        key: &SessionKey,
        unchanged: Option<u64>,
        deadline: Deadline,
    ) -> Result<(), TreeError> {
        let SessionServices { journal, options, .. } = &self.inner.services;
        let error_for = |error: JournalCallError| match error {
            JournalCallError::Journal(JournalError::NotFound { .. }) => {
                TreeError::NotFound { session: key.session }
            }
            JournalCallError::Journal(error @ JournalError::LeaseHeld { .. }) => {
                SessionError::TakenOver { reason: error.to_string() }.into()
            }
            error => to_tree_error(error),
        };
        let info = journal.call(|journal| journal.session(key)).await.map_err(error_for)?;
        // Checked before the stop, so that a running turn is not interrupted for nothing.
        if let Some(expected) = unchanged.filter(|events| *events != info.events) {
            return Err(TreeError::Journal(JournalError::Conflict { expected, found: info.events }));
        }
        self.stop(key, deadline).await?;
        // This fails if another process has the session. If a handle in this process revives the session meanwhile, the
        // revived actor loses it again.
        let lease = |journal: &dyn Journal| journal.acquire_lease(key, &options.owner, options.lease);
        let lease = journal.call(lease).await.map_err(error_for)?;
        let deleted = journal.call(|journal| match unchanged {
            Some(events) => journal.delete_if_unchanged(key, events),
            None => journal.delete_session(key),
        });
        if let Err(error) = deleted.await {
            if let Err(error) = journal.call(|journal| journal.release_lease(key, lease.epoch)).await {
                tracing::debug!(session = %key, %error, "a lease was not released; it ends by itself");
            }
            return Err(error_for(error));
        }
        let stopped = self.stop(key, deadline).await;
        if let Some(entry) = self.inner.index.get(key) {
            entry.observer.hub.close(SessionError::NotFound { session: key.session });
        }
        stopped
    }

    /// The limits and the spending of tenants.
    #[must_use]
    pub fn accounts(&self) -> &TenantAccounts {
        &self.inner.services.accounts
    }

    /// Sets the limits of a tenant from now on; `None`: the default limits. Requests that waited for them continue.
    pub fn set_limits(&self, tenant: &TenantId, limits: Option<TenantLimits>) {
        self.inner.services.accounts.set(tenant, limits);
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.wake();
        }
    }

    /// Redacts these secrets in all sessions of a tenant; see [`SessionRuntime::add_secrets`].
    pub fn add_secrets_all(&self, tenant: &TenantId, secrets: &Redactor) {
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.add_secrets(secrets);
        }
    }

    /// Stops all sessions of a tenant that are live in this process, and their supervisor. A later use of the tenant
    /// starts the supervisor again, so the caller must prevent such a use.
    ///
    /// # Errors
    /// [`TreeError::Tenant`] if they did not stop before the deadline.
    pub async fn end_tenant(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), TreeError> {
        self.inner.tenants.end(tenant, deadline).await
    }

    /// Deletes all sessions of a tenant and its counters, here and in the journal. Live sessions are stopped first.
    /// Sessions that are opened meanwhile may be lost; the caller must ensure that there are none.
    ///
    /// # Errors
    /// [`SessionError::TakenOver`] if another process has one of them, unless `is_dead` says that this process has
    /// ended; [`TreeError::Tenant`] if they did not stop before the deadline. In both cases nothing is deleted.
    pub async fn delete_tenant(
        &self,
        tenant: &TenantId,
        is_dead: &(dyn Fn(&LeaseOwner) -> bool + Sync),
        deadline: Deadline,
    ) -> Result<(), TreeError> {
        let SessionServices { journal, options, accounts, .. } = &self.inner.services;
        self.inner.tenants.end(tenant, deadline).await?;
        let (mut after, now) = (None, SystemClock.timestamp());
        loop {
            let page = journal
                .call(|journal| journal.sessions(tenant, after, 1_000))
                .await
                .map_err(to_tree_error)?;
            let leases = page.sessions.iter().filter_map(|info| info.lease.as_ref());
            let mut others = leases
                .filter(|lease| lease.owner != options.owner && lease.until > now && !is_dead(&lease.owner));
            if let Some(lease) = others.next() {
                let reason = format!("`{}` has a session of the tenant until {}", lease.owner, lease.until);
                return Err(SessionError::TakenOver { reason }.into());
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        // Its pending charges are dropped; otherwise they would create its counters again.
        accounts.remove(tenant);
        journal.call(|journal| journal.delete_tenant(tenant)).await.map_err(to_tree_error)?;
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.mark_deleted();
        }
        Ok(())
    }

    fn is_draining(&self) -> bool {
        self.inner.services.draining.is_cancelled()
    }

    /// The journal, for requests that concern no session.
    #[must_use]
    pub fn journal(&self) -> &JournalHandle {
        &self.inner.services.journal
    }

    /// The owner in the leases of this process.
    #[must_use]
    pub fn lease_owner(&self) -> &LeaseOwner {
        &self.inner.services.options.owner
    }

    /// The catalog registry.
    #[must_use]
    pub fn registry(&self) -> &CatalogRegistry {
        &self.inner.registry
    }

    /// The maintenance scheduler.
    #[must_use]
    pub fn maintenance(&self) -> &MaintenanceScheduler {
        &self.inner.maintenance
    }

    /// The tree of all actors at this moment. Asks no actor, so it works even if all of them hang.
    #[must_use]
    pub fn tree(&self) -> ActorTree {
        self.inner.root.tree()
    }

    /// The health of the runtime.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            journal_is_open: self.inner.services.journal.is_open(),
            turn_admission: if self.is_draining() { TurnAdmission::Draining } else { TurnAdmission::Open },
            tenants: self.inner.tenants.count(),
            live_sessions: self.inner.tenants.sessions(),
            known_sessions: self.inner.index.count(),
        }
    }

    /// Prevents new turns from starting, and waits until all running turns have ended or wait for a person. Queued
    /// messages stay queued. Only a new runtime starts turns again.
    ///
    /// # Errors
    /// [`SessionError::DeadlinePassed`] if turns still run at the deadline; they continue.
    pub async fn drain(&self, deadline: Deadline) -> Result<(), TreeError> {
        self.inner.services.draining.cancel();
        let empty = async {
            for session in self.inner.index.all() {
                session.wait_idle().await;
            }
        };
        Ok(with_deadline(&SystemClock, deadline, empty).await.map_err(SessionError::from)?)
    }

    /// Stops everything in order. Running turns are interrupted and their ends recorded, leases are released, and the
    /// journal's actor stops last. May be called several times.
    ///
    /// # Errors
    /// If the deadline passed first. The remaining actors were killed. Their sessions recover at the next start.
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), TreeError> {
        self.inner.services.draining.cancel();
        let stopped = self.inner.root.shutdown(deadline).await;
        self.inner.close_subscriptions();
        self.inner.services.journal.close();
        Ok(stopped?)
    }
}

impl Inner {
    /// Closes all subscriptions after their last event.
    fn close_subscriptions(&self) {
        for session in self.index.all() {
            session.observer.hub.close(SessionError::ShuttingDown);
        }
    }
}

/// Closes the subscriptions. The tree stops in the background, and no caller waits for it.
impl Drop for Inner {
    fn drop(&mut self) {
        self.close_subscriptions();
    }
}

fn to_tree_error(error: JournalCallError) -> TreeError {
    match error {
        JournalCallError::Journal(error) => TreeError::Journal(error),
        JournalCallError::Unavailable(waited) => TreeError::JournalUnavailable { reason: waited.to_string() },
    }
}

impl fmt::Debug for SessionRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRuntime").field("health", &self.health()).finish_non_exhaustive()
    }
}
