//! The runtime that a host holds.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::registry::{CatalogSpec, Registry};
use conjure_actors::runtime as tree;
use conjure_actors::session::Session;
use conjure_actors::supervision::Tree;
use conjure_base::{Clock as _, Deadline, Digest, SessionId, SystemClock, TenantId};
use conjure_conversation::{Limits, PinnedSkill, Profile, SessionEvent};
use conjure_journal::{ListCursor, MemoryJournal, Owner, SessionKey};

use super::error::RuntimeError;
use super::given::Given;
use super::home::Home;
use super::hosts::Presence;
use super::options::{Record, RuntimeOptions};
use super::outfit::{Outfitter, blocking};
use super::records::{Records, SessionList, SessionSummary};
use super::sandboxes::Sandboxes;
use super::skills::{choose, default_key};
use super::spec::SessionSpec;
use super::storage::Storage;
use super::sweep::{bury, sweep_containers, sweep_folders, sweep_groups};
use crate::workspace::{ProducedFiles, Snapshot, Workspace};

/// How long the skills of the configuration's folders may take to be found.
const LOADING: Duration = Duration::from_secs(60);

/// How long a session may take to stop for good.
const STOPPING: Duration = Duration::from_secs(30);

/// Sessions of many tenants, supervised: whatever fails, is put right, and nothing that was acknowledged is lost.
///
/// Cheap to clone; dropping the last clone stops everything in order, in the background: use [`Runtime::shutdown`] to know.
///
/// ```
/// use std::time::Duration;
/// use conjure::{
///     Clock as _, Config, Environment, ExecutorKind, Runtime, RuntimeOptions, ScriptedModel, SessionSpec, Settings,
///     SystemClock, TenantId, TurnEvent,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let data = folder.path().join("data");
/// let settings = Settings {
///     executor: Some(ExecutorKind::Local), // trusted skills only: it isolates nothing
///     skill_paths: Some(vec!["fixtures/skills".into()]),
///     data: Some(data),
///     ..Settings::default()
/// };
/// let config = Config::layered(settings, &Environment::of_process(), None)?;
/// // The model's words come from a file here; `RuntimeOptions::anthropic` calls a live one.
/// let model = ScriptedModel::from_file("fixtures/scripts/minimal-skill.yaml")?;
/// let options = RuntimeOptions::from(config).model("scripted", model);
///
/// let runtime = Runtime::spawn(options.clone()).await?;
/// let tenant = TenantId::new("acme")?;
/// let session = runtime.open(SessionSpec::new(tenant.clone()).skills(["minimal-skill"])).await?;
/// let mut turn = session.send("Greet me.").await?;
/// while let Some(event) = turn.next().await {
///     if let TurnEvent::Ended { stop, .. } = event? {
///         assert_eq!(stop.to_string(), "the model is done (end_turn)");
///     }
/// }
/// runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
///
/// // It is there after a restart, here or in another process.
/// let runtime = Runtime::spawn(options).await?;
/// let again = runtime.session(&tenant, session.id()).await?;
/// assert_eq!(again.snapshot().await?.last_text, "The smallest skill says hello.");
/// runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

struct Inner {
    tree: tree::Runtime,
    outfitter: Outfitter,
    storage: Storage,
    /// `None`: nobody else has the data.
    presence: Option<Arc<Presence>>,
}

