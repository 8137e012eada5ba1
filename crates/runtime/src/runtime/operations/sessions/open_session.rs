//! Opens a session: builds its parts once to find errors in them, records it, and starts it.
//!
//! All of this is one tracked task, and an intent record is written first. So the caller gets the session, or nothing
//! of it is left. This also holds if the caller's future is dropped. The next start removes what a crash leaves.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::runtime as tree;
use conjure_actors::session::{Session, SessionError};
use conjure_artifact::RegistrationSource;
use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Limits, PinnedSkill, RemoteToolServer, SecretNames, SessionProfile, SkillActivation, SkillDelivery,
};
use conjure_journal::SessionKey;
use conjure_mcp::{McpServerName, McpServerSpec};
use conjure_skill::Skill;

use crate::config::Config;
use crate::runtime::data::data_layout::TenantDir;
use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::operations::sessions::delete_session::PinnedSkillsSource;
use crate::runtime::remote_cleanup::DeleteCondition;
use crate::runtime::session::factory::hosted_sessions;
use crate::runtime::session::factory::network::recorded_hosts;
use crate::runtime::session::input::inputs::split;
use crate::runtime::session::select_skills::choose;
use crate::runtime::session::spec::SessionSpec;
use crate::runtime::task_set::run_blocking;
use crate::workspace::note_workspace;

/// How long registering the artifacts of a new session may take.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(600);

/// How long to wait while others hold the exclusive tenant lock.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

impl Runtime {
    /// Opens a new session: checks its parts, records it, and starts it. Its sandbox is created when the first call
    /// needs it.
    ///
    /// If the future is dropped before it returns the session, the session is deleted again.
    ///
    /// # Errors
    ///
    /// If something that the spec names does not exist, or if the session cannot be recorded or started. Nothing of the
    /// session is left after an error.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, RuntimeError> {
        let spec = hosted_sessions::with_defaults(spec);
        let mut skills = choose(self.registry(), &spec.tenant, spec.catalog.as_deref(), &spec.skills)?;
        skills.extend(spec.loaded_skills.iter().cloned());
        let id = SessionId::random().map_err(|error| RuntimeError::interrupted("making an id", &error))?;
        let key = SessionKey::new(spec.tenant.clone(), id);
        let (opener, undoer, undone) = (self.clone(), self.clone(), key.clone());
        let opening = async move { opener.open_tracked(&key, spec, skills).await };
        // No caller knows the session's id.
        let undoing = async move { undoer.rollback(&undone, PinnedSkillsSource::AsRecorded).await };
        self.inner.tasks.run_or_undo("the opening of a session", opening, undoing).await
    }

    async fn open_tracked(
        &self,
        key: &SessionKey,
        spec: SessionSpec,
        skills: Vec<Arc<Skill>>,
    ) -> Result<Session, RuntimeError> {
        let factory = &self.inner.factory;
        let inputs = split(&skills, &spec.skills, &spec.secrets)?;
        let mut given = spec.secrets.with_inputs_of(&inputs.sensitive);
        given.mark_sensitive(&inputs.sensitive_variables);
        let (environment, withheld) = given.split_recorded();
        let withheld = SecretNames { inputs: inputs.sensitive, ..withheld };
        let chosen = factory.config.skills();
        let delivery = spec.delivery.or(chosen.delivery).unwrap_or(SkillDelivery::Instructions);
        if delivery == SkillDelivery::Result && factory.config.service_compaction().is_some() {
            return Err(RuntimeError::Delivery);
        }
        let profile = SessionProfile {
            base_prompt: spec.base_prompt,
            skills: Vec::new(),
            activation: match spec.toolset {
                // A toolset has no tool `view`.
                Some(_) => SkillActivation::Load,
                None => spec.activation.or(chosen.activation).unwrap_or(SkillActivation::Load),
            },
            delivery,
            hosted: spec.hosted,
            limits: spec.limits.unwrap_or_else(|| self.default_limits(&spec.tenant)),
            max_cost_micros: spec.max_cost_micros,
            model: Some(factory.model_name(&spec.tenant, spec.model.as_deref())?),
            effort: spec.effort,
            fast: spec.fast,
            executor: Some(spec.executor.unwrap_or_else(|| factory.config.executor().as_str().to_owned())),
            catalog: spec.catalog,
            workspace: real_workspace(spec.workspace).await?,
            allowed_hosts: recorded_hosts(&spec.network)?,
            python_packages: spec.python_packages.iter().map(ToString::to_string).collect(),
            environment,
            inputs: inputs.recorded,
            secret_names: withheld,
            toolset: spec.toolset,
            workspace_mounts: spec.workspace_mounts,
            mcp_servers: check_servers(
                spec.mcp_servers,
                given.own_servers(),
                &spec.remote_servers,
                &factory.config,
            )?,
            remote_servers: spec.remote_servers,
            vaults: spec.vaults,
            client_tools: spec.client_tools,
            title: spec.title,
            metadata: spec.metadata,
        };
        factory.check_tenant(&key.tenant).await?;
        factory.sandboxes.disk_usage().check(&key.tenant).await?;
        let home = factory.tenant_dir(&key.tenant).await?;
        let shared_guard = home.tenant_lock.shared(SystemClock.deadline(LOCK_TIMEOUT)).await;
        // Checked again under the lock, since the deletion of a tenant waits for the lock, too.
        factory.check_tenant(&key.tenant).await?;
        if !home.exists() {
            return Err(RuntimeError::TenantBeingDeleted { tenant: key.tenant.clone() });
        }
        let shared_guard = shared_guard?;
        if let Some(workspace) = profile.workspace.clone() {
            let dir = home.data.path().to_owned();
            run_blocking("noting a workspace", move || {
                note_workspace(&dir, &workspace).map_err(|error| RuntimeError::data(&dir, &error))
            })
            .await?;
        }
        home.set_intent(key.session).await?;
        factory.set_secrets(key, given);
        let (pinned, pin_result) = pin_skills(&home, skills).await;
        let opened = match pin_result {
            Ok(()) => {
                let new_session = tree::NewSession::new(spec.tenant).history(spec.history);
                match self
                    .record(key, SessionProfile { skills: pinned.clone(), ..profile }, new_session)
                    .await
                {
                    Ok(session) => register_artifacts(session, spec.artifacts).await,
                    failed => failed,
                }
            }
            Err(error) => Err(error),
        };
        factory.drop_prepared(key);
        drop(shared_guard);
        match &opened {
            Ok(_) => home.clear_intent(key.session).await,
            // No caller knows the session's id.
            Err(_) => self.rollback(key, PinnedSkillsSource::Listed(pinned)).await,
        }
        opened
    }

    async fn record(
        &self,
        key: &SessionKey,
        profile: SessionProfile,
        spec: tree::NewSession,
    ) -> Result<Session, RuntimeError> {
        self.inner.factory.prepare(key, &profile).await?;
        Ok(self.inner.tree.open(spec.id(key.session).profile(profile)).await?)
    }

    /// Deletes a session that no caller has.
    pub(crate) async fn rollback(&self, key: &SessionKey, skills: PinnedSkillsSource) {
        match self.delete_local(key, skills, DeleteCondition::Always).await {
            Ok(_) | Err(RuntimeError::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(session = %key, %error, "a session whose opening or fork failed was not deleted")
            }
        }
    }

    fn default_limits(&self, tenant: &TenantId) -> Limits {
        if let Some(limits) = &self.inner.factory.sandboxes.policies().policy(tenant).limits {
            return limits.clone();
        }
        Limits { model_calls: self.inner.factory.config.max_iterations(), ..Limits::default() }
    }
}

