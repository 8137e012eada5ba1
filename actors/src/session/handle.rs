//! What a host holds of a session: good over its restarts, over its being put away, and over a restart of the process.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{OutputContent, Source};
use conjure_base::{CallId, Clock, Deadline, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{Block, Decision, Limits, QueueId, SessionFile};
use conjure_journal::SessionKey;
use conjure_sandbox::{Executor, Listing};

use super::error::SessionError;
use super::mail::{Mail, Parcel};
use super::message::{Answer, SessionMessage, SessionSnapshot};
use super::shared::Shared;
use super::spec::Setting;
use super::subscription::{Subscription, Turn};
use crate::artifacts::Artifacts;
use crate::supervision::{Reply, SendError, Supervisor};

/// A session, whichever incarnation of its actor runs, or none: the next message starts one. Cheap to clone; dropping it
/// ends nothing.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
    deadline: Option<Deadline>,
    _attached: Arc<()>,
}

/// What a user says: text, or blocks of content.
#[derive(Debug, Clone, PartialEq)]
pub struct Input(Vec<Block>);

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self(vec![Block::text(text)])
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self(vec![Block::text(text)])
    }
}

impl From<Vec<Block>> for Input {
    fn from(blocks: Vec<Block>) -> Self {
        Self(blocks)
    }
}

