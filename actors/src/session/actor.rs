//! The actor of a session: it owns the conversation, or has sent it on an errand.
//!
//! Home, the conversation lies in its state and nothing is under way. Away, an errand has it (`work`), and gives it back by a
//! message with the errand's number; what arrives meanwhile goes into the errand's inbox, is kept here, or acts at once.
//! The actor never awaits the journal, a model or a tool, but in its start and its last words. When it ends in whatever
//! way, nothing that was acknowledged is lost: the next incarnation takes the lease anew and loads what is recorded.

mod belongings;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_conversation::{
    CommandKind, Conversation, LedgerError, Limits, Profile, Step, SubmitError, next,
};
use conjure_journal::JournalError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::away::{Away, INBOX, refuse};
use super::bringing::bring_back;
use super::error::SessionError;
use super::lease::{HeldLease, LeaseEnd};
use super::ledger::{JournalLedger, failure};
use super::mail::{Mail, Parcel, Return, tell};
use super::message::SessionMessage;
use super::producing::is_due;
use super::retry::Retry;
use super::shared::{Driven, Shared};
use super::spec::{Fitting, Resume, SessionParts};
use super::work::{Errand, Order, Outcome, answer_all, awaits_somebody, has_run_tools};
use crate::artifacts::{Keeping, RegistryPlace};
use crate::executors::{Began, Executors};
use crate::journal::CallFailure;
use crate::metrics::{Counted, SandboxMeter};
use crate::supervision::{Context, Failure, Flow, Job, Worker};
use crate::tenants::BudgetedModel;

pub(crate) struct SessionActor {
    shared: Arc<Shared>,
    parts: Arc<SessionParts>,
    /// Where what takes long is done for the session's artifacts.
    registry: RegistryPlace,
    /// Who sees to it that the contents of its artifacts stay, where it may have some.
    keeping: Option<Arc<Keeping>>,
    limits: Limits,
    place: Place,
    /// Until when what is in the sandbox may be brought to the host, when the actor ends.
    bring_by: Deadline,
    errands: u64,
    retry: Retry,
    /// What waits for the errand's end. What is left when the actor ends goes back to whoever sent it.
    stash: VecDeque<Parcel>,
    /// Listings under way, and openings of files.
    listings: Vec<Job>,
    /// Whether it was not recorded before the start which files the last turn produced.
    owes_files: bool,
    _counted: Counted,
}

/// Where the conversation is.
enum Place {
    Home(Box<Conversation>),
    Away(Away),
    /// Nowhere: the actor is about to end.
    Gone,
}

impl SessionActor {
    /// Takes the lease, loads the conversation, and has its parts made.
    pub(crate) async fn start(shared: Arc<Shared>, context: Context<Mail>) -> Result<Self, SessionError> {
        shared.began(context.address());
        match Self::try_start(&shared, &context).await {
            Ok(actor) => Ok(actor),
            Err(error) => {
                // What the session cannot help does not count against it.
                match &error {
                    SessionError::NotStarted { .. } => shared.note_failure(error.to_string()),
                    _ => shared.excuse(),
                }
                Err(error)
            }
        }
    }

