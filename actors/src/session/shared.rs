//! What outlives the incarnations of a session's actor: where to reach it, what it told last, how often it failed.
//!
//! Handles hold it and the actor does; with the last of them it is gone, and costs nothing. It holds no part of the
//! conversation. How the actor is found again is here, too: where none runs, one caller at a time has it started.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_artifact::ArtifactError;
use conjure_base::{Clock, Deadline, Redactor, SystemClock, Timestamp, TurnId};
use conjure_conversation::{
    Artifact, ArtifactContent, Event, EventKind, FileSource, FinishedTurn, Message, ModelEvent, Observer,
    Rejection, SessionFile, Standing, State, Step, next,
};
use conjure_journal::SessionKey;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};

use super::audit::Audit;
use super::branch::session_spec;
use super::error::SessionError;
use super::hub::{Hub, RingLimits};
use super::mail::Mail;
use super::message::{SessionSnapshot, SessionStatus};
use super::pace::Pace;
use super::redaction::{redact_json, redact_stop};
use super::spec::{Resume, Setting};
use crate::artifacts::ArtifactParts;
use crate::metrics::Book;
use crate::supervision::{Address, Exit, RequestError, StartError, StartFailure, Supervisor};
use crate::tenants::Account;

pub(crate) struct Shared {
    pub(crate) key: Arc<SessionKey>,
    pub(crate) setting: Setting,
    pub(crate) hub: Arc<Hub>,
    /// The account of the session's tenant.
    pub(crate) account: Arc<Account>,
    /// The dynamic supervisor that the session is started under: it stays for as long as it is shared.
    parent: Arc<Supervisor>,
    /// Held by every handle: whether anybody is attached.
    pub(crate) attached: Arc<()>,
    address: Mutex<Option<Address<Mail>>>,
    /// One caller at a time has it started. What the last one was told who failed.
    revival: tokio::sync::Mutex<Option<SessionError>>,
    /// How many have tried.
    revivals: AtomicU64,
    /// Callers that wait for somebody who runs: until they are told, nobody who runs is put away.
    callers: AtomicUsize,
    /// Told when the last of them is.
    answered: Notify,
    /// Changed when an incarnation comes and when the last is gone.
    up: watch::Sender<u64>,
    health: Mutex<Health>,
    redactor: Mutex<Concealed>,
    pub(crate) audit: Audit,
    counts: Book,
    pub(crate) snapshot: Mutex<SessionSnapshot>,
    belongings: Mutex<Belongings>,
    /// How long its turns take.
    pace: Mutex<Pace>,
    /// The last turn that is known to have produced no files.
    made_nothing: Mutex<Option<TurnId>>,
    /// The end of a turn that is told of when its files are on the host.
    held_end: Mutex<Option<Box<FinishedTurn>>>,
    /// Whether it was deleted with its tenant.
    is_gone: AtomicBool,
    /// Whether the conversation is on an errand.
    underway: Mutex<Driven>,
    /// Called by the last drop.
    forget: Mutex<Option<Forget>>,
}

/// What is done when nobody holds a session any more.
pub(crate) type Forget = Box<dyn FnOnce() + Send>;

/// What a session has, as of what was recorded last.
#[derive(Debug, Clone, Default)]
struct Belongings {
    standing: Standing,
    /// When something was recorded last, but for what a turn records.
    touched: Timestamp,
    files: Arc<BTreeMap<(FileSource, String), SessionFile>>,
}

/// What must not leave a session.
#[derive(Debug, Default)]
struct Concealed {
    /// The redactor of the incarnation that runs, or ran last, and of its tools.
    now: Redactor,
    /// What was said to be secret while the session was known here.
    later: Redactor,
}

#[derive(Debug, Clone, Default)]
struct Health {
    /// How many incarnations came since the last one that did something well.
    failures: u32,
    last: String,
}

impl Shared {
    pub(crate) fn new(key: SessionKey, setting: Setting, parent: Supervisor) -> Arc<Self> {
        Self::forgotten_by(key, setting, Arc::new(parent), Box::new(|| {}))
    }