impl Runtime {
    /// Starts a runtime, and returns when its journal is open and the skills of its folders are found.
    ///
    /// # Errors
    /// When the data folder or the journal cannot be used, or the client of the models cannot be made; each says what and where.
    pub async fn spawn(options: impl Into<RuntimeOptions>) -> Result<Self, RuntimeError> {
        let mut options: RuntimeOptions = options.into();
        let folder = options.config.data().map(std::path::Path::to_owned).or_else(|| options.data.clone());
        // What nobody finds again need not be on the disk.
        let record = if folder.is_none() { Record::InMemory } else { options.record };
        let opening = move || match folder {
            Some(folder) => Home::open(&folder),
            None => Home::temporary(),
        };
        let home = Arc::new(blocking("the opening of the data folder", opening).await?);
        options.models.connect(&options.config)?;
        let storage = match record {
            Record::InMemory => Storage::Memory(MemoryJournal::new()),
            Record::OnDisk => Storage::on_disk(&home.journal(), &options).await?,
        };
        let owner = Owner::new(match options.owner.take() {
            Some(name) => name,
            None => random_name()?,
        })?;
        let presence = match record {
            Record::InMemory => None,
            Record::OnDisk => {
                let (data, owner) = (Arc::clone(&home), owner.clone());
                let announcing = move || {
                    Presence::announce(data.path(), &owner).map_err(|error| RuntimeError::Data {
                        path: data.path().to_owned(),
                        reason: error.to_string(),
                    })
                };
                let (presence, dead) = blocking("announcing this process", announcing).await?;
                let presence = Arc::new(presence);
                if dead.count() > 0 {
                    tracing::info!(dead = dead.count(), "hosts have died; what they left is removed");
                    sweep_folders(&home).await?;
                    sweep_groups().await?;
                    bury(Arc::clone(&presence), dead).await?;
                }
                Some(presence)
            }
        };
        sweep_containers(&options.config).await;
        let scopes = options.config.skill_scopes(options.project.as_deref());
        let outfitter = Outfitter::new(
            options.config,
            home,
            record,
            options.models,
            options.tools,
            options.approver,
            Sandboxes::new(options.own),
        );
        outfitter.check_tools()?;
        let mut made =
            tree::RuntimeOptions::new(storage.opener(), Arc::new(outfitter.holding(presence.clone())), owner);
        (options.treat)(&mut made.sessions);
        made.registry = options.registry;
        made.sessions_per_tenant = options.sessions_per_tenant;
        let tree = tree::Runtime::spawn(made).await?;
        let runtime = Self { inner: Arc::new(Inner { tree, outfitter, storage, presence }) };
        if let Some(key) = default_key() {
            let deadline = SystemClock.deadline(LOADING);
            let loaded = runtime.registry().register(key, CatalogSpec::of(scopes), deadline).await?;
            for diagnostic in &loaded.diagnostics {
                tracing::warn!("{diagnostic}");
            }
        }
        Ok(runtime)
    }

