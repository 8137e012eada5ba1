//! The runtime that a host holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Command, CommandKind, Event, Message, SessionProfile, SessionState, apply, decide,
};
use conjure_journal::{Epoch, Journal, JournalError, LeaseOwner, SessionKey};
use tokio_util::sync::CancellationToken;

use super::error::TreeError;
use super::options::{Health, NewSession, TreeOptions, TurnAdmission};
use super::session_index::SessionIndex;
use super::tenant_supervisors::{StopIdleTenants, TenantSupervisors};
use crate::catalogs::{CatalogRegistry, RegistrySpec};
use crate::journal::{JournalCallError, JournalHandle, journal_actor};
use crate::maintenance::{MaintenanceScheduler, maintenance};
use crate::metrics::RuntimeMetrics;
use crate::session::{Session, SessionEntry, SessionError, SessionServices, encoded};
use crate::supervision::{
    ActorTree, ChildId, ChildSpec, Intensity, IntensityScope, Partitions, RequestError, Root, StartError,
    Strategy, SupervisorSpec,
};
use crate::tenants::{TenantAccounts, TenantLimits};

/// Sessions of many tenants, supervised. Cheap to clone; dropping the last clone stops everything in order, in the
/// background: use [`SessionRuntime::shutdown`] to know.
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
    /// Starts the tree, and returns when the journal is open.
    ///
    /// # Errors
    /// When the journal cannot be opened, or that took too long.
    pub async fn spawn(options: TreeOptions) -> Result<Self, TreeError> {
        Self::spawn_with_pools(options, Vec::new()).await
    }

    /// The same with pools of spares ([`crate::pool::PoolSpec`]), which fail each for itself. They stop after all sessions.
    ///
    /// # Errors
    /// As [`SessionRuntime::spawn`]. No spare is waited for.
    pub async fn spawn_with_pools(options: TreeOptions, pools: Vec<ChildSpec>) -> Result<Self, TreeError> {
        let (journal, access) = journal_actor(options.journal, options.journal_timeout)?;
        let (registry_spec, registry) = RegistrySpec::new().options(options.registry).build()?;
        let (tenants_spec, partitions) =
            Partitions::spec(ChildId::new("tenants")?, options.partitions, TenantSupervisors::partition)?;
        let (tenants_spec, _) = tenants_spec.build();
        let tenants = TenantSupervisors::new(partitions, options.sessions_per_tenant);
        let accounts = TenantAccounts::new(access.clone(), options.clock);
        let tasks = options.maintenance_tasks.into_iter().chain([StopIdleTenants::task(&tenants, &accounts)]);
        let (maintenance_spec, maintenance) = maintenance(tasks.collect())?;
        let (pools_spec, pools_supervisor) =
            SupervisorSpec::dynamic(ChildId::new("pools")?).intensity_scope(IntensityScope::PerChild).build();
        // The journal is opened anew for as long as it takes: without it, sessions only wait.
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

    /// Opens a new session: it is recorded with its profile, and started.
    ///
    /// # Errors
    /// When it cannot be recorded or started. What is recorded stays.
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
        // Nobody else knows of it yet, so it is written without a lease.
        journal.call(|journal| journal.append(&key, 0, Epoch::NONE, encoded)).await.map_err(to_tree_error)?;
        self.get_or_attach(&key).await
    }

    /// A session that was opened before, here or by another process. A turn that was under way goes on.
    ///
    /// # Errors
    /// [`TreeError::NotFound`] when the tenant has none of this id.
    pub async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Session, TreeError> {
        let key = SessionKey::new(tenant.clone(), id);
        if let Some(entry) = self.inner.index.get(&key) {
            let session = Session::from_entry(entry);
            session.attach().await?;
            return Ok(session);
        }
        // Before anything is made for it: ids that somebody guesses leave nothing.
        match self.inner.services.journal.call(|journal| journal.session(&key)).await {
            Ok(_) => self.get_or_attach(&key).await,
            Err(JournalCallError::Journal(JournalError::NotFound { .. })) => {
                Err(TreeError::NotFound { session: id })
            }
            Err(error) => Err(to_tree_error(error)),
        }
    }

    /// The session of a key that is in the journal, started.
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
        let create = |on_drop| SessionEntry::with_on_drop(key.clone(), services, parent, on_drop);
        let session = Session::from_entry(self.inner.index.get_or_insert(key, create));
        session.attach().await?;
        Ok(session)
    }

    /// Whether a session is live in this process, or somebody here holds a handle of it.
    #[must_use]
    pub fn contains(&self, key: &SessionKey) -> bool {
        self.inner.index.get(key).is_some()
    }

    /// What this knows must not leave a session either: see [`Session::add_secrets`]. Nothing, where nobody here has the session.
    pub fn add_secrets(&self, key: &SessionKey, secrets: &Redactor) {
        if let Some(entry) = self.inner.index.get(key) {
            entry.add_secrets(secrets);
        }
    }

    /// Stops a session in order, whatever it does, and waits until nothing of it runs here. A message through a handle of it
    /// revives it.
    ///
    /// # Errors
    /// When it did not end before the deadline.
    pub async fn stop(&self, key: &SessionKey, deadline: Deadline) -> Result<(), TreeError> {
        let Some(supervisor) = self.inner.tenants.get(&key.tenant) else { return Ok(()) };
        let child = ChildId::new(key.session.to_string())?;
        match supervisor.terminate_child(&child, deadline).await {
            // It is not live.
            Ok(()) | Err(RequestError::NotFound(_) | RequestError::NotRunning(_)) => Ok(()),
            Err(error) => Err(TreeError::NotStopped { session: key.session, reason: error.to_string() }),
        }
    }

    /// Forgets a session for ever, here and in the journal: one that is live here is stopped first.
    ///
    /// # Errors
    /// [`TreeError::NotFound`] when the tenant has none of this id; [`SessionError::TakenOver`] when another process has
    /// it; [`TreeError::NotStopped`] when it did not end before the deadline: then it may be forgotten or not.
    pub async fn delete(&self, key: &SessionKey, deadline: Deadline) -> Result<(), TreeError> {
        self.delete_as(key, None, deadline).await
    }

    /// The same for a session in which nothing was recorded since it was looked at, when it held so many `events`.
    ///
    /// # Errors
    /// As [`SessionRuntime::delete`]; [`JournalError::Conflict`] when it holds more by now: it is kept, whoever used it.
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
        // Whoever uses it just now is not interrupted for nothing.
        if let Some(expected) = unchanged.filter(|events| *events != info.events) {
            return Err(TreeError::Journal(JournalError::Conflict { expected, found: info.events }));
        }
        self.stop(key, deadline).await?;
        // Of another process it is not taken. A handle here that revives it meanwhile loses it again.
        let lease = |journal: &dyn Journal| journal.acquire_lease(key, &options.owner, options.lease);
        let lease = journal.call(lease).await.map_err(error_for)?;
        let deleted = journal.call(|journal| match unchanged {
            Some(events) => journal.delete_if_unchanged(key, events),
            None => journal.delete_session(key),
        });
        if let Err(error) = deleted.await {
            if let Err(error) = journal.call(|journal| journal.release_lease(key, lease.epoch)).await {
                tracing::debug!(session = %key, %error, "a lease was not given back; it ends by itself");
            }
            return Err(error_for(error));
        }
        let stopped = self.stop(key, deadline).await;
        if let Some(entry) = self.inner.index.get(key) {
            entry.observer.hub.close(SessionError::NotFound { session: key.session });
        }
        stopped
    }

    /// What tenants may have, and what they have.
    #[must_use]
    pub fn accounts(&self) -> &TenantAccounts {
        &self.inner.services.accounts
    }

    /// What the tenant may have, from now on; `None`: what every tenant may. What waited for that goes on.
    pub fn set_limits(&self, tenant: &TenantId, terms: Option<TenantLimits>) {
        self.inner.services.accounts.set(tenant, terms);
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.wake();
        }
    }

    /// The same as [`SessionRuntime::add_secrets`], in all sessions of the tenant.
    pub fn add_secrets_all(&self, tenant: &TenantId, secrets: &Redactor) {
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.add_secrets(secrets);
        }
    }

    /// Ends all sessions of a tenant that are live here, and what supervises them. Whoever opens or uses one afterwards has it started anew;
    /// the host sees to it that nobody does.
    ///
    /// # Errors
    /// [`TreeError::Tenant`] when they did not end before the deadline.
    pub async fn end_tenant(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), TreeError> {
        self.inner.tenants.end(tenant, deadline).await
    }

    /// Forgets all sessions of a tenant for ever, with what was counted of it, here and in the journal: those that are live here
    /// are stopped first. Whoever opens sessions of the tenant meanwhile may lose them; the host sees to it that nobody does.
    ///
    /// # Errors
    /// [`SessionError::TakenOver`] when another process, which is not among the `dead`, has one of them;
    /// [`TreeError::Tenant`] when they did not end before the deadline. Nothing is forgotten then.
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
        // What it owes is submitted no more: it would be there again.
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

    /// The way to the journal, for what is asked of it beside sessions.
    #[must_use]
    pub fn journal(&self) -> &JournalHandle {
        &self.inner.services.journal
    }

    /// The registry of skills.
    #[must_use]
    pub fn registry(&self) -> &CatalogRegistry {
        &self.inner.registry
    }

    /// Who does chores in the background.
    #[must_use]
    pub fn maintenance(&self) -> &MaintenanceScheduler {
        &self.inner.maintenance
    }

    /// Everything that runs, as it is now. Asks no actor, so it works also when all of them hang.
    #[must_use]
    pub fn tree(&self) -> ActorTree {
        self.inner.root.tree()
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            journal_is_open: self.inner.services.journal.is_open(),
            turn_admission: if self.is_draining() { TurnAdmission::Draining } else { TurnAdmission::Open },
            tenants: self.inner.tenants.count(),
            live_sessions: self.inner.tenants.sessions().all,
            known_sessions: self.inner.index.count(),
        }
    }

    /// Begins no turn any more, and returns when those that run are over or wait for a person: what is queued stays
    /// queued. There is no way back but a new runtime.
    ///
    /// # Errors
    /// [`SessionError::DeadlinePassed`] when turns still run then; they go on.
    pub async fn drain(&self, deadline: Deadline) -> Result<(), TreeError> {
        self.inner.services.draining.cancel();
        let empty = async {
            for session in self.inner.index.all() {
                session.wait_idle().await;
            }
        };
        tokio::select! {
            biased;
            () = empty => Ok(()),
            () = SystemClock.sleep_until(deadline) => Err(SessionError::DeadlinePassed.into()),
        }
    }

    /// Stops everything in order: turns that run are interrupted and their ends recorded, leases are given back, the
    /// journal's actor goes last. May be called as often as one likes.
    ///
    /// # Errors
    /// When the deadline passed before; what was left was killed, and is recovered by the next start.
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), TreeError> {
        self.inner.services.draining.cancel();
        let stopped = self.inner.root.shutdown(deadline).await;
        self.inner.close_subscriptions();
        Ok(stopped?)
    }
}

/// The first events of a session with this profile and this history.
fn first_events(profile: SessionProfile, history: Vec<Message>) -> Result<Vec<Event>, SessionError> {
    let mut begin = vec![CommandKind::Open { profile: Box::new(profile) }];
    if !history.is_empty() {
        begin.push(CommandKind::Import { messages: history, container: None });
    }
    let mut state = SessionState::default();
    let mut events: Vec<Event> = Vec::new();
    for kind in begin {
        for event in decide(&state, Command { at: SystemClock.timestamp(), kind })? {
            apply(&mut state, &event);
            events.push(event);
        }
    }
    Ok(events)
}

impl Inner {
    /// Whoever listens to a session has heard everything.
    fn close_subscriptions(&self) {
        for session in self.index.all() {
            session.observer.hub.close(SessionError::ShuttingDown);
        }
    }
}

/// The tree ends in the background, and nobody waits for that.
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
        f.debug_struct("Runtime").field("health", &self.health()).finish_non_exhaustive()
    }
}
