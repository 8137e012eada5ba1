//! The state that the handles and incarnations of one session share: its key, observer and secrets, and how to revive its
//! actor.
//!
//! Handles, subscriptions and the actor hold an `Arc` of it. The last drop removes it from the runtime's index. It holds
//! no part of the conversation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use conjure_artifact::ArtifactError;
use conjure_base::{Deadline, Redactor, SystemClock, lock, with_deadline};
use conjure_conversation::{Artifact, Rejection};
use conjure_journal::SessionKey;

use super::actor_message::ActorMessage;
use super::revival::{CrashCount, Revival};
use crate::artifacts::ArtifactServices;
use crate::session::error::SessionError;
use crate::session::event_redaction::SessionRedactors;
use crate::session::log::session_projection::TurnActivity;
use crate::session::message::{SessionSnapshot, SessionStatus};
use crate::session::spec::{Resume, SessionServices};
use crate::session::turn::event_hub::RingLimits;
use crate::session::turn::session_observer::SessionObserver;
use crate::supervision::{
    Address, ChildSpec, Exit, RequestError, SpecError, StartError, StartFailure, Supervisor,
};
use crate::tenants::{LiveSessionGuard, TenantAccount};

/// One session of this process, across restarts of its actor.
pub(crate) struct SessionEntry {
    pub(crate) key: Arc<SessionKey>,
    pub(crate) services: SessionServices,
    pub(crate) account: Arc<TenantAccount>,
    pub(crate) observer: Arc<SessionObserver>,
    pub(crate) revival: Revival,
    redactors: SessionRedactors,
    /// The dynamic supervisor of the session's actor. It is not stopped as idle while the entry holds it.
    parent: Arc<Supervisor>,
    child_spec: ChildSpecFn,
    /// Each handle holds a clone, so the strong count tells whether one exists.
    handles: Arc<()>,
    /// Set when the tenant was deleted.
    is_deleted: AtomicBool,
    on_drop: Mutex<Option<OnDropFn>>,
}

/// Builds the child spec of a session, and the address of its actor.
pub(crate) type ChildSpecFn =
    fn(&Arc<SessionEntry>, LiveSessionGuard) -> Result<(ChildSpec, Address<ActorMessage>), SpecError>;

/// Called when the entry of a session is dropped.
pub(crate) type OnDropFn = Box<dyn FnOnce() + Send>;

impl SessionEntry {
    pub(crate) fn new(
        key: SessionKey,
        services: SessionServices,
        parent: Arc<Supervisor>,
        child_spec: ChildSpecFn,
        on_drop: OnDropFn,
    ) -> Arc<Self> {
        let (key, (entries, bytes)) = (Arc::new(key), services.options.ring);
        let limits = RingLimits { entries, bytes };
        Arc::new(Self {
            account: services.accounts.account(&key.tenant),
            observer: Arc::new(SessionObserver::new(Arc::clone(&key), &services.metrics, limits)),
            key,
            services,
            revival: Revival::new(),
            redactors: SessionRedactors::default(),
            parent,
            child_spec,
            handles: Arc::new(()),
            is_deleted: AtomicBool::new(false),
            on_drop: Mutex::new(Some(on_drop)),
        })
    }

    /// A token that each handle holds.
    pub(crate) fn handle_token(&self) -> Arc<()> {
        Arc::clone(&self.handles)
    }

    /// Whether a handle exists.
    pub(crate) fn is_attached(&self) -> bool {
        Arc::strong_count(&self.handles) > 1
    }