impl Session {
    /// A session that is in the journal, under this dynamic supervisor. One process has one such handle of a session and
    /// clones of it: a runtime's index sees to that.
    #[must_use]
    pub fn new(key: SessionKey, setting: Setting, parent: Supervisor) -> Self {
        Self::of(Shared::new(key, setting, parent))
    }

    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        let attached = Arc::clone(&shared.attached);
        Self { shared, deadline: None, _attached: attached }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.shared.key.session
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.shared.key.tenant
    }

    /// The same session, whose calls wait until then and not for the usual time.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Has the session started where it is not, and a turn that was under way driven on.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub async fn attach(&self) -> Result<(), SessionError> {
        let address = self.shared.revive(self.until()).await?;
        match address.send(Mail::Attached) {
            // Where it has just ended, the next message starts it.
            Ok(()) | Err(SendError::NotRunning(_) | SendError::DeadlinePassed(_)) => Ok(()),
            Err(SendError::Full(_)) => Err(SessionError::overloaded("the session's queue of messages")),
        }
    }

    /// Says something: a turn begins, now or when those before it are over. Returns when that is recorded.
    ///
    /// # Errors
    /// [`SessionError`] says why it was not recorded, or that this is not known.
    pub async fn send(&self, input: impl Into<Input> + Send) -> Result<Turn, SessionError> {
        self.send_within(input, None).await
    }

    /// The same with limits of its own, a deadline of the whole turn among them ([`Limits::wall_clock`]).
    ///
    /// # Errors
    /// As [`Session::send`].
    pub async fn send_within(
        &self,
        input: impl Into<Input> + Send,
        limits: Option<Limits>,
    ) -> Result<Turn, SessionError> {
        let Input(input) = input.into();
        let accepted = self.ask(|reply| SessionMessage::Send { input, limits, reply }).await?;
        Ok(Turn::new(self.listen(accepted.seq()), accepted))
    }

    /// Adds something to the turn that runs: the model reads it after the next results. Returns the sequence number under
    /// which it is recorded.
    ///
    /// # Errors
    /// [`SessionError::NotRunning`] where no turn runs, or the turn ended before it took the message: send it instead.
    pub async fn steer(&self, input: impl Into<Input> + Send) -> Result<u64, SessionError> {
        let Input(input) = input.into();
        self.ask(|reply| SessionMessage::Steer { input, reply }).await
    }

    /// Takes back what waits for its turn.
    ///
    /// # Errors
    /// When it does not wait any more.
    pub async fn take_back(&self, id: QueueId) -> Result<(), SessionError> {
        self.ask(|reply| SessionMessage::TakeBack { id, reply }).await
    }

    /// Ends the turn that runs or waits for a person; returns when the end is recorded.
    ///
    /// # Errors
    /// When that is not known.
    pub async fn interrupt(&self) -> Result<(), SessionError> {
        self.ask(|reply| SessionMessage::Interrupt { reply }).await
    }

    /// Decides on a tool call that waits for a person.
    ///
    /// # Errors
    /// When it does not wait.
    pub async fn decide(&self, call: CallId, decision: Decision) -> Result<(), SessionError> {
        self.ask(|reply| SessionMessage::Decide { call, decision, reply }).await
    }

    /// Listens from this event on.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn subscribe(&self, from_seq: u64) -> Result<Subscription, SessionError> {
        self.ask(|reply| SessionMessage::Subscribe { from_seq, reply }).await
    }

    /// All that lies in its workspace now, whoever put it there.
    ///
    /// # Errors
    /// When it has none, or it cannot be listed.
    pub async fn listing(&self) -> Result<Listing, SessionError> {
        self.ask(|reply| SessionMessage::Listing { reply }).await
    }

    /// The files that its turns created or changed, in its workspace and with whoever ran its hosted skills, with their sizes, types and
    /// digests as they were when the turn ended. Whoever has heard of a turn's end finds its files here, unless they could not be listed
    /// then; turns that ran no tools have none.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn files(&self) -> Result<Vec<SessionFile>, SessionError> {
        self.ask(|reply| SessionMessage::Files { reply }).await
    }

    /// Opens one of them, as it is now. The stream is good for as long as the session is live; one that breaks off ends with an error.
    ///
    /// # Errors
    /// [`SessionError::Output`]: the session has produced no such file, or it is gone or changed into something else.
    pub async fn open_file(&self, file: &SessionFile) -> Result<OutputContent, SessionError> {
        let file = Box::new(file.clone());
        self.ask(|reply| SessionMessage::OpenFile { file, reply }).await
    }

    /// The files and data that it is given, by name.
    #[must_use]
    pub fn artifacts(&self) -> Artifacts {
        Artifacts::of(self.clone())
    }

    /// One of its produced files as the source of an artifact of another session of the same tenant: its bytes, as they are now, are put
    /// into the tenant's store.
    ///
    /// # Errors
    /// As for [`Session::open_file`]; [`SessionError::Artifact`] when it cannot be kept, [`SessionError::Quota`] when it does not fit on what
    /// its tenant may have on the disk.
    pub async fn artifact_of(&self, file: &SessionFile) -> Result<Source, SessionError> {
        let file = Box::new(file.clone());
        self.ask(|reply| SessionMessage::StoreFile { file, reply }).await
    }

    /// What its tools run in: to look at its files, to know what it keeps apart, to bring
    /// back what was produced in it. It is good for as long as the session is live.
    ///
    /// # Errors
    /// When it has none, or cannot be started.
    pub async fn executor(&self) -> Result<Arc<dyn Executor>, SessionError> {
        self.ask(|reply| SessionMessage::Executor { reply }).await
    }

    /// How far it is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn snapshot(&self) -> Result<SessionSnapshot, SessionError> {
        self.ask(|reply| SessionMessage::Snapshot { reply }).await
    }

    /// Puts it away when its turn is over. The next message revives it, also one that waited behind this.
    ///
    /// # Errors
    /// When it did not answer. A runtime that shuts down puts it away, too.
    pub async fn close(&self) -> Result<(), SessionError> {
        match self.ask(|reply| SessionMessage::Close { reply }).await {
            Err(SessionError::ShuttingDown) => Ok(()),
            answer => answer,
        }
    }

    /// What this knows must not leave either, from now on: not through anybody who listens already, nor in results, the audit
    /// log and snapshots, for as long as the session is live or held here. What was told before is told.
    pub fn conceal(&self, secrets: &Redactor) {
        self.shared.conceal(secrets);
    }

    /// Lets a session be tried again that failed too often.
    pub fn lift_quarantine(&self) {
        self.shared.did_well();
    }

    /// Ends its actor at whatever it awaits, without asking; its supervisor starts it again, and what is recorded goes on.
    pub fn kill(&self) {
        if let Some(address) = self.shared.address() {
            address.kill();
        }
    }

    fn until(&self) -> Deadline {
        self.deadline.unwrap_or_else(|| SystemClock.deadline(self.shared.setting.options.deadline))
    }

    fn listen(&self, from_seq: u64) -> Subscription {
        self.shared.listen(from_seq)
    }

    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        message: impl FnOnce(Answer<T>) -> SessionMessage + Send,
    ) -> Result<T, SessionError> {
        let deadline = self.until();
        let (reply, answer) = Reply::new(deadline);
        tokio::pin!(answer);
        let mut message = message(reply);
        loop {
            let address = self.shared.revive(deadline).await?;
            let (parcel, returned) = Parcel::new(message);
            if let Err(SendError::Full(_)) = address.send(Mail::Said(parcel)) {
                return Err(SessionError::overloaded("the session's queue of messages"));
            }
            message = tokio::select! {
                biased;
                // Nobody opened it: the actor was put away, or failed, a moment ago.
                Ok(message) = returned => message,
                answer = &mut answer => return answer.unwrap_or(Err(SessionError::Lost)),
                () = SystemClock.sleep_until(deadline) => return Err(SessionError::DeadlinePassed),
            };
        }
    }
}

impl Shared {
    pub(crate) fn listen(self: &Arc<Self>, from_seq: u64) -> Subscription {
        Subscription::new(self, from_seq)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.shared.key)
    }
}