    pub(crate) fn forgotten_by(
        key: SessionKey,
        setting: Setting,
        parent: Arc<Supervisor>,
        forget: Forget,
    ) -> Arc<Self> {
        let (entries, bytes) = setting.options.ring;
        let counts = Book::new(&setting.meter, &key.tenant);
        let account = setting.tenancy.account(&key.tenant);
        Arc::new(Self {
            audit: Audit::counted_by(setting.meter.clone()),
            counts,
            key: Arc::new(key),
            hub: Arc::new(Hub::new(RingLimits { entries, bytes })),
            setting,
            account,
            parent,
            attached: Arc::new(()),
            address: Mutex::new(None),
            revival: tokio::sync::Mutex::default(),
            revivals: AtomicU64::new(0),
            callers: AtomicUsize::new(0),
            answered: Notify::new(),
            up: watch::Sender::new(0),
            health: Mutex::default(),
            redactor: Mutex::default(),
            snapshot: Mutex::new(SessionSnapshot::nothing()),
            belongings: Mutex::default(),
            pace: Mutex::default(),
            made_nothing: Mutex::default(),
            held_end: Mutex::default(),
            is_gone: AtomicBool::new(false),
            underway: Mutex::new(Driven::No),
            forget: Mutex::new(Some(forget)),
        })
    }

    pub(crate) fn is_attached(&self) -> bool {
        Arc::strong_count(&self.attached) > 1
    }

    pub(crate) fn address(&self) -> Option<Address<Mail>> {
        lock(&self.address).clone()
    }

    fn running(&self) -> Option<Address<Mail>> {
        self.address().filter(Address::is_running)
    }

    /// What must not leave, as it is known now: nobody keeps it for longer than one event.
    pub(crate) fn redactor(&self) -> Redactor {
        lock(&self.redactor).now.clone()
    }

    /// An incarnation has its parts, which redact by this.
    pub(crate) fn redacts_by(&self, redactor: &Redactor) {
        let mut concealed = lock(&self.redactor);
        redactor.learn(&concealed.later);
        concealed.now = redactor.clone();
    }

    /// This must not leave either, from now on: what redacts already learns it, and so do later incarnations.
    pub(crate) fn conceal(&self, secrets: &Redactor) {
        let concealed = lock(&self.redactor);
        concealed.later.learn(secrets);
        concealed.now.learn(secrets);
    }

    /// An incarnation begins, and takes messages here: also when whoever had it started does not wait any more. It has failed
    /// until it has done something well.
    pub(crate) fn began(&self, address: &Address<Mail>) {
        *lock(&self.address) = Some(address.clone());
        lock(&self.health).failures += 1;
        self.up.send_modify(|up| *up = up.wrapping_add(1));
    }

    /// It has done something well.
    pub(crate) fn did_well(&self) {
        *lock(&self.health) = Health::default();
    }

    /// What went wrong was not the session's fault.
    pub(crate) fn excuse(&self) {
        let mut health = lock(&self.health);
        health.failures = health.failures.saturating_sub(1);
    }

    pub(crate) fn note_failure(&self, why: String) {
        lock(&self.health).last = why;
    }

    /// Nothing of the session's tree is left. Whoever follows a turn is told when that was not in order.
    pub(crate) fn is_down(&self) {
        let Health { failures, last } = lock(&self.health).clone();
        let has_turn = {
            let status = &mut lock(&self.snapshot).status;
            let running = if let SessionStatus::Running(turn) = *status { Some(turn) } else { None };
            running.inspect(|turn| *status = SessionStatus::Interrupted(*turn)).is_some()
        };
        if failures > 0 {
            self.hub.give_up(if last.is_empty() { "its actor ended".to_owned() } else { last });
        } else if has_turn {
            self.hub.give_up("it was ended in the midst of a turn".to_owned());
        }
        self.up.send_modify(|up| *up = up.wrapping_add(1));
    }