    /// The redactor, with all secrets that are known now.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactors.current()
    }

    /// Uses the redactor of an incarnation's components from now on.
    pub(crate) fn set_redactor(&self, redactor: &Redactor) {
        self.redactors.set_current(redactor);
    }

    /// Redacts these secrets, too, from now on and in later incarnations.
    pub(crate) fn add_secrets(&self, secrets: &Redactor) {
        self.redactors.add(secrets);
    }

    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        self.observer.projection.snapshot(&self.redactor())
    }

    /// The session's artifacts that have not expired.
    pub(crate) fn artifacts(&self, services: &ArtifactServices) -> Arc<[Arc<Artifact>]> {
        self.observer.projection.artifacts(services.options())
    }

    /// Handles the end of the actor and of everything below it. Closes the subscriptions, unless the actor ended in
    /// order. A running turn becomes an interrupted one.
    pub(crate) fn mark_down(&self) {
        let CrashCount { failures, last } = self.revival.crashes();
        let was_running = self.observer.projection.interrupt_turn();
        if failures > 0 {
            let reason = if last.is_empty() { "its actor ended".to_owned() } else { last };
            self.observer.hub.close_failed(reason);
        } else if was_running {
            self.observer.hub.close_failed("its actor stopped during a turn".to_owned());
        }
        self.revival.notify_incarnations();
    }

    /// Marks the session as deleted with its tenant. It is not revived any more, and its subscriptions are closed.
    pub(crate) fn mark_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
        self.observer.hub.close(SessionError::NotFound { session: self.key.session });
    }

    /// Makes a running actor check whether it has work that can continue.
    pub(crate) fn wake(&self) {
        if let Some(address) = self.revival.running() {
            // An actor whose mailbox is full checks anyway.
            let _ = address.send(ActorMessage::ContinueWork);
        }
    }

    /// Returns once no turn runs.
    pub(crate) async fn wait_idle(&self) {
        let mut changes = self.observer.hub.subscribe();
        loop {
            changes.borrow_and_update();
            if !self.is_busy() {
                return;
            }
            // This cannot fail: `self` holds the sender.
            let _ = changes.changed().await;
        }
    }

    fn is_busy(&self) -> bool {
        let projection = &self.observer.projection;
        if projection.activity() == TurnActivity::Active {
            return true;
        }
        // A closed hub means that nothing continues by itself.
        if self.observer.hub.closed_reason().is_some() {
            return false;
        }
        match projection.status() {
            SessionStatus::Running(_) => true,
            // The turn is about to continue.
            SessionStatus::Interrupted(_) => {
                self.is_attached() || self.services.options.resume == Resume::AtStart
            }
            SessionStatus::Idle | SessionStatus::AwaitingApproval(_) => false,
        }
    }

    /// The error for a command that the conversation rejected.
    pub(crate) fn rejection_error(&self, rejection: Rejection) -> SessionError {
        match rejection {
            Rejection::ArtifactExists { name } => ArtifactError::Exists { name }.into(),
            Rejection::QueueFull { limit } => SessionError::queue_full(limit),
            other => other.into(),
        }
    }

    /// The address of the running actor, which is started if necessary.
    ///
    /// # Errors
    /// Why the actor did not start; [`SessionError::DeadlinePassed`] when it did not start in time.
    pub(crate) async fn revive(
        self: &Arc<Self>,
        deadline: Deadline,
    ) -> Result<Address<ActorMessage>, SessionError> {
        if let Some(address) = self.revival.running() {
            return Ok(address);
        }
        let _caller = self.revival.caller();
        with_deadline(&SystemClock, deadline, self.revival.start_once(self.try_start(deadline))).await?
    }

    async fn try_start(self: &Arc<Self>, deadline: Deadline) -> Result<Address<ActorMessage>, SessionError> {
        loop {
            let mut incarnations = self.revival.incarnations();
            if let Some(address) = self.revival.running() {
                return Ok(address);
            }
            self.check_quarantine()?;
            if self.is_deleted.load(Ordering::Acquire) {
                return Err(SessionError::NotFound { session: self.key.session });
            }
            let live_session = self.account.start_session(self.key.session)?;
            let (spec, address) = (self.child_spec)(self, live_session)
                .map_err(|error| SessionError::NotStarted { reason: error.to_string() })?;
            match self.parent.start_child(spec, deadline).await {
                Ok(_) => return Ok(address),
                // The actor is starting, or is between two incarnations.
                Err(StartError::AlreadyStarted(_)) => {
                    // This cannot fail: `self` holds the sender.
                    let _ = incarnations.changed().await;
                }
                // The actor started, and was passivated before this call returned.
                Err(StartError::Failed(Exit::Normal | Exit::Shutdown))
                    if !self.services.draining.is_cancelled() => {}
                Err(StartError::Failed(exit)) => return Err(self.error_from_exit(&exit)),
                // Without draining, the supervisor may only be about to restart.
                Err(StartError::Request(RequestError::NotRunning(_)))
                    if self.services.draining.is_cancelled() =>
                {
                    return Err(SessionError::ShuttingDown);
                }
                Err(error) => return Err(SessionError::from_start_error(&error)),
            }
        }
    }

    fn check_quarantine(&self) -> Result<(), SessionError> {
        let CrashCount { failures, last } = self.revival.crashes();
        if failures < self.services.options.quarantine_after {
            return Ok(());
        }
        let last =
            if last.is_empty() { "its actor ended without a recorded reason".to_owned() } else { last };
        Err(SessionError::Quarantined { failures, last })
    }

    fn error_from_exit(&self, exit: &Exit) -> SessionError {
        match exit {
            Exit::StartFailed(StartFailure::Child(_, inner)) => self.error_from_exit(inner),
            Exit::StartFailed(StartFailure::Failed(cause)) => match cause.error().downcast_ref() {
                Some(error) => SessionError::clone(error),
                None => SessionError::NotStarted { reason: cause.to_string() },
            },
            Exit::Shutdown => SessionError::ShuttingDown,
            other => {
                self.revival.set_failure(other.to_string());
                SessionError::NotStarted { reason: other.to_string() }
            }
        }
    }
}

impl Drop for SessionEntry {
    fn drop(&mut self) {
        if let Some(on_drop) = lock(&self.on_drop).take() {
            on_drop();
        }
    }
}
