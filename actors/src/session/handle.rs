//! What a host holds of a session: good over its restarts, over its being put away, and over a restart of the process.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{OutputContent, RegistrationSource};
use conjure_base::{CallId, Clock, Deadline, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{Block, Decision, Limits, QueueId, SessionFile};
use conjure_journal::SessionKey;
use conjure_sandbox::{Executor, Listing};

use super::actor_message::{ActorMessage, ReturnableRequest};
use super::error::SessionError;
use super::message::{ReplyTo, SessionRequest, SessionSnapshot};
use super::session_entry::SessionEntry;
use super::spec::SessionServices;
use super::subscription::{Answer, Subscription, TurnHandle};
use crate::artifacts::Artifacts;
use crate::supervision::{Reply, SendError, Supervisor};

/// A session, whichever incarnation of its actor runs, or none: the next message starts one. Cheap to clone; dropping it
/// ends nothing.
#[derive(Clone)]
pub struct Session {
    entry: Arc<SessionEntry>,
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
    pub fn new(key: SessionKey, services: SessionServices, parent: Supervisor) -> Self {
        Self::from_entry(SessionEntry::new(key, services, parent))
    }

    pub(crate) fn from_entry(entry: Arc<SessionEntry>) -> Self {
        let attached = entry.handle_token();
        Self { entry, deadline: None, _attached: attached }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.entry.key.session
    }

    /// Whose it is.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.entry.key.tenant
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
        let address = self.entry.revive(self.call_deadline()).await?;
        match address.send(ActorMessage::Attached) {
            // Where it has just ended, the next message starts it.
            Ok(()) | Err(SendError::NotRunning(_) | SendError::DeadlinePassed(_)) => Ok(()),
            Err(SendError::Full(_)) => Err(SessionError::overloaded("the session's queue of messages")),
        }
    }

    /// Says something: a turn begins, now or when those before it are over. Returns when that is recorded.
    ///
    /// # Errors
    /// [`SessionError`] says why it was not recorded, or that this is not known.
    pub async fn send(&self, input: impl Into<Input> + Send) -> Result<TurnHandle, SessionError> {
        self.send_with_limits(input, None).await
    }

    /// Sends a message and waits until its turn is over. A call that waits for a person ends no turn: follow
    /// [`Session::send`] where an approver may ask.
    ///
    /// Dropping the future does not end the turn.
    ///
    /// # Errors
    /// As [`Session::send`] and [`TurnHandle::answer`].
    pub async fn ask(&self, input: impl Into<Input> + Send) -> Result<Answer, SessionError> {
        self.send(input).await?.answer().await
    }

    /// As [`Session::send`], with limits of its own, a deadline of the whole turn among them ([`Limits::wall_clock`]).
    ///
    /// # Errors
    /// As [`Session::send`].
    pub async fn send_with_limits(
        &self,
        input: impl Into<Input> + Send,
        limits: Option<Limits>,
    ) -> Result<TurnHandle, SessionError> {
        let Input(input) = input.into();
        let accepted = self.request(|reply| SessionRequest::Send { input, limits, reply }).await?;
        Ok(TurnHandle::new(self.subscription(accepted.seq()), accepted))
    }

    /// Adds something to the turn that runs: the model reads it after the next results. Returns the sequence number under
    /// which it is recorded.
    ///
    /// # Errors
    /// [`SessionError::NotRunning`] where no turn runs, or the turn ended before it took the message: send it instead.
    pub async fn steer(&self, input: impl Into<Input> + Send) -> Result<u64, SessionError> {
        let Input(input) = input.into();
        self.request(|reply| SessionRequest::Steer { input, reply }).await
    }

    /// Takes back what waits for its turn.
    ///
    /// # Errors
    /// When it does not wait any more.
    pub async fn unqueue(&self, id: QueueId) -> Result<(), SessionError> {
        self.request(|reply| SessionRequest::Unqueue { id, reply }).await
    }

    /// Ends the turn that runs or waits for a person; returns when the end is recorded.
    ///
    /// # Errors
    /// When that is not known.
    pub async fn interrupt(&self) -> Result<(), SessionError> {
        self.request(|reply| SessionRequest::Interrupt { reply }).await
    }

    /// Decides on a tool call that waits for a person.
    ///
    /// # Errors
    /// When it does not wait.
    pub async fn decide(&self, call: CallId, decision: Decision) -> Result<(), SessionError> {
        self.request(|reply| SessionRequest::Decide { call, decision, reply }).await
    }

    /// Uses the model of this name from the next turn on; returns when that is recorded. A session that is revived later has it, too.
    ///
    /// What the service of the former model said goes to another service as text, tool calls and results. Its signatures and its encrypted
    /// reasoning stay recorded, and are left out. The container of a service that ran tools is kept only if the new model's service runs
    /// hosted skills. The sandbox, the workspace and the active skills stay as they are.
    ///
    /// # Errors
    /// [`Rejection::TurnRunning`](conjure_conversation::Rejection::TurnRunning) while a turn runs or waits for a person;
    /// [`Rejection::NotHosting`](conjure_conversation::Rejection::NotHosting) and [`SessionError::ModelRefused`] if the session cannot
    /// have this model. It keeps the one that it has then.
    pub async fn set_model(&self, name: impl Into<String> + Send) -> Result<(), SessionError> {
        let model = name.into();
        self.request(|reply| SessionRequest::SetModel { model, reply }).await
    }

    /// Listens from this event on.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn subscribe(&self, from_seq: u64) -> Result<Subscription, SessionError> {
        self.request(|reply| SessionRequest::Subscribe { from_seq, reply }).await
    }

    /// All that lies in its workspace now, whoever put it there.
    ///
    /// # Errors
    /// When it has none, or it cannot be listed.
    pub async fn list_files(&self) -> Result<Listing, SessionError> {
        self.request(|reply| SessionRequest::ListFiles { reply }).await
    }

    /// The files that its turns created or changed, in its workspace and with whoever ran its hosted skills, with their sizes, types and
    /// digests as they were when the turn ended. Whoever has heard of a turn's end finds its files here, unless they could not be listed
    /// then; turns that ran no tools have none.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn files(&self) -> Result<Vec<SessionFile>, SessionError> {
        self.request(|reply| SessionRequest::Files { reply }).await
    }

    /// Opens one of them, as it is now. The stream is good for as long as the session is live; one that breaks off ends with an error.
    ///
    /// # Errors
    /// [`SessionError::Output`]: the session has produced no such file, or it is gone or changed into something else.
    pub async fn open_file(&self, file: &SessionFile) -> Result<OutputContent, SessionError> {
        let file = Box::new(file.clone());
        self.request(|reply| SessionRequest::OpenFile { file, reply }).await
    }

    /// The files and data that it is given, by name.
    #[must_use]
    pub fn artifacts(&self) -> Artifacts {
        Artifacts::new(self.clone())
    }

    /// One of its produced files as the source of an artifact of another session of the same tenant: its bytes, as they are now, are put
    /// into the tenant's store.
    ///
    /// # Errors
    /// As for [`Session::open_file`]; [`SessionError::Artifact`] when it cannot be kept, [`SessionError::Quota`] when it does not fit on what
    /// its tenant may have on the disk.
    pub async fn artifact_of(&self, file: &SessionFile) -> Result<RegistrationSource, SessionError> {
        let file = Box::new(file.clone());
        self.request(|reply| SessionRequest::StoreFile { file, reply }).await
    }

    /// What its tools run in: to look at its files, to know what it keeps apart, to bring
    /// back what was produced in it. It is good for as long as the session is live.
    ///
    /// # Errors
    /// When it has none, or cannot be started.
    pub async fn executor(&self) -> Result<Arc<dyn Executor>, SessionError> {
        self.request(|reply| SessionRequest::Executor { reply }).await
    }

    /// How far it is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn snapshot(&self) -> Result<SessionSnapshot, SessionError> {
        self.request(|reply| SessionRequest::Snapshot { reply }).await
    }

    /// Puts it away when its turn is over. The next message revives it, also one that waited behind this.
    ///
    /// # Errors
    /// When it did not answer. A runtime that shuts down puts it away, too.
    pub async fn close(&self) -> Result<(), SessionError> {
        match self.request(|reply| SessionRequest::Close { reply }).await {
            Err(SessionError::ShuttingDown) => Ok(()),
            answer => answer,
        }
    }

    /// What this knows must not leave either, from now on: not through anybody who listens already, nor in results, the audit
    /// log and snapshots, for as long as the session is live or held here. What was told before is told.
    pub fn add_secrets(&self, secrets: &Redactor) {
        self.entry.add_secrets(secrets);
    }

    /// Lets a session be tried again that failed too often.
    pub fn clear_quarantine(&self) {
        self.entry.revival.reset_failures();
    }

    /// Ends its actor at whatever it awaits, without asking; its supervisor starts it again, and what is recorded goes on.
    pub fn kill(&self) {
        if let Some(address) = self.entry.revival.address() {
            address.kill();
        }
    }

    fn call_deadline(&self) -> Deadline {
        self.deadline.unwrap_or_else(|| SystemClock.deadline(self.entry.services.options.deadline))
    }

    fn subscription(&self, from_seq: u64) -> Subscription {
        self.entry.subscription(from_seq)
    }

    pub(crate) async fn request<T: Send + 'static>(
        &self,
        message: impl FnOnce(ReplyTo<T>) -> SessionRequest + Send,
    ) -> Result<T, SessionError> {
        let deadline = self.call_deadline();
        let (reply, answer) = Reply::new(deadline);
        tokio::pin!(answer);
        let mut message = message(reply);
        loop {
            let address = self.entry.revive(deadline).await?;
            let (request, returned) = ReturnableRequest::new(message);
            if let Err(SendError::Full(_)) = address.send(ActorMessage::Request(request)) {
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

impl SessionEntry {
    pub(crate) fn subscription(self: &Arc<Self>, from_seq: u64) -> Subscription {
        Subscription::new(self, from_seq)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.entry.key)
    }
}
