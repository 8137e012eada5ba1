//! Forks a session: opens a new session of the same tenant with the original's events up to a message, and a copy of
//! its current workspace.
//!
//! All of this is one tracked task, and an intent record is written first. The workspace is copied and the contents of
//! artifacts are linked before the events are recorded in one append. So a fork is complete, or does not exist. The
//! next start removes what a crash leaves.
//!
//! The original is only read. If one of its turns starts meanwhile, the copied workspace may have only a part of what
//! the turn writes. The fork then fails.

use conjure_actors::runtime as tree;
use conjure_actors::session::Session;
use conjure_base::{Clock as _, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Block, Event, EventKind, ForkError, ForkPoint, Message, SessionProfile, SessionState, apply, fork_events,
};
use conjure_journal::SessionKey;

use crate::runtime::error::RuntimeError;
use crate::runtime::handle::Runtime;
use crate::runtime::operations::sessions::delete_session::PinnedSkillsSource;
use crate::runtime::operations::sessions::open_session::LOCK_TIMEOUT;
use crate::runtime::session::input::session_secrets::SessionSecrets;
use crate::runtime::session::readers::session_reader::SessionReader;

impl Runtime {
    /// Forks a session: returns a new session of the same tenant with the original's events up to `at`, and a copy of
    /// its current workspace. The files are not reverted to their state at that event. The original does not change,
    /// whether it is live or passivated.
    ///
    /// - The fork has the original's pinned skills, its artifacts, its grants and its model at that event. Its usage
    ///   starts with the usage of the copied events, which is not charged again. Its queue is empty.
    /// - It has the secrets of the original that this process knows. Others can be given by [`Runtime::fork_with`].
    /// - A workspace that is a directory of the embedder is not copied. Both sessions work in it.
    /// - At a model's service, the fork has a container of its own. The files there belong to the original. They are
    ///   deleted with the original, and not with the fork.
    ///
    /// If the future is dropped before it returns the session, the fork is deleted again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use conjure::{Clock as _, Config, ProcessEnv, Runtime, RuntimeOptions, SessionSpec, Settings, SystemClock, TenantId};
    /// # use conjure::config::ExecutorKind;
    /// # use conjure::model::ScriptedModel;
    /// use conjure::session::ForkPoint;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let settings = Settings { executor: Some(ExecutorKind::Local), ..Settings::default() };
    /// # let config = Config::from_layers(settings, &ProcessEnv::from_process(), None)?;
    /// # let script = conjure::model::Script::from_text("version: 1\nturns:\n- content: Hello.\n- content: Bye.\n", conjure::model::ScriptFormat::Yaml, "here")?;
    /// # let runtime = Runtime::spawn(RuntimeOptions::from(config).model("scripted", ScriptedModel::new(script))).await?;
    /// # let tenant = TenantId::new("acme")?;
    /// # let session = runtime.open(SessionSpec::new(tenant.clone()).without_skills()).await?;
    /// session.ask("Greet me.").await?;
    /// // As if that had not been said.
    /// let fork = runtime.fork(&tenant, session.id(), ForkPoint::BeforeLastMessage).await?;
    /// fork.ask("Say goodbye.").await?;
    /// # runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`RuntimeError::NotFound`] if the tenant has no session of this id.
    /// - [`RuntimeError::Fork`] while a turn of the original is running, or if `at` is in the middle of a turn.
    /// - [`RuntimeError::MissingSecrets`], [`RuntimeError::Quota`], [`RuntimeError::Workspace`] and others if the fork
    ///   cannot have what the original has.
    ///
    /// Nothing of the fork is left after an error.
    pub async fn fork(
        &self,
        tenant: &TenantId,
        id: SessionId,
        at: ForkPoint,
    ) -> Result<Session, RuntimeError> {
        self.fork_with(tenant, id, at, SessionSecrets::default()).await
    }

    /// Forks a session, and gives the fork secrets and inputs that are not recorded.
    ///
    /// # Errors
    ///
    /// As for [`Runtime::fork`].
    pub async fn fork_with(
        &self,
        tenant: &TenantId,
        id: SessionId,
        at: ForkPoint,
        given: SessionSecrets,
    ) -> Result<Session, RuntimeError> {
        let original = SessionKey::new(tenant.clone(), id);
        let id = SessionId::random().map_err(|error| RuntimeError::interrupted("making an id", &error))?;
        let key = SessionKey::new(tenant.clone(), id);
        let (forker, undoer, undone) = (self.clone(), self.clone(), key.clone());
        let forking = async move { forker.fork_tracked(&original, &key, at, given).await };
        // No caller knows the fork's id.
        let undoing = async move { undoer.rollback(&undone, PinnedSkillsSource::AsRecorded).await };
        self.inner.tasks.run_or_undo("the fork of a session", forking, undoing).await
    }

