//! Opening a session: its parts are made once, so that what is wrong with them is told; it is recorded, and started.
//!
//! All of that is one task of the runtime's, and what it begins is noted on the disk before: so a session is opened for somebody
//! who has it, or nothing is left of it, whatever becomes of the caller. What a crash leaves, the next start removes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure_actors::runtime as tree;
use conjure_actors::session::{Session, SessionError};
use conjure_artifact::Source;
use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_conversation::{Activation, Delivery, Limits, PinnedSkill, Profile, Withheld};
use conjure_journal::SessionKey;
use conjure_skill::Skill;

use super::deleting::{Kept, Only};
use super::error::RuntimeError;
use super::handle::Runtime;
use super::home::TenantHome;
use super::hosted;
use super::inputs::divide;
use super::outfit::blocking;
use super::skills::choose;
use super::spec::SessionSpec;

/// How long it may take to take in what a session is opened with.
const TAKING_IN: Duration = Duration::from_secs(600);

/// How long others who remove skills may take.
const WAITING: Duration = Duration::from_secs(30);

impl Runtime {
    /// Opens a new session: what it is made of is looked at, it is recorded, and started. Its sandbox is made when the first
    /// call needs it.
    ///
    /// Where the future is dropped before it has given the session away, the session is deleted again.
    ///
    /// # Errors
    /// When something that it names is not there, or it cannot be recorded or started. Nothing is left of it then.
    pub async fn open(&self, spec: SessionSpec) -> Result<Session, RuntimeError> {
        let spec = hosted::with_defaults(spec);
        let skills = choose(self.registry(), &spec.tenant, spec.catalog.as_deref(), &spec.skills)?;
        let id = SessionId::random().map_err(|error| RuntimeError::broke_off("making an id", &error))?;
        let key = SessionKey::new(spec.tenant.clone(), id);
        let (opener, undoer, undone) = (self.clone(), self.clone(), key.clone());
        let opening = async move { opener.open_whole(&key, spec, skills).await };
        // Nobody knows its id.
        let undoing = async move { undoer.undo(&undone, Kept::AsRecorded).await };
        self.inner.work.handed_over("the opening of a session", opening, undoing).await
    }

    async fn open_whole(
        &self,
        key: &SessionKey,
        spec: SessionSpec,
        skills: Vec<Arc<Skill>>,
    ) -> Result<Session, RuntimeError> {
        let outfitter = &self.inner.outfitter;
        let inputs = divide(&skills, &spec.skills, &spec.given)?;
        let mut given = spec.given.with_inputs_of(&inputs.withheld);
        given.hide(&inputs.hidden_variables);
        let (environment, withheld) = given.divided();
        let withheld = Withheld { inputs: inputs.withheld, ..withheld };
        let chosen = outfitter.config().skills();
        let delivery = spec.delivery.or(chosen.delivery).unwrap_or(Delivery::Instructions);
        if delivery == Delivery::Result && outfitter.config().service_compaction().is_some() {
            return Err(RuntimeError::Delivery);
        }
        let profile = Profile {
            base_prompt: spec.base_prompt,
            skills: Vec::new(),
            activation: spec.activation.or(chosen.activation).unwrap_or(Activation::Load),
            delivery,
            hosted: spec.hosted,
            limits: spec.limits.unwrap_or_else(|| self.default_limits(&spec.tenant)),
            model: Some(outfitter.model_name(&spec.tenant, spec.model.as_deref())?),
            executor: Some(spec.executor.unwrap_or_else(|| outfitter.default_sandbox().to_owned())),
            catalog: spec.catalog,
            workspace: real_workspace(spec.workspace).await?,
            environment,
            inputs: inputs.recorded,
            withheld,
            metadata: spec.metadata,
        };
        outfitter.check_tenant(&key.tenant).await?;
        outfitter.check_disk(&key.tenant).await?;
        let home = outfitter.tenant(key).await?;
        let pass = home.gate.pass(SystemClock.deadline(WAITING)).await;
        // Whoever deletes the tenant has waited for its gate, too.
        outfitter.check_tenant(&key.tenant).await?;
        if !home.is_there() {
            return Err(RuntimeError::BeingDeleted { tenant: key.tenant.clone() });
        }
        let pass = pass?;
        home.mark(key.session).await?;
        outfitter.give(key, given);
        let (pinned, kept) = pin(&home, skills).await;
        let opened = match kept {
            Ok(()) => {
                let made = tree::SessionSpec::new(spec.tenant).history(spec.history);
                match self.record(key, Profile { skills: pinned.clone(), ..profile }, made).await {
                    Ok(session) => give_all(session, spec.artifacts).await,
                    failed => failed,
                }
            }
            Err(error) => Err(error),
        };
        outfitter.settle(key);
        drop(pass);
        match &opened {
            Ok(_) => home.unmark(key.session).await,
            // Nobody knows its id.
            Err(_) => self.undo(key, Kept::These(pinned)).await,
        }
        opened
    }