    async fn try_start(shared: &Arc<Shared>, context: &Context<Mail>) -> Result<Self, SessionError> {
        let setting = &shared.setting;
        let options = &setting.options;
        let waiting = context.waits_for("the session's lease");
        let (journal, key) = (setting.journal.clone(), Arc::clone(&shared.key));
        let lease = match HeldLease::acquire(journal, key, &options.owner, options.lease).await {
            Ok(lease) => lease,
            Err(CallFailure::Journal(JournalError::NotFound { .. })) => {
                return Err(SessionError::NotFound { session: shared.key.session });
            }
            Err(error) => return Err(failure(error).into()),
        };
        let executors = Executors::vacant(options.executors, context.ground())
            .counted_by(SandboxMeter::new(&setting.meter, &shared.key.tenant));
        {
            let (address, stopping) = (context.address().clone(), context.stopping().clone());
            let tell = |end| async move { tell(&address, &stopping, Mail::LeaseOver(end)).await };
            let (lease, mooring) = (lease.clone(), executors.mooring());
            context.spawn_lasting_upkeep(move |over| lease.hold(mooring, over, tell));
        }
        drop(waiting);
        let waiting = context.waits_for("the session's events");
        let ledger = JournalLedger::new(setting.journal.clone(), Arc::clone(&shared.key), lease.epoch())
            .paid_by(Arc::clone(&shared.account));
        let observer: Arc<dyn conjure_conversation::Observer> = Arc::clone(shared) as _;
        let mut conversation = Conversation::load(Arc::new(ledger), Arc::new(SystemClock), observer).await?;
        shared.hub.loaded(conversation.seq());
        shared.audit.loaded(conversation.state());
        match conversation.submit(CommandKind::Recover).await {
            Ok(()) | Err(SubmitError::Rejected(_)) => {}
            Err(SubmitError::Ledger(error)) => return Err(error.into()),
            Err(other) => return Err(SessionError::Journal { reason: other.to_string() }),
        }
        drop(waiting);
        let _waiting = context.waits_for("the session's outfit");
        let profile =
            conversation.state().profile().map_or_else(Profile::default, |profile| (**profile).clone());
        // Whatever it did then, it did in a sandbox that is gone.
        let began = if has_run_tools(conversation.state()) { Began::Before } else { Began::Now };
        let fitting = Fitting { key: &shared.key, profile: &profile, executors: executors.began(began) };
        let outfit = setting.outfit.outfit(fitting).await;
        let mut parts = outfit.map_err(|error| SessionError::NotStarted { reason: error.to_string() })?;
        let account = Arc::clone(&shared.account);
        parts.model = Arc::new(BudgetedModel::new(parts.model, account, shared.key.session));
        shared.redacts_by(&parts.redactor);
        shared.audit.fitted(&shared.key, &parts.redactor, parts.executor.as_deref());
        shared.observe(conversation.state(), conversation.seq(), Driven::No);

        // Whoever had it started has a message for it.
        let starters = Arc::clone(shared);
        context.spawn(async move { starters.until_answered().await }).detach();

        let owes_files = is_due(conversation.state(), &parts.outputs);
        let goes_on =
            conversation.state().turn().is_some() || conversation.state().queue().len() > 0 || owes_files;
        if goes_on && (options.resume == Resume::AtStart || shared.is_attached()) {
            // The queue has room: the actor has just begun.
            let _ = context.address().send(Mail::Attached);
        }
        let keeping = parts.artifacts.as_ref().map(|artifacts| {
            Arc::new(Keeping::new(Arc::clone(&artifacts.keeper), Arc::clone(shared), lease.epoch()))
        });
        let actor = Self {
            shared: Arc::clone(shared),
            parts: Arc::new(parts),
            registry: RegistryPlace::vacant(context.ground()),
            keeping,
            limits: profile.limits,
            place: Place::Home(Box::new(conversation)),
            bring_by: Deadline::NEVER,
            errands: 0,
            retry: Retry::default(),
            stash: VecDeque::new(),
            listings: Vec::new(),
            owes_files,
            _counted: setting.meter.live_session(&shared.key.tenant),
        };
        actor.keep_contents(context);
        Ok(actor)
    }

    fn is_draining(&self) -> bool {
        self.shared.setting.draining.is_cancelled()
    }

    /// Takes up a message of a host.
    fn take_up(&mut self, parcel: Parcel, context: &Context<Mail>) -> Flow {
        let Some((message, back)) = parcel.open() else { return Flow::Continue };
        match message {
            SessionMessage::Subscribe { from_seq, reply } => reply.send(Ok(self.shared.listen(from_seq))),
            SessionMessage::Snapshot { reply } => reply.send(Ok(self.shared.snapshot())),
            SessionMessage::Listing { reply } => self.list(reply, context),
            SessionMessage::Files { reply } => reply.send(Ok(self.shared.files())),
            SessionMessage::OpenFile { file, reply } => self.open_file(*file, reply, context),
            SessionMessage::StoreFile { file, reply } => self.store_file(*file, reply, context),
            SessionMessage::ListArtifacts { reply } => {
                let artifacts = self.parts.artifacts.as_ref();
                reply.send(Ok(artifacts.map(|parts| self.shared.artifacts(parts)).unwrap_or_default()));
            }
            SessionMessage::Artifacts(request) => self.pass_on(request, context),
            SessionMessage::Executor { reply } => reply.send(self.executor()),
            message => return self.take_up_for_conversation(message, back, context),
        }
        Flow::Continue
    }