    /// Returns once no turn runs.
    pub(crate) async fn until_idle(&self) {
        let mut news = self.hub.news();
        loop {
            news.borrow_and_update();
            if !self.is_busy() {
                return;
            }
            // The sender is in here.
            let _ = news.changed().await;
        }
    }

    /// It was deleted with its tenant: nobody has it started any more.
    pub(crate) fn is_deleted(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.hub.end(SessionError::NotFound { session: self.key.session });
    }

    /// What is under way, or waits, is looked at again, where it is live.
    pub(crate) fn look(&self) {
        if let Some(address) = self.running() {
            // One that is full of messages looks by itself.
            let _ = address.send(Mail::Attached);
        }
    }

    fn is_busy(&self) -> bool {
        if *lock(&self.underway) == Driven::Yes {
            return true;
        }
        // Nothing goes on by itself.
        if self.hub.over().is_some() {
            return false;
        }
        match lock(&self.snapshot).status {
            SessionStatus::Running(_) => true,
            // It is about to go on.
            SessionStatus::Interrupted(_) => {
                self.is_attached() || self.setting.options.resume == Resume::AtStart
            }
            SessionStatus::Idle | SessionStatus::AwaitingApproval(_) => false,
        }
    }

    /// The conversation goes on an errand, or is back.
    pub(crate) fn set_underway(&self, underway: Driven) {
        *lock(&self.underway) = underway;
        self.hub.tell();
    }

    fn check_quarantine(&self) -> Result<(), SessionError> {
        let Health { failures, last } = lock(&self.health).clone();
        if failures < self.setting.options.quarantine_after {
            return Ok(());
        }
        let last = if last.is_empty() { "its actor ended without a word".to_owned() } else { last };
        Err(SessionError::Quarantined { failures, last })
    }

    /// Returns when nobody waits for this session to run.
    pub(crate) async fn until_answered(&self) {
        loop {
            let mut answered = pin!(self.answered.notified());
            // From here on no change is missed.
            answered.as_mut().enable();
            if self.callers.load(Ordering::Acquire) == 0 {
                return;
            }
            answered.await;
        }
    }

    /// Whoever runs, started where nobody does.
    pub(crate) async fn revive(self: &Arc<Self>, deadline: Deadline) -> Result<Address<Mail>, SessionError> {
        if let Some(address) = self.running() {
            return Ok(address);
        }
        let _caller = Caller::of(self);
        tokio::select! {
            biased;
            revived = self.start(deadline) => revived,
            () = SystemClock.sleep_until(deadline) => Err(SessionError::DeadlinePassed),
        }
    }

    async fn start(self: &Arc<Self>, deadline: Deadline) -> Result<Address<Mail>, SessionError> {
        let seen = self.revivals.load(Ordering::Acquire);
        let mut last = self.revival.lock().await;
        // Those who wait for a start share what becomes of it: many at once are one attempt.
        if self.revivals.load(Ordering::Acquire) != seen
            && let Some(error) = &*last
        {
            return Err(error.clone());
        }
        let started = self.try_start(deadline).await;
        *last = started.as_ref().err().cloned();
        self.revivals.fetch_add(1, Ordering::AcqRel);
        started
    }

    async fn try_start(self: &Arc<Self>, deadline: Deadline) -> Result<Address<Mail>, SessionError> {
        loop {
            let mut up = self.up.subscribe();
            if let Some(address) = self.running() {
                return Ok(address);
            }
            self.check_quarantine()?;
            if self.is_gone.load(Ordering::Acquire) {
                return Err(SessionError::NotFound { session: self.key.session });
            }
            let present = self.account.enter(self.key.session)?;
            let (spec, address) = session_spec(self, present)
                .map_err(|error| SessionError::NotStarted { reason: error.to_string() })?;
            match self.parent.start_child(spec, deadline).await {
                Ok(_) => return Ok(address),
                // It begins, or is between two incarnations.
                Err(StartError::AlreadyStarted(_)) => {
                    // The sender is in here.
                    let _ = up.changed().await;
                }
                // It began well, and was put away before anybody was told.
                Err(StartError::Failed(Exit::Normal | Exit::Shutdown))
                    if !self.setting.draining.is_cancelled() => {}
                Err(StartError::Failed(exit)) => return Err(self.of_exit(&exit)),
                // It may also be about to be started again.
                Err(StartError::Request(RequestError::NotRunning(_)))
                    if self.setting.draining.is_cancelled() =>
                {
                    return Err(SessionError::ShuttingDown);
                }
                Err(error) => return Err(SessionError::of_start(&error)),
            }
        }
    }