/// Registers the artifacts that a session is opened with.
async fn register_artifacts(
    session: Session,
    artifacts: Vec<(String, RegistrationSource)>,
) -> Result<Session, RuntimeError> {
    let handle = session.clone().with_deadline(SystemClock.deadline(REGISTER_TIMEOUT)).artifacts();
    for (name, source) in artifacts {
        handle.register(&name, source).await.map_err(|error| match error {
            SessionError::Artifact(failure) => RuntimeError::Artifact { name, failure },
            SessionError::Quota(exceeded) => RuntimeError::Quota(exceeded),
            SessionError::UsageUnknown { tenant, reason } => RuntimeError::UsageUnknown { tenant, reason },
            other => other.into(),
        })?;
    }
    Ok(session)
}

/// Pins the current versions of the skills. After an error, it also returns the skills that were pinned before the
/// error.
async fn pin_skills(
    home: &Arc<TenantDir>,
    skills: Vec<Arc<Skill>>,
) -> (Vec<PinnedSkill>, Result<(), RuntimeError>) {
    let home = Arc::clone(home);
    let pinning = run_blocking("pinning skills", move || {
        let mut pinned = Vec::with_capacity(skills.len());
        let pin_result = skills.iter().try_for_each(|skill| {
            pinned.push(home.pins.pin(skill)?);
            Ok(())
        });
        Ok((pinned, pin_result))
    });
    pinning.await.unwrap_or_else(|error| (Vec::new(), Err(error)))
}

/// The real path of the embedder's directory, without links. A link could lead elsewhere when the session is resumed.
async fn real_workspace(dir: Option<PathBuf>) -> Result<Option<PathBuf>, RuntimeError> {
    let Some(dir) = dir else { return Ok(None) };
    run_blocking("looking at a workspace", move || {
        let real = dir.canonicalize();
        let real = real.map_err(|error| RuntimeError::Workspace { path: dir, reason: error.to_string() })?;
        if real.to_str().is_none() {
            let reason = "its path is not UTF-8, so it cannot be recorded".to_owned();
            return Err(RuntimeError::Workspace { path: real, reason });
        }
        Ok(Some(real))
    })
    .await
}

/// Refuses MCP servers that are not configured, and all of them in a build without MCP. Returns the names of the
/// configured servers, without those that a server of the session's own replaces.
fn check_servers(
    mut names: Vec<String>,
    own: &[McpServerSpec],
    remote: &[RemoteToolServer],
    config: &Config,
) -> Result<Vec<String>, RuntimeError> {
    let refused =
        |server: &str, reason: String| RuntimeError::McpServer { server: server.to_owned(), reason };
    names.retain(|name| own.iter().all(|own| own.name.as_str() != name));
    let mut taken = BTreeSet::new();
    let named = names.iter().chain(remote.iter().map(|server| &server.name)).map(String::as_str);
    for name in named.chain(own.iter().map(|own| own.name.as_str())) {
        if !cfg!(feature = "mcp") {
            let reason =
                "this build has no MCP: build it with the feature `mcp`, which is in `full`".to_owned();
            return Err(refused(name, reason));
        }
        McpServerName::new(name).map_err(|reason| refused(name, reason))?;
        if !taken.insert(name) {
            return Err(refused(name, "another server has the same name".to_owned()));
        }
    }
    for name in &names {
        if !config.mcp_servers().contains_key(name) {
            let known: Vec<String> = config.mcp_servers().keys().map(|known| format!("`{known}`")).collect();
            let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
            return Err(refused(name, format!("it is not configured; the configured ones: {known}")));
        }
    }
    Ok(names)
}