    fn take_up_for_conversation(
        &mut self,
        message: SessionMessage,
        back: Return,
        context: &Context<Mail>,
    ) -> Flow {
        if self.is_draining()
            && let SessionMessage::Send { reply, .. } = message
        {
            reply.send(Err(SessionError::Draining));
            return Flow::Continue;
        }
        match &mut self.place {
            Place::Away(away) => {
                if let Some((message, back)) = away.take_in(message, back, &self.shared) {
                    self.keep(message, back);
                }
                Flow::Continue
            }
            Place::Gone => {
                drop(Parcel::again(message, back));
                Flow::Continue
            }
            Place::Home(conversation) => {
                let step = next(conversation.state());
                if !conversation.is_current() || !matches!(step, Step::Idle | Step::AwaitApproval) {
                    // The journal failed: what is recorded is looked at, and a turn that was under way goes on, first.
                    self.send_off(Order::Resume, context);
                    return self.take_up_for_conversation(message, back, context);
                }
                let (has_turn, has_queue) =
                    (step == Step::AwaitApproval, conversation.state().queue().len() > 0);
                self.obey(message, has_turn, has_queue, context)
            }
        }
    }

    /// Home, nothing under way.
    fn obey(
        &mut self,
        message: SessionMessage,
        has_turn: bool,
        has_queue: bool,
        context: &Context<Mail>,
    ) -> Flow {
        let order = match message {
            SessionMessage::Send { input, limits, reply } if has_turn || has_queue => {
                Order::Queue { input, limits, reply }
            }
            SessionMessage::Send { input, limits, reply } => {
                let limits = limits.unwrap_or_else(|| self.limits.clone());
                Order::Start { input, limits, reply }
            }
            SessionMessage::Steer { input, reply } if has_turn => Order::Steer { input, reply },
            SessionMessage::Steer { reply, .. } => {
                reply.send(Err(SessionError::NotRunning));
                return Flow::Continue;
            }
            SessionMessage::TakeBack { id, reply } => Order::TakeBack { id, reply },
            SessionMessage::Interrupt { reply } if has_turn => Order::Interrupt { replies: vec![reply] },
            SessionMessage::Interrupt { reply } => {
                reply.send(Ok(()));
                return Flow::Continue;
            }
            SessionMessage::Decide { call, decision, reply } => Order::Decide { call, decision, reply },
            SessionMessage::ChangeArtifacts { change, reply } => Order::Artifacts { change, reply },
            SessionMessage::Close { reply } => {
                self.shared.did_well();
                reply.send(Ok(()));
                return Flow::Stop;
            }
            SessionMessage::Subscribe { .. }
            | SessionMessage::Listing { .. }
            | SessionMessage::Files { .. }
            | SessionMessage::OpenFile { .. }
            | SessionMessage::StoreFile { .. }
            | SessionMessage::ListArtifacts { .. }
            | SessionMessage::Artifacts(_)
            | SessionMessage::Executor { .. }
            | SessionMessage::Snapshot { .. } => {
                return Flow::Continue;
            }
        };
        self.send_off(order, context);
        Flow::Continue
    }

    /// Keeps a message until the conversation is back.
    fn keep(&mut self, message: SessionMessage, back: Return) {
        if self.stash.len() < INBOX {
            self.stash.push_back(Parcel::again(message, back));
            return;
        }
        refuse(message, SessionError::overloaded("what waits for the running turn"));
    }

    /// The actor ends in order: whoever wanted that has it, all others are served by the next incarnation.
    fn give_back(&mut self) {
        for parcel in self.stash.drain(..) {
            match parcel.open() {
                Some((SessionMessage::Close { reply }, _)) => reply.send(Ok(())),
                Some((message, back)) => drop(Parcel::again(message, back)),
                None => {}
            }
        }
    }