    fn of_exit(&self, exit: &Exit) -> SessionError {
        match exit {
            Exit::StartFailed(StartFailure::Child(_, inner)) => self.of_exit(inner),
            Exit::StartFailed(StartFailure::Failed(cause)) => match cause.error().downcast_ref() {
                Some(error) => SessionError::clone(error),
                None => SessionError::NotStarted { reason: cause.to_string() },
            },
            Exit::Shutdown => SessionError::ShuttingDown,
            other => {
                self.note_failure(other.to_string());
                SessionError::NotStarted { reason: other.to_string() }
            }
        }
    }

    /// How far it is, without what must not leave.
    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        let redactor = self.redactor();
        let mut snapshot = lock(&self.snapshot).clone();
        snapshot.last_text = redactor.redact(&snapshot.last_text).into_owned();
        if let Some(last) = &mut snapshot.last_turn {
            last.stop = redact_stop(&redactor, &last.stop);
        }
        for grant in &mut snapshot.grants {
            grant.rule = redactor.redact(&grant.rule).into_owned();
        }
        for approval in &mut snapshot.approvals {
            approval.reason = redactor.redact(&approval.reason).into_owned();
            if let Cow::Owned(input) = redact_json(&redactor, approval.call.input.get())
                && let Ok(input) = RawValue::from_string(input)
            {
                approval.call.input = input.into();
            }
        }
        snapshot
    }

    /// The files that its turns produced.
    pub(crate) fn files(&self) -> Vec<SessionFile> {
        let files = Arc::clone(&lock(&self.belongings).files);
        files.values().cloned().collect()
    }

    /// Its artifacts, as of now: those that nobody used for too long are gone, also where that is not recorded yet.
    pub(crate) fn artifacts(&self, parts: &ArtifactParts) -> Arc<[Arc<Artifact>]> {
        let Belongings { standing, touched, .. } = lock(&self.belongings).clone();
        let is_idle = matches!(lock(&self.snapshot).status, SessionStatus::Idle);
        if is_idle && parts.options().are_expired(touched, SystemClock.timestamp()) {
            return Arc::default();
        }
        Arc::clone(standing.artifacts())
    }

    /// The contents of all its artifacts.
    pub(crate) fn contents(&self) -> Vec<ArtifactContent> {
        let standing = lock(&self.belongings).standing.clone();
        standing.artifacts().iter().filter_map(|artifact| artifact.content.clone()).collect()
    }

    /// What the machine refused, told as what it is about. What is too full now has room later.
    pub(crate) fn refused(&self, rejection: Rejection) -> SessionError {
        match rejection {
            Rejection::ArtifactExists { name } => ArtifactError::Exists { name }.into(),
            Rejection::QueueFull { limit } => SessionError::queue_full(limit, lock(&self.pace).advice()),
            other => other.into(),
        }
    }

    /// This turn produced no files.
    pub(crate) fn note_nothing(&self, turn: TurnId) {
        *lock(&self.made_nothing) = Some(turn);
    }

    /// Whether that is known of a turn.
    pub(crate) fn made_nothing(&self, turn: TurnId) -> bool {
        *lock(&self.made_nothing) == Some(turn)
    }

    /// Whether one of its turns produced this file.
    pub(crate) fn has_file(&self, file: &SessionFile) -> bool {
        lock(&self.belongings).files.contains_key(&(file.source, file.id.clone()))
    }

    /// The end of a turn is told of, where it was held back.
    pub(crate) fn tell_end(&self) {
        if let Some(last) = lock(&self.held_end).take() {
            lock(&self.snapshot).finish(*last);
        }
        self.hub.tell_ends();
    }

    /// What is told of a state that is at hand.
    pub(crate) fn observe(&self, state: &State, events: u64, is_driven: Driven) {
        let status = match (state.turn(), is_driven) {
            (None, _) => SessionStatus::Idle,
            (Some(turn), _) if next(state) == Step::AwaitApproval => {
                SessionStatus::AwaitingApproval(turn.id())
            }
            (Some(turn), Driven::Yes) => SessionStatus::Running(turn.id()),
            (Some(turn), Driven::No) => SessionStatus::Interrupted(turn.id()),
        };
        *lock(&self.snapshot) = SessionSnapshot {
            events,
            status,
            approvals: state.approvals(),
            active_skills: state.standing().active_skills().to_vec(),
            grants: state.standing().grants().cloned().collect(),
            queue: state.queue().map(|queued| queued.id).collect(),
            last_turn: state.last_turn().cloned(),
            usage: *state.usage(),
            last_text: state.last_text(),
        };
        self.belongings(state);
        self.hub.tell();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(forget) = lock(&self.forget).take() {
            forget();
        }
    }
}

