//! The runtime that a host holds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, Deadline, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{Command, CommandKind, Event, State, apply, decide};
use conjure_journal::{Epoch, Journal, JournalError, Owner, SessionKey};
use tokio_util::sync::CancellationToken;

use super::error::RuntimeError;
use super::index::Index;
use super::options::{Health, RuntimeOptions, SessionSpec, Turns};
use super::tenants::{Idle, Tenants};
use crate::janitor::{Janitor, janitor};
use crate::journal::{CallFailure, JournalAccess, journal_actor};
use crate::metrics::Meter;
use crate::registry::{Registry, RegistrySpec};
use crate::session::{Session, SessionError, Setting, Shared, encoded};
use crate::supervision::{
    ChildId, ChildSpec, Domain, Intensity, Partitions, RequestError, Root, StartError, Strategy,
    SupervisorSpec, Tree,
};
use crate::tenants::{Tenancy, Terms};

/// Sessions of many tenants, supervised. Cheap to clone; dropping the last clone stops everything in order, in the
/// background: use [`Runtime::shutdown`] to know.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    root: Root,
    setting: Setting,
    registry: Registry,
    index: Arc<Index>,
    tenants: Arc<Tenants>,
    janitor: Janitor,
}

impl Runtime {
    /// Starts the tree, and returns when the journal is open.
    ///
    /// # Errors
    /// When the journal cannot be opened, or that took too long.
    pub async fn spawn(options: RuntimeOptions) -> Result<Self, RuntimeError> {
        Self::spawn_with_pools(options, Vec::new()).await
    }

    /// The same with pools of spares ([`crate::pool::PoolSpec`]), which fail each for itself. They stop after all sessions.
    ///
    /// # Errors
    /// As [`Runtime::spawn`]. No spare is waited for.
    pub async fn spawn_with_pools(
        options: RuntimeOptions,
        pools: Vec<ChildSpec>,
    ) -> Result<Self, RuntimeError> {
        let (journal, access) = journal_actor(options.journal, options.journal_patience)?;
        let (registry_spec, registry) = RegistrySpec::new().options(options.registry).build()?;
        let (tenants_spec, partitions) =
            Partitions::spec(ChildId::new("tenants")?, options.partitions, Tenants::partition)?;
        let (tenants_spec, _) = tenants_spec.build();
        let tenants = Tenants::new(partitions, options.sessions_per_tenant);
        let tenancy = Tenancy::new(access.clone(), options.clock);
        let chores = options.chores.into_iter().chain([Idle::of(&tenants, &tenancy)]);
        let (janitor_spec, janitor) = janitor(chores.collect())?;
        let (pools_spec, pools_supervisor) =
            SupervisorSpec::dynamic(ChildId::new("pools")?).domain(Domain::EachChild).build();
        // The journal is opened anew for as long as it takes: without it, sessions only wait.
        let spec = SupervisorSpec::ordered(ChildId::new("root")?, Strategy::OneForOne)
            .intensity(Intensity::new(1_000, Duration::from_secs(5)))
            .child(journal)?
            .child(registry_spec)?
            .child(pools_spec)?
            .child(tenants_spec)?
            .child(janitor_spec)?;
        let (spec, _) = spec.build();
        let deadline = SystemClock.deadline(options.start_within);
        let root = Root::spawn(spec, deadline).await.map_err(RuntimeError::NotStarted)?;
        for pool in pools {
            pools_supervisor.start_child(pool, deadline).await.map_err(RuntimeError::NotStarted)?;
        }
        let setting = Setting {
            journal: access,
            outfit: options.outfit,
            options: Arc::new(options.sessions),
            meter: Meter::new(options.metrics),
            draining: CancellationToken::new(),
            tenancy,
        };
        Ok(Self {
            inner: Arc::new(Inner { root, setting, registry, index: Arc::default(), tenants, janitor }),
        })
    }