    /// The errand that all this waited for came to nothing: whoever sent it hears that now, and not when the journal is tried again,
    /// which may be long after they have stopped waiting.
    fn refuse_all(&mut self, error: &SessionError) {
        for (message, _) in self.stash.drain(..).filter_map(Parcel::open) {
            refuse(message, error.clone());
        }
    }

    /// Sends the conversation on an errand.
    fn send_off(&mut self, order: Order, context: &Context<Mail>) {
        let conversation = match std::mem::replace(&mut self.place, Place::Gone) {
            Place::Home(conversation) => conversation,
            other => {
                self.place = other;
                return;
            }
        };
        self.errands += 1;
        self.shared.set_underway(Driven::Yes);
        let number = self.errands;
        let (inbox, posts) = mpsc::channel(INBOX);
        let cancel = CancellationToken::new();
        let errand = Errand {
            order,
            conversation,
            inbox: posts,
            cancel: cancel.clone(),
            parts: Arc::clone(&self.parts),
            shared: Arc::clone(&self.shared),
            grace: self.shared.setting.options.grace,
            is_held: false,
        };
        let span = tracing::info_span!(
            "session",
            gen_ai.conversation.id = %self.shared.key.session,
            conjure.tenant = %self.shared.key.tenant,
            conjure.session = %self.shared.key.session,
            conjure.incarnation = context.incarnation(),
        );
        let (address, stopping) = (context.address().clone(), context.stopping().clone());
        let turn_is_over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&turn_is_over);
        let job = context.spawn(
            async move {
                let outcome = errand.run().await;
                is_over.store(outcome.has_no_turn(), Ordering::Release);
                tell(&address, &stopping, Mail::Back { errand: number, outcome }).await;
            }
            .instrument(span),
        );
        self.place =
            Place::Away(Away { errand: number, cancel, inbox, job, interrupts: Vec::new(), turn_is_over });
    }

    /// The conversation is back, or what had it has crashed.
    fn back(&mut self, errand: u64, outcome: Outcome, context: &Context<Mail>) -> Result<Flow, Failure> {
        let replies = match std::mem::replace(&mut self.place, Place::Gone) {
            Place::Away(away) if away.errand == errand => away.interrupts,
            other => {
                tracing::debug!(session = %self.shared.key, errand, "a stale errand is ignored");
                self.place = other;
                return Ok(Flow::Continue);
            }
        };
        let is_held = matches!(outcome, Outcome::Held(_));
        let conversation = match outcome {
            Outcome::Done(conversation) | Outcome::Held(conversation) => {
                self.retry.is_over();
                self.shared.did_well();
                conversation
            }
            Outcome::Journal(_, LedgerError::TakenOver { reason }) => {
                answer_all(replies, &Err(SessionError::TakenOver { reason: reason.clone() }));
                return Ok(self.give_up(&LeaseEnd::Taken(reason)));
            }
            Outcome::Journal(conversation, error) => {
                tracing::warn!(session = %self.shared.key, %error, "the journal failed; the session is loaded anew");
                self.shared.observe(conversation.state(), conversation.seq(), Driven::No);
                self.place = Place::Home(conversation);
                self.retry.later(context);
                self.shared.set_underway(Driven::No);
                let error = SessionError::from(error);
                answer_all(replies, &Err(error.clone()));
                self.refuse_all(&error);
                return Ok(Flow::Continue);
            }
            Outcome::Crashed(reason) => {
                // Whoever waits is told that their message was lost.
                self.shared.note_failure(reason.clone());
                return Err(reason.into());
            }
        };
        let has_turn = conversation.state().turn().is_some();
        self.shared.observe(conversation.state(), conversation.seq(), Driven::No);
        self.place = Place::Home(conversation);
        self.keep_contents(context);
        if has_turn && !replies.is_empty() {
            // The errand did not drive the turn, which waits for a person, or it came to that before it saw the interruption.
            self.send_off(Order::Interrupt { replies }, context);
            return Ok(Flow::Continue);
        }
        answer_all(replies, &Ok(()));
        while let Place::Home(_) = self.place
            && let Some(parcel) = self.stash.pop_front()
        {
            if self.take_up(parcel, context) == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        // What waits for the tenant's budget is tried again when that changes, or with the next message; what waits for somebody, with that.
        if !is_held {
            self.resume(Queued::Begins, context);
        }
        if let Place::Home(_) = self.place {
            self.shared.set_underway(Driven::No);
        }
        Ok(Flow::Continue)
    }

    /// Nobody has said anything, but what was under way goes on.
    fn go_on(&mut self, context: &Context<Mail>) -> Flow {
        let is_awaited = matches!(&self.place, Place::Home(conversation)
            if conversation.is_current() && awaits_somebody(conversation.state()));
        self.resume(if is_awaited { Queued::Stays } else { Queued::Begins }, context);
        Flow::Continue
    }

    /// Drives on what was under way, or begins what waits.
    fn resume(&mut self, queued: Queued, context: &Context<Mail>) {
        let Place::Home(conversation) = &self.place else { return };
        match next(conversation.state()) {
            _ if !conversation.is_current() => self.send_off(Order::Resume, context),
            Step::AwaitApproval => {}
            Step::Idle => {
                let is_due = queued == Queued::Begins && conversation.state().queue().len() > 0;
                if is_due && !self.is_draining() {
                    self.send_off(Order::StartQueued { limits: self.limits.clone() }, context);
                } else if std::mem::take(&mut self.owes_files) {
                    self.send_off(Order::Resume, context);
                }
            }
            _ => self.send_off(Order::Resume, context),
        }
    }

    /// Somebody else has the session, or may have it soon: nothing more is written, and the actor ends.
    fn give_up(&mut self, why: &LeaseEnd) -> Flow {
        tracing::warn!(session = %self.shared.key, %why, "a session is given up");
        self.place = Place::Gone;
        // The workspace is another's, or may be soon: the sandbox must be gone by then, too.
        self.bring_by = match why {
            LeaseEnd::Taken(_) => SystemClock.deadline(Duration::ZERO),
            LeaseEnd::NotRenewed { until, .. } => SystemClock.deadline(SystemClock.remaining(*until) / 2),
        };
        self.shared.did_well();
        self.shared.hub.give_up(why.to_string());
        Flow::Stop
    }
}