/// Somebody waits for a session to run, until this is dropped.
struct Caller<'a>(&'a Shared);

impl<'a> Caller<'a> {
    fn of(shared: &'a Shared) -> Self {
        shared.callers.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if self.0.callers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.answered.notify_waiters();
        }
    }
}

/// Whether a turn is being driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driven {
    Yes,
    No,
}

impl SessionSnapshot {
    fn finish(&mut self, last: FinishedTurn) {
        self.last_turn = Some(last);
        self.status = SessionStatus::Idle;
        self.approvals.clear();
    }

    pub(crate) const fn nothing() -> Self {
        Self {
            events: 0,
            status: SessionStatus::Idle,
            approvals: Vec::new(),
            active_skills: Vec::new(),
            grants: Vec::new(),
            queue: Vec::new(),
            last_turn: None,
            usage: conjure_conversation::Usage {
                input_tokens: 0,
                output_tokens: 0,
                cache_creation_input_tokens: 0,
                cache_read_input_tokens: 0,
                cost_micros: 0,
            },
            last_text: String::new(),
        }
    }
}

/// The conversation tells here what it recorded.
impl Observer for Shared {
    fn finished(&self, turn: &FinishedTurn) {
        *lock(&self.held_end) = Some(Box::new(turn.clone()));
    }

    fn belongings(&self, state: &State) {
        *lock(&self.belongings) = Belongings {
            standing: state.standing().clone(),
            touched: state.touched(),
            files: state.shared_files(),
        };
    }

    fn recorded(&self, seq: u64, event: &Event) {
        match &event.kind {
            EventKind::TurnStarted { .. } => lock(&self.pace).begins(),
            EventKind::TurnFinished { .. } => lock(&self.pace).ends(),
            _ => {}
        }
        {
            let mut snapshot = lock(&self.snapshot);
            snapshot.events = seq.saturating_add(1);
            match &event.kind {
                EventKind::Queued { id, .. } => snapshot.queue.push(*id),
                EventKind::Unqueued { id } => snapshot.queue.retain(|queued| queued != id),
                EventKind::TurnStarted { turn, queued, .. } => {
                    snapshot.queue.retain(|waiting| Some(*waiting) != *queued);
                    snapshot.status = SessionStatus::Running(*turn);
                }
                EventKind::ModelAnswered { response, .. } => {
                    snapshot.last_text = Message::assistant(response.content.clone()).text();
                }
                // What it was is known by now.
                EventKind::TurnFinished { .. } if !self.hub.holds_ends() => {
                    if let Some(last) = lock(&self.held_end).take() {
                        snapshot.finish(*last);
                    }
                }
                _ => {}
            }
        }
        self.counts.recorded(event);
        self.audit.recorded(&self.key, event);
        self.hub.recorded(seq, event);
    }

    fn preview(&self, event: &ModelEvent) {
        self.hub.preview(event);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("key", &self.key).finish_non_exhaustive()
    }
}