    /// Opens a new session: it is recorded with its profile, and started.
    ///
    /// # Errors
    /// When it cannot be recorded or started. What is recorded stays.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, RuntimeError> {
        if self.is_draining() {
            return Err(RuntimeError::Draining);
        }
        let id = spec.id.map_or_else(SessionId::random, Ok).map_err(RuntimeError::NoEntropy)?;
        let key = SessionKey::new(spec.tenant, id);
        let mut begin = vec![CommandKind::Open { profile: Box::new(spec.profile) }];
        if !spec.history.is_empty() {
            begin.push(CommandKind::Import { messages: spec.history, container: None });
        }
        let mut state = State::default();
        let mut events: Vec<Event> = Vec::new();
        for kind in begin {
            let decided = decide(&state, Command { at: SystemClock.timestamp(), kind });
            for event in decided.map_err(SessionError::from)? {
                apply(&mut state, &event);
                events.push(event);
            }
        }
        let journal = &self.inner.setting.journal;
        let _counted = self.inner.setting.tenancy.record_one(&key.tenant).await?;
        let encoded =
            encoded(&events).map_err(|error| RuntimeError::JournalAway { reason: error.to_string() })?;
        journal.call(|journal| journal.create(&key)).await.map_err(failed)?;
        // Nobody else knows of it yet, so it is written without a lease.
        journal.call(|journal| journal.append(&key, 0, Epoch::NONE, encoded)).await.map_err(failed)?;
        self.attach(&key).await
    }

    /// A session that was opened before, here or by another process. A turn that was under way goes on.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id.
    pub async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Session, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        if let Some(shared) = self.inner.index.get(&key) {
            let session = Session::of(shared);
            session.attach().await?;
            return Ok(session);
        }
        // Before anything is made for it: ids that somebody guesses leave nothing.
        match self.inner.setting.journal.call(|journal| journal.session(&key)).await {
            Ok(_) => self.attach(&key).await,
            Err(CallFailure::Journal(JournalError::NotFound { .. })) => {
                Err(RuntimeError::NotFound { session: id })
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The session of a key that is in the journal, started.
    async fn attach(&self, key: &SessionKey) -> Result<Session, RuntimeError> {
        let deadline = SystemClock.deadline(self.inner.setting.options.deadline);
        let parent = match self.inner.tenants.supervisor(&key.tenant, deadline).await {
            Ok(parent) => parent,
            Err(RuntimeError::Tenant(StartError::Request(
                RequestError::NotRunning(_) | RequestError::ShuttingDown(_),
            ))) => return Err(SessionError::ShuttingDown.into()),
            Err(error) => return Err(error),
        };
        let setting = self.inner.setting.clone();
        let make = |forget| Shared::forgotten_by(key.clone(), setting, parent, forget);
        let session = Session::of(self.inner.index.get_or_insert(key, make));
        session.attach().await?;
        Ok(session)
    }

    /// Whether a session is live in this process, or somebody here holds a handle of it.
    #[must_use]
    pub fn knows(&self, key: &SessionKey) -> bool {
        self.inner.index.get(key).is_some()
    }

    /// What this knows must not leave a session either: see [`Session::conceal`]. Nothing, where nobody here has the session.
    pub fn conceal(&self, key: &SessionKey, secrets: &Redactor) {
        if let Some(shared) = self.inner.index.get(key) {
            shared.conceal(secrets);
        }
    }

    /// Stops a session in order, whatever it does, and waits until nothing of it runs here. A message through a handle of it
    /// revives it.
    ///
    /// # Errors
    /// When it did not end before the deadline.
    pub async fn stop(&self, key: &SessionKey, deadline: Deadline) -> Result<(), RuntimeError> {
        let Some(supervisor) = self.inner.tenants.known(&key.tenant) else { return Ok(()) };
        let child = ChildId::new(key.session.to_string())?;
        match supervisor.terminate_child(&child, deadline).await {
            // It is not live.
            Ok(()) | Err(RequestError::NotFound(_) | RequestError::NotRunning(_)) => Ok(()),
            Err(error) => Err(RuntimeError::NotStopped { session: key.session, reason: error.to_string() }),
        }
    }

    /// Forgets a session for ever, here and in the journal: one that is live here is stopped first.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id; [`SessionError::TakenOver`] when another process has
    /// it; [`RuntimeError::NotStopped`] when it did not end before the deadline: then it may be forgotten or not.
    pub async fn delete(&self, key: &SessionKey, deadline: Deadline) -> Result<(), RuntimeError> {
        self.delete_as(key, None, deadline).await
    }

    /// The same for a session in which nothing was recorded since it was looked at, when it held so many `events`.
    ///
    /// # Errors
    /// As [`Runtime::delete`]; [`JournalError::Conflict`] when it holds more by now: it is kept, whoever used it.
    pub async fn delete_unchanged(
        &self,
        key: &SessionKey,
        events: u64,
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        self.delete_as(key, Some(events), deadline).await
    }

    async fn delete_as(
        &self,
        key: &SessionKey,
        unchanged: Option<u64>,
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        let Setting { journal, options, .. } = &self.inner.setting;
        let failed = |error: CallFailure| match error {
            CallFailure::Journal(JournalError::NotFound { .. }) => {
                RuntimeError::NotFound { session: key.session }
            }
            CallFailure::Journal(error @ JournalError::LeaseHeld { .. }) => {
                SessionError::TakenOver { reason: error.to_string() }.into()
            }
            error => failed(error),
        };
        let info = journal.call(|journal| journal.session(key)).await.map_err(failed)?;
        // Whoever uses it just now is not interrupted for nothing.
        if let Some(expected) = unchanged.filter(|events| *events != info.events) {
            return Err(RuntimeError::Journal(JournalError::Conflict { expected, found: info.events }));
        }
        self.stop(key, deadline).await?;
        // Of another process it is not taken. A handle here that revives it meanwhile loses it again.
        let lease = |journal: &dyn Journal| journal.acquire(key, &options.owner, options.lease);
        let lease = journal.call(lease).await.map_err(failed)?;
        let deleted = journal.call(|journal| match unchanged {
            Some(events) => journal.delete_unchanged(key, events),
            None => journal.delete_session(key),
        });
        if let Err(error) = deleted.await {
            if let Err(error) = journal.call(|journal| journal.release(key, lease.epoch)).await {
                tracing::debug!(session = %key, %error, "a lease was not given back; it ends by itself");
            }
            return Err(failed(error));
        }
        let stopped = self.stop(key, deadline).await;
        if let Some(shared) = self.inner.index.get(key) {
            shared.hub.end(SessionError::NotFound { session: key.session });
        }
        stopped
    }

    /// What tenants may have, and what they have.
    #[must_use]
    pub fn tenancy(&self) -> &Tenancy {
        &self.inner.setting.tenancy
    }

    /// What the tenant may have, from now on; `None`: what every tenant may. What waited for that goes on.
    pub fn set_terms(&self, tenant: &TenantId, terms: Option<Terms>) {
        self.inner.setting.tenancy.set(tenant, terms);
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.look();
        }
    }

    /// The same as [`Runtime::conceal`], in all sessions of the tenant.
    pub fn conceal_all(&self, tenant: &TenantId, secrets: &Redactor) {
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.conceal(secrets);
        }
    }

    /// Ends all sessions of a tenant that are live here, and what supervises them. Whoever opens or uses one afterwards has it started anew;
    /// the host sees to it that nobody does.
    ///
    /// # Errors
    /// [`RuntimeError::Tenant`] when they did not end before the deadline.
    pub async fn end_tenant(&self, tenant: &TenantId, deadline: Deadline) -> Result<(), RuntimeError> {
        self.inner.tenants.end(tenant, deadline).await
    }

    /// Forgets all sessions of a tenant for ever, with what was counted of it, here and in the journal: those that are live here
    /// are stopped first. Whoever opens sessions of the tenant meanwhile may lose them; the host sees to it that nobody does.
    ///
    /// # Errors
    /// [`SessionError::TakenOver`] when another process, which is not among the `dead`, has one of them;
    /// [`RuntimeError::Tenant`] when they did not end before the deadline. Nothing is forgotten then.
    pub async fn delete_tenant(
        &self,
        tenant: &TenantId,
        is_dead: &(dyn Fn(&Owner) -> bool + Sync),
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        let Setting { journal, options, tenancy, .. } = &self.inner.setting;
        self.inner.tenants.end(tenant, deadline).await?;
        let (mut after, now) = (None, SystemClock.timestamp());
        loop {
            let page =
                journal.call(|journal| journal.sessions(tenant, after, 1_000)).await.map_err(failed)?;
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
        tenancy.forget(tenant);
        journal.call(|journal| journal.delete_tenant(tenant)).await.map_err(failed)?;
        for session in self.inner.index.all().iter().filter(|session| session.key.tenant == *tenant) {
            session.is_deleted();
        }
        Ok(())
    }

    fn is_draining(&self) -> bool {
        self.inner.setting.draining.is_cancelled()
    }

    /// The way to the journal, for what is asked of it beside sessions.
    #[must_use]
    pub fn journal(&self) -> &JournalAccess {
        &self.inner.setting.journal
    }

    /// The registry of skills.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// Who does chores in the background.
    #[must_use]
    pub fn janitor(&self) -> &Janitor {
        &self.inner.janitor
    }

    /// Everything that runs, as it is now. Asks no actor, so it works also when all of them hang.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.inner.root.tree()
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> Health {
        Health {
            journal_is_open: self.inner.setting.journal.is_open(),
            turns: if self.is_draining() { Turns::Refused } else { Turns::Welcome },
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
    pub async fn drain(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        self.inner.setting.draining.cancel();
        let empty = async {
            for session in self.inner.index.all() {
                session.until_idle().await;
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
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        self.inner.setting.draining.cancel();
        let stopped = self.inner.root.shutdown(deadline).await;
        self.inner.end_listening();
        Ok(stopped?)
    }
}

impl Inner {
    /// Whoever listens to a session has heard everything.
    fn end_listening(&self) {
        for session in self.index.all() {
            session.hub.end(SessionError::ShuttingDown);
        }
    }
}

/// The tree ends in the background, and nobody waits for that.
impl Drop for Inner {
    fn drop(&mut self) {
        self.end_listening();
    }
}

fn failed(error: CallFailure) -> RuntimeError {
    match error {
        CallFailure::Journal(error) => RuntimeError::Journal(error),
        CallFailure::Waited(waited) => RuntimeError::JournalAway { reason: waited.to_string() },
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("health", &self.health()).finish_non_exhaustive()
    }
}
