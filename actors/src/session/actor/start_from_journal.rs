//! Starts a session's actor: it acquires the lease, loads the events and has its components built.

use std::collections::VecDeque;
use std::sync::Arc;

use conjure_base::{Deadline, SystemClock};
use conjure_conversation::{CommandKind, Conversation, SessionProfile, SubmitError};
use conjure_journal::JournalError;

use super::{ConversationOwner, SessionActor};
use crate::artifacts::{ContentPinning, LazyRegistry};
use crate::executors::{PriorSandbox, SupervisedExecutorBuilder};
use crate::journal::JournalCallError;
use crate::metrics::SandboxMetrics;
use crate::session::error::SessionError;
use crate::session::lifecycle::actor_message::{ActorMessage, send_to_self};
use crate::session::lifecycle::session_entry::SessionEntry;
use crate::session::log::journal_event_log::{JournalEventLog, to_log_error};
use crate::session::log::journal_retry::JournalRetry;
use crate::session::log::lease::SessionLease;
use crate::session::log::session_projection::TurnActivity;
use crate::session::spec::{Resume, SessionSetup};
use crate::session::turn::turn_outputs::is_recording_due;
use crate::supervision::Context;
use crate::tenants::BudgetedModel;

impl SessionActor {
    pub(super) async fn try_start(
        entry: &Arc<SessionEntry>,
        context: &Context<ActorMessage>,
    ) -> Result<Self, SessionError> {
        let services = &entry.services;
        let options = &services.options;
        let waiting = context.waiting_for("the session's lease");
        let (journal, key) = (services.journal.clone(), Arc::clone(&entry.key));
        let lease = match SessionLease::acquire(journal, key, &options.owner, options.lease).await {
            Ok(lease) => lease,
            Err(JournalCallError::Journal(JournalError::NotFound { .. })) => {
                return Err(SessionError::NotFound { session: entry.key.session });
            }
            Err(error) => return Err(to_log_error(error).into()),
        };
        let executors = SupervisedExecutorBuilder::new(options.executors, context.child_scope())
            .with_metrics(SandboxMetrics::new(&services.metrics, &entry.key.tenant));
        {
            let (address, stopping) = (context.address().clone(), context.stopping().clone());
            let tell =
                |end| async move { send_to_self(&address, &stopping, ActorMessage::LeaseLost(end)).await };
            let (lease, lifecycle) = (lease.clone(), executors.lifecycle());
            context.spawn_joined_background(move |over| lease.renew_until(lifecycle, over, tell));
        }
        drop(waiting);
        let waiting = context.waiting_for("the session's events");
        let event_log = JournalEventLog::new(services.journal.clone(), Arc::clone(&entry.key), lease.epoch())
            .with_account(Arc::clone(&entry.account));
        let observer: Arc<dyn conjure_conversation::ConversationObserver> = Arc::clone(&entry.observer) as _;
        let mut conversation =
            Conversation::load(Arc::new(event_log), Arc::new(SystemClock), observer).await?;
        entry.observer.on_loaded(conversation.seq(), conversation.state());
        match conversation.submit(CommandKind::Recover).await {
            Ok(()) | Err(SubmitError::Rejected(_)) => {}
            Err(SubmitError::EventLog(error)) => return Err(error.into()),
            Err(other) => return Err(SessionError::Journal { reason: other.to_string() }),
        }
        drop(waiting);
        let _waiting = context.waiting_for("the session's components");
        let profile = conversation
            .state()
            .profile()
            .map_or_else(SessionProfile::default, |profile| (**profile).clone());
        // Earlier tool calls may have run in a sandbox that does not exist any more.
        let prior_sandbox =
            if conversation.state().has_started_tools() { PriorSandbox::Existed } else { PriorSandbox::None };
        let setup = SessionSetup {
            key: &entry.key,
            profile: &profile,
            executors: executors.with_prior_sandbox(prior_sandbox),
        };
        let factory = services.session_factory.build(setup).await;
        let mut components =
            factory.map_err(|error| SessionError::NotStarted { reason: error.to_string() })?;
        let account = Arc::clone(&entry.account);
        components.model = Arc::new(BudgetedModel::new(components.model, account, entry.key.session));
        entry.set_redactor(&components.redactor);
        entry.observer.on_components(&components.redactor, components.executor.as_deref());
        entry.observer.observe(conversation.state(), conversation.seq(), TurnActivity::Idle);

        // The callers that wait for this start have messages for the actor. Until then this job keeps it from being idle.
        let starters = Arc::clone(entry);
        context.spawn(async move { starters.revival.wait_callers_done().await }).detach();

        let has_unrecorded_files = is_recording_due(conversation.state(), &components.outputs);
        let has_work = conversation.state().turn().is_some()
            || conversation.state().queue().len() > 0
            || has_unrecorded_files;
        if has_work && (options.resume == Resume::AtStart || entry.is_attached()) {
            // The mailbox has room: the actor has just started.
            let _ = context.address().send(ActorMessage::ContinueWork);
        }
        let pinning = components.artifacts.as_ref().map(|artifacts| {
            Arc::new(ContentPinning::new(Arc::clone(&artifacts.pinner), Arc::clone(entry), lease.epoch()))
        });
        let actor = Self {
            entry: Arc::clone(entry),
            components: Arc::new(components),
            registry: LazyRegistry::new(context.child_scope()),
            pinning,
            limits: profile.limits,
            owner: ConversationOwner::Actor(Box::new(conversation)),
            copy_out_deadline: Deadline::NEVER,
            task_count: 0,
            retry: JournalRetry::default(),
            pending: VecDeque::new(),
            file_jobs: Vec::new(),
            result_timer: None,
            has_unrecorded_files,
            _counted: services.metrics.live_session(&entry.key.tenant),
        };
        actor.update_pins(context);
        Ok(actor)
    }
}