    /// Opens a new session: what it is made of is looked at, it is recorded, and started. Its sandbox is made when the first
    /// call needs it.
    ///
    /// # Errors
    /// When something that it names is not there, or it cannot be recorded or started. Nothing is left of it then.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, RuntimeError> {
        let Inner { tree, outfitter, .. } = &*self.inner;
        let skills = choose(self.registry(), &spec.tenant, spec.catalog.as_deref(), &spec.skills)?;
        let id = SessionId::random().map_err(|error| RuntimeError::broke_off("making an id", &error))?;
        let key = SessionKey::new(spec.tenant.clone(), id);
        let home = outfitter.tenant(&key).await?;
        let pinning = blocking("the keeping of skills", move || {
            let hold =
                home.pins.hold().map_err(|error| RuntimeError::broke_off("the keeping of skills", &error))?;
            let pinned = skills.iter().map(|skill| home.pins.pin(skill)).collect::<Result<Vec<_>, _>>()?;
            Ok((pinned, hold))
        });
        let (environment, withheld) = spec.given.divided();
        let workspace = match spec.workspace {
            Some(folder) => Some(recordable(folder)?),
            None => None,
        };
        let model = outfitter.models().name(spec.model.as_deref())?.to_owned();
        let (pinned, hold) = pinning.await?;
        let profile = Profile {
            base_prompt: spec.base_prompt,
            skills: pinned.clone(),
            limits: spec.limits.unwrap_or_else(|| self.default_limits()),
            model: Some(model),
            executor: Some(spec.executor.unwrap_or_else(|| outfitter.default_sandbox().to_owned())),
            catalog: spec.catalog,
            workspace,
            environment,
            withheld,
            metadata: spec.metadata,
        };
        outfitter.give(&key, spec.given);
        let opened = match outfitter.prepare(&key, &profile).await {
            Ok(()) => {
                let spec = tree::SessionSpec::new(spec.tenant).id(id).profile(profile).history(spec.history);
                tree.open(spec).await.map_err(RuntimeError::from)
            }
            Err(error) => Err(error),
        };
        outfitter.settle(&key);
        drop(hold);
        if opened.is_err() {
            // Nobody knows its id.
            match self.remove(&key, &pinned, SystemClock.deadline(STOPPING)).await {
                Ok(()) | Err(RuntimeError::NotFound { .. }) => {}
                Err(error) => tracing::warn!(session = %key, %error, "a session that did not start is left"),
            }
        }
        opened
    }

    /// A session that was opened before, here or by another process. A turn that was under way goes on.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id; [`RuntimeError::Missing`] when it was given what is not
    /// recorded: see [`Runtime::session_with`]. When another process has it, a [`SessionError`](crate::SessionError).
    pub async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Session, RuntimeError> {
        self.session_with(tenant, id, Given::default()).await
    }

    /// The same with what the session was given and is not recorded, because it is secret. Where the session is live already,
    /// it is used from its next start on.
    ///
    /// # Errors
    /// As for [`Runtime::session`].
    pub async fn session_with(
        &self,
        tenant: &TenantId,
        id: SessionId,
        given: Given,
    ) -> Result<Session, RuntimeError> {
        let Inner { tree, outfitter, .. } = &*self.inner;
        let key = SessionKey::new(tenant.clone(), id);
        if tree.knows(&key) {
            if !given.is_empty() {
                outfitter.give(&key, given);
            }
            return match tree.session(tenant, id).await.map_err(RuntimeError::from) {
                Err(error) => Err(self.forgotten(&key, error).await),
                attached => attached,
            };
        }
        let records = self.records().await?;
        let profile = records.profile(&key).await?;
        self.free(&key, &records).await?;
        outfitter.give(&key, given);
        let attached = match outfitter.prepare(&key, &profile).await {
            Ok(()) => tree.session(tenant, id).await.map_err(RuntimeError::from),
            Err(error) => Err(error),
        };
        outfitter.settle(&key);
        match attached {
            Err(error) => Err(self.forgotten(&key, error).await),
            attached => attached,
        }
    }

    /// Where a session was deleted while it was looked for, nothing is left of what it was given and made meanwhile.
    async fn forgotten(&self, key: &SessionKey, error: RuntimeError) -> RuntimeError {
        if let RuntimeError::NotFound { .. } = error
            && let Err(left) = self.inner.outfitter.forget(key).await
        {
            tracing::warn!(session = %key, error = %left, "the workspace of a deleted session is left");
        }
        error
    }

    /// Forgets a session for ever: its record, and its own workspace. One that is live here is stopped first.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id: where a deletion broke off after the record was gone, the
    /// workspace that it left is removed even so. When another process has it, or it does not stop.
    pub async fn delete(&self, tenant: &TenantId, id: SessionId) -> Result<(), RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let pinned = match self.records().await?.profile(&key).await {
            Ok(profile) => profile.skills,
            // One that cannot be read can be deleted. What it keeps of skills stays.
            Err(RuntimeError::Unreadable { .. }) => Vec::new(),
            // A deletion may have broken off.
            Err(RuntimeError::NotFound { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        self.remove(&key, &pinned, SystemClock.deadline(STOPPING)).await
    }

    async fn remove(
        &self,
        key: &SessionKey,
        pinned: &[PinnedSkill],
        deadline: Deadline,
    ) -> Result<(), RuntimeError> {
        let records = self.records().await?;
        match self.free(key, &records).await {
            // Its workspace may be there even so.
            Ok(()) | Err(RuntimeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let deleted = self.inner.tree.delete(key, deadline).await.map_err(RuntimeError::from);
        match deleted {
            // Also when it never was recorded, it may have a workspace.
            Ok(()) | Err(RuntimeError::NotFound { .. }) => {
                self.inner.outfitter.forget(key).await?;
                if let Err(error) = self.unpin(key, pinned, &records).await {
                    tracing::warn!(session = %key, %error, "the skills of a deleted session are left");
                }
                deleted
            }
            other => other,
        }
    }

    /// Removes those skills of a deleted session that no other session of the tenant has.
    async fn unpin(
        &self,
        key: &SessionKey,
        pinned: &[PinnedSkill],
        records: &Records,
    ) -> Result<(), RuntimeError> {
        if pinned.is_empty() {
            return Ok(());
        }
        let failed = |error: std::io::Error| RuntimeError::broke_off("removing skills", &error);
        let home = self.inner.outfitter.tenant(key).await?;
        let claiming = Arc::clone(&home);
        let claim = move || claiming.pins.alone().map_err(failed);
        // Where somebody opens a session just now, they are left to the end of the next one that has them.
        let Some(alone) = blocking("removing skills", claim).await? else { return Ok(()) };
        let mut unused: BTreeSet<Digest> = pinned.iter().map(|pinned| pinned.digest).collect();
        records.without_used(&key.tenant, &mut unused).await?;
        blocking("removing skills", move || {
            unused.iter().try_for_each(|digest| alone.remove(digest)).map_err(failed)
        })
        .await
    }

    /// What a session was opened with, as it is recorded. Nothing is started.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`] when the tenant has none of this id; when its record cannot be read.
    pub async fn profile(&self, tenant: &TenantId, id: SessionId) -> Result<Profile, RuntimeError> {
        self.records().await?.profile(&SessionKey::new(tenant.clone(), id)).await
    }

    /// Everything that a session has told, from this event on. What this process knows to be secret is redacted in it; what a
    /// session was given elsewhere, it does not know. Nothing is started.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn events(
        &self,
        tenant: &TenantId,
        id: SessionId,
        from_seq: u64,
    ) -> Result<Vec<SessionEvent>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let redactor = self.inner.outfitter.redactor(&key);
        self.records().await?.events(&key, from_seq, &redactor).await
    }

    /// The tenant's sessions, the newest first, at most `limit` (1 to 1,000) of them; `after`: those that come after a former
    /// page. All events of each are read, and nothing is started.
    ///
    /// # Errors
    /// When the journal cannot be read. A session whose record cannot be read is listed as such.
    pub async fn sessions(
        &self,
        tenant: &TenantId,
        after: Option<ListCursor>,
        limit: u32,
    ) -> Result<SessionList, RuntimeError> {
        let redactor = |key: &SessionKey| self.inner.outfitter.redactor(key);
        self.records().await?.list(tenant, after, limit, redactor).await
    }

    /// One of them.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn summary(&self, tenant: &TenantId, id: SessionId) -> Result<SessionSummary, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let records = self.records().await?;
        let info = records.info(&key).await?;
        records.summary(&key, info, &self.inner.outfitter.redactor(&key)).await
    }

    /// The ids of all of the tenant's sessions, the newest first. None of them is read.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn session_ids(&self, tenant: &TenantId) -> Result<Vec<SessionId>, RuntimeError> {
        self.records().await?.ids(tenant).await
    }

    /// The files in a session's workspace with their sizes, as the host has them: without a sandbox, and without starting
    /// anything. Where a sandbox has a workspace of its own, on another machine, ask the session
    /// ([`Session::files`](crate::Session::files)).
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn files(&self, tenant: &TenantId, id: SessionId) -> Result<ProducedFiles, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.records().await?.profile(&key).await?;
        let Some(folder) = self.inner.outfitter.workspace(&key, &profile).await? else {
            return Ok(ProducedFiles { files: Vec::new(), complete: true });
        };
        blocking("looking at a workspace", move || {
            let workspace = Workspace::existing(&folder)
                .map_err(|error| RuntimeError::Workspace { path: folder, reason: error.to_string() })?;
            Ok(workspace.produced_since(&Snapshot::default()))
        })
        .await
    }

    /// The folder on this machine that a session works in, where there is one: its own, or the host's. Nothing is started.
    ///
    /// # Errors
    /// As for [`Runtime::profile`].
    pub async fn workspace(&self, tenant: &TenantId, id: SessionId) -> Result<Option<PathBuf>, RuntimeError> {
        let key = SessionKey::new(tenant.clone(), id);
        let profile = self.records().await?.profile(&key).await?;
        self.inner.outfitter.workspace(&key, &profile).await
    }

    /// Lets the own workspace of a session that is kept in memory stay, when the session and its sandbox are over. Returns
    /// where it is; `None` where it stays anyway.
    ///
    /// # Errors
    /// When that cannot be noted on the disk; the next start removes it then.
    pub async fn keep_workspace(
        &self,
        tenant: &TenantId,
        id: SessionId,
    ) -> Result<Option<PathBuf>, RuntimeError> {
        self.inner.outfitter.keep_workspace(&SessionKey::new(tenant.clone(), id)).await
    }

    async fn records(&self) -> Result<Records, RuntimeError> {
        Records::of(self.inner.tree.journal()).await
    }

    /// Ends the lease of a process that is known to be dead, so that nobody waits for its end.
    async fn free(&self, key: &SessionKey, records: &Records) -> Result<(), RuntimeError> {
        let Some(presence) = &self.inner.presence else { return Ok(()) };
        let lease = records.info(key).await?.lease.filter(|lease| presence.is_dead(&lease.owner));
        let Some(lease) = lease else { return Ok(()) };
        // In its name; whoever is faster has it then.
        let journal = records.journal();
        let freed = match journal.acquire(key, &lease.owner, Duration::from_secs(1)).await {
            Ok(taken) => journal.release(key, taken.epoch).await,
            Err(error) => Err(error),
        };
        if let Err(error) = freed {
            tracing::debug!(session = %key, %error, "the lease of a dead host is not ended");
        }
        Ok(())
    }

    fn default_limits(&self) -> Limits {
        Limits { model_calls: self.inner.outfitter.config().max_iterations(), ..Limits::default() }
    }

    /// The registry of skills: the configuration's folders are its catalog `default`; a host may register more, for all tenants
    /// or for one.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        self.inner.tree.registry()
    }

    /// Everything that runs, as it is now.
    #[must_use]
    pub fn tree(&self) -> Tree {
        self.inner.tree.tree()
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> tree::Health {
        self.inner.tree.health()
    }

    /// Begins no turn any more, and returns when those that run are over or wait for a person: what is queued stays queued.
    /// There is no way back but a new runtime.
    ///
    /// # Errors
    /// When turns still run at the deadline; they go on.
    pub async fn drain(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        Ok(self.inner.tree.drain(deadline).await?)
    }

    /// Stops everything in order: turns that run are interrupted and their ends recorded, sandboxes end, the journal is closed
    /// last. May be called as often as one likes.
    ///
    /// # Errors
    /// When the deadline passed before; what was left was killed, and is recovered by the next start.
    pub async fn shutdown(&self, deadline: Deadline) -> Result<(), RuntimeError> {
        let stopped = self.inner.tree.shutdown(deadline).await;
        tokio::select! {
            biased;
            () = self.inner.storage.close() => {}
            () = SystemClock.sleep_until(deadline) => {}
        }
        if let (Ok(()), Some(presence)) = (&stopped, &self.inner.presence) {
            presence.leave();
        }
        Ok(stopped?)
    }
}

/// A path that can be written into a record.
fn recordable(folder: PathBuf) -> Result<PathBuf, RuntimeError> {
    let absolute = std::path::absolute(&folder)
        .map_err(|error| RuntimeError::Workspace { path: folder.clone(), reason: error.to_string() })?;
    if absolute.to_str().is_none() {
        let reason = "its path is not UTF-8, so it cannot be recorded".to_owned();
        return Err(RuntimeError::Workspace { path: absolute, reason });
    }
    Ok(absolute)
}

/// A name that no other process has.
fn random_name() -> Result<String, RuntimeError> {
    let id = SessionId::random().map_err(|error| RuntimeError::broke_off("making a name", &error))?;
    let digits = id.to_string();
    Ok(format!("host-{}-{}", std::process::id(), digits.trim_start_matches("ses_")))
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("health", &self.health()).finish_non_exhaustive()
    }
}