    async fn record(
        &self,
        key: &SessionKey,
        profile: Profile,
        spec: tree::SessionSpec,
    ) -> Result<Session, RuntimeError> {
        self.inner.outfitter.prepare(key, &profile).await?;
        Ok(self.inner.tree.open(spec.id(key.session).profile(profile)).await?)
    }

    /// Leaves nothing of a session that nobody has.
    async fn undo(&self, key: &SessionKey, kept: Kept) {
        match self.remove(key, kept, Only::Always).await {
            Ok(_) | Err(RuntimeError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(session = %key, %error, "a session that nobody has is left"),
        }
    }

    fn default_limits(&self, tenant: &TenantId) -> Limits {
        if let Some(limits) = &self.inner.outfitter.policies().of(tenant).limits {
            return limits.clone();
        }
        Limits { model_calls: self.inner.outfitter.config().max_iterations(), ..Limits::default() }
    }
}

/// Gives a session what it is opened with.
async fn give_all(session: Session, artifacts: Vec<(String, Source)>) -> Result<Session, RuntimeError> {
    let handle = session.clone().with_deadline(SystemClock.deadline(TAKING_IN)).artifacts();
    for (name, source) in artifacts {
        handle.register(&name, source).await.map_err(|error| match error {
            SessionError::Artifact(failure) => RuntimeError::Artifact { name, failure },
            SessionError::Quota(exceeded) => RuntimeError::Quota(exceeded),
            SessionError::Unmeasured { tenant, reason } => RuntimeError::Unmeasured { tenant, reason },
            other => other.into(),
        })?;
    }
    Ok(session)
}

/// Keeps the skills as they are now; those that were kept before it failed, too.
async fn pin(
    home: &Arc<TenantHome>,
    skills: Vec<Arc<Skill>>,
) -> (Vec<PinnedSkill>, Result<(), RuntimeError>) {
    let home = Arc::clone(home);
    let pinning = blocking("the keeping of skills", move || {
        let mut pinned = Vec::with_capacity(skills.len());
        let kept = skills.iter().try_for_each(|skill| {
            pinned.push(home.pins.pin(skill)?);
            Ok(())
        });
        Ok((pinned, kept))
    });
    pinning.await.unwrap_or_else(|error| (Vec::new(), Err(error)))
}

/// Where the host's folder really is, as it can be recorded: a link in its path may lead elsewhere when the session goes on.
async fn real_workspace(folder: Option<PathBuf>) -> Result<Option<PathBuf>, RuntimeError> {
    let Some(folder) = folder else { return Ok(None) };
    blocking("looking at a workspace", move || {
        let real = folder.canonicalize();
        let real =
            real.map_err(|error| RuntimeError::Workspace { path: folder, reason: error.to_string() })?;
        if real.to_str().is_none() {
            let reason = "its path is not UTF-8, so it cannot be recorded".to_owned();
            return Err(RuntimeError::Workspace { path: real, reason });
        }
        Ok(Some(real))
    })
    .await
}