    async fn fork_tracked(
        &self,
        original: &SessionKey,
        key: &SessionKey,
        at: ForkPoint,
        given: SessionSecrets,
    ) -> Result<Session, RuntimeError> {
        let factory = &self.inner.factory;
        factory.check_tenant(&key.tenant).await?;
        let records = self.session_reader().await?;
        let recorded = records.recorded_events(original, 0).await?;
        let events = fork_events(original.session, &recorded, at, SystemClock.timestamp());
        let events = events.map_err(|reason| RuntimeError::Fork { session: original.session, reason })?;
        let fork = Fork { original, key, read: recorded.len() as u64, events };
        factory.sandboxes.disk_usage().check(&key.tenant).await?;
        let home = factory.tenant_dir(&key.tenant).await?;
        let shared_guard = home.tenant_lock.shared(SystemClock.deadline(LOCK_TIMEOUT)).await;
        // Checked again under the lock, since the deletion of a tenant waits for the lock, too.
        factory.check_tenant(&key.tenant).await?;
        if !home.exists() {
            return Err(RuntimeError::TenantBeingDeleted { tenant: key.tenant.clone() });
        }
        let shared_guard = shared_guard?;
        home.set_intent(key.session).await?;
        factory.copy_secrets(original, key);
        factory.set_secrets(key, given);
        let state = fork.state();
        let profile = state.profile().map_or_else(SessionProfile::default, |profile| (**profile).clone());
        let forked = match factory.fork_workspace(original, key, &home, &profile).await {
            Ok(()) => self.record_fork(fork, &profile, &state, &records).await,
            Err(error) => Err(error),
        };
        factory.drop_prepared(key);
        drop(shared_guard);
        match &forked {
            Ok(_) => home.clear_intent(key.session).await,
            // No caller knows the fork's id.
            Err(_) => self.rollback(key, PinnedSkillsSource::Listed(profile.skills)).await,
        }
        forked
    }

    /// Checks the parts of the fork, links its artifacts, records its events, and starts it.
    async fn record_fork(
        &self,
        mut fork: Fork<'_>,
        profile: &SessionProfile,
        state: &SessionState,
        records: &SessionReader,
    ) -> Result<Session, RuntimeError> {
        let (factory, session) = (&self.inner.factory, fork.original.session);
        factory.prepare(fork.key, profile).await.map_err(|error| match error {
            RuntimeError::MissingSecrets { missing, .. } => RuntimeError::MissingSecrets { session, missing },
            error => error,
        })?;
        if let Some(path) = factory.host_workspace(fork.key, profile) {
            fork.add_note(&format!(
                "[This conversation was copied, and goes on with a copy of the workspace. It is in `{}` now; the former path is not to be \
                 used any more.]",
                path.display()
            ));
        }
        let contents = state.view().artifacts().iter().filter_map(|artifact| artifact.content.clone());
        factory.pin_artifacts(fork.key, contents.collect()).await?;
        if fork.has_new_turn(records).await? {
            return Err(RuntimeError::Fork { session, reason: ForkError::TurnRunning });
        }
        let new_session =
            tree::NewSession::new(fork.key.tenant.clone()).id(fork.key.session).events(fork.events);
        Ok(self.inner.tree.open(new_session).await?)
    }
}

/// A fork that is being created.
struct Fork<'k> {
    original: &'k SessionKey,
    key: &'k SessionKey,
    /// How many events the original had when it was read.
    read: u64,
    events: Vec<Event>,
}

impl Fork<'_> {
    fn state(&self) -> SessionState {
        let mut state = SessionState::default();
        for event in &self.events {
            apply(&mut state, event);
        }
        state
    }

    /// Adds text to the note that tells the model about the fork.
    fn add_note(&mut self, text: &str) {
        if let Some(Event { kind: EventKind::Forked { note, .. }, .. }) = self.events.last_mut() {
            let before = note.as_ref().map(|note| Message::user(vec![note.clone()]).text());
            let text = before.map_or_else(|| text.to_owned(), |before| format!("{before}\n\n{text}"));
            *note = Some(Block::text(text));
        }
    }

    /// Whether a turn of the original has started since the original was read.
    async fn has_new_turn(&self, records: &SessionReader) -> Result<bool, RuntimeError> {
        let since = records.recorded_events(self.original, self.read).await?;
        Ok(since.iter().any(|event| matches!(event.kind, EventKind::TurnStarted { .. })))
    }
}