/// Whether what waits for its turn may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queued {
    Begins,
    /// Until somebody says something ([`awaits_somebody`]).
    Stays,
}

impl Worker for SessionActor {
    type Message = Mail;

    async fn handle(&mut self, message: Mail, context: &Context<Mail>) -> Result<Flow, Failure> {
        match message {
            Mail::Said(parcel) => Ok(self.take_up(parcel, context)),
            Mail::Attached => Ok(self.go_on(context)),
            Mail::TryAgain => {
                self.retry.begins();
                Ok(self.go_on(context))
            }
            Mail::Back { errand, outcome } => self.back(errand, outcome, context),
            Mail::LeaseOver(end) => Ok(self.give_up(&end)),
        }
    }

    /// Interrupts the turn that runs, and waits until its end is recorded. The lease is given back behind the sandbox.
    async fn stop(&mut self, _: &Context<Mail>) -> Result<(), Failure> {
        self.give_back();
        if let Place::Away(away) = std::mem::replace(&mut self.place, Place::Gone) {
            away.cancel.cancel();
            away.job.wait().await;
            // How the errand ended is in a message that is not taken up any more. Where it did not say that all is well, whoever
            // interrupted the turn is told that this is not known.
            if away.turn_is_over.load(Ordering::Acquire) {
                answer_all(away.interrupts, &Ok(()));
            }
        }
        self.place = Place::Gone;
        self.shared.did_well();
        // Commands that went on in the background have written, too; and the sandbox ends next.
        let hurry = CancellationToken::new();
        hurry.cancel();
        tokio::select! {
            biased;
            () = SystemClock.sleep_until(self.bring_by) => {}
            () = bring_back(&self.shared.key, self.parts.executor.as_deref(), &hurry) => {}
        }
        Ok(())
    }
}

impl Drop for SessionActor {
    fn drop(&mut self) {
        self.shared.set_underway(Driven::No);
    }
}
