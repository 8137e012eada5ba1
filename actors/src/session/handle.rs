//! The handle of a session. It stays valid when the session's actor restarts or is passivated.

use std::fmt;
use std::sync::Arc;

use conjure_artifact::{OutputContent, RegistrationSource};
use conjure_base::{CallId, Clock, Deadline, Redactor, SessionId, SystemClock, TenantId};
use conjure_conversation::{
    Block, CommandKind, Decision, EventId, InputAnswers, Limits, ProfileChange, QueueId, ResultContent,
    SessionFile,
};
use conjure_journal::SessionKey;
use conjure_sandbox::{Executor, Listing};

use super::error::{ReplyTo, SessionError};
use super::message::{SessionRequest, SessionSnapshot};
use super::spec::SessionServices;
use super::subscription::Subscription;
use super::turn_handle::{Answer, TurnHandle};
use crate::session::lifecycle::actor_message::{ActorMessage, ReturnableRequest};
use crate::session::lifecycle::child_spec::session_child_spec;
use crate::session::lifecycle::session_entry::SessionEntry;
use crate::supervision::{Reply, SendError, Supervisor};

/// A handle of a session. Cheap to clone. If no actor of the session runs, the next message starts one. Dropping the
/// handle does not end the session.
#[derive(Clone)]
pub struct Session {
    entry: Arc<SessionEntry>,
    deadline: Option<Deadline>,
    _attached: Arc<()>,
}

/// A user's input: text, or content blocks.
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
    /// A handle of a recorded session, whose actor will run under this dynamic supervisor. A process must create only
    /// one such handle of a session, and clone it. The runtime's index ensures this.
    #[must_use]
    pub fn new(key: SessionKey, services: SessionServices, parent: Supervisor) -> Self {
        Self::from_entry(SessionEntry::new(
            key,
            services,
            Arc::new(parent),
            session_child_spec,
            Box::new(|| {}),
        ))
    }

    pub(crate) fn from_entry(entry: Arc<SessionEntry>) -> Self {
        let attached = entry.handle_token();
        Self { entry, deadline: None, _attached: attached }
    }

    /// The session's id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.entry.key.session
    }

    /// The tenant that owns the session.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.entry.key.tenant
    }

    /// Sets a deadline for the calls of this handle, instead of the usual timeout.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Starts the session's actor if none runs, and continues an interrupted turn.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn attach(&self) -> Result<(), SessionError> {
        let address = self.entry.revive(self.call_deadline()).await?;
        match address.send(ActorMessage::ContinueWork) {
            // If the actor has just ended, the next message starts it.
            Ok(()) | Err(SendError::NotRunning(_) | SendError::DeadlinePassed(_)) => Ok(()),
            Err(SendError::Full(_)) => Err(SessionError::overloaded("the session's queue of messages")),
        }
    }

    /// Waits until no turn of the session runs or is about to continue.
    ///
    /// While a handle exists, an interrupted turn continues after a crash of the session's actor. So this waits for that
    /// turn, too. It does not revive a passivated session.
    pub async fn wait_idle(&self) {
        self.entry.wait_idle().await;
    }

    /// Sends a message. Its turn starts now, or after the turns before it. Returns when the message is recorded.
    ///
    /// # Errors
    /// When the message was not recorded, or when this is unknown.
    pub async fn send(&self, input: impl Into<Input> + Send) -> Result<TurnHandle, SessionError> {
        self.send_with_limits(input, None).await
    }

    /// Sends a message and waits until its turn has ended. A turn in which a call waits for a person has not ended: if
    /// calls may need an approval, use [`Session::send`] and follow the turn.
    ///
    /// Dropping the future does not end the turn.
    ///
    /// # Errors
    /// As [`Session::send`] and [`TurnHandle::answer`].
    pub async fn ask(&self, input: impl Into<Input> + Send) -> Result<Answer, SessionError> {
        self.send(input).await?.answer().await
    }

    /// As [`Session::send`], with limits for this turn; `None`: the limits of the session's profile. The limits include
    /// the duration of the whole turn ([`Limits::wall_clock`]).
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

    /// Adds a message to the running turn. The model reads it after the next tool results. Returns the sequence number
    /// under which it is recorded.
    ///
    /// # Errors
    /// [`SessionError::NotRunning`] if no turn runs, or if the turn ended before it took the message. Use
    /// [`Session::send`] then.
    pub async fn steer(&self, input: impl Into<Input> + Send) -> Result<u64, SessionError> {
        let Input(input) = input.into();
        self.request(|reply| SessionRequest::Steer { input, reply }).await
    }

    /// Removes a message from the queue.
    ///
    /// # Errors
    /// When the message is not queued any more.
    pub async fn unqueue(&self, id: QueueId) -> Result<(), SessionError> {
        self.submit(CommandKind::Unqueue { id }).await
    }

    /// Ends the turn that runs or waits for a person. Returns when the end is recorded.
    ///
    /// # Errors
    /// When it is unknown whether the end was recorded.
    pub async fn interrupt(&self) -> Result<(), SessionError> {
        self.request(|reply| SessionRequest::Interrupt { reply }).await
    }

    /// Decides on a tool call that waits for a person.
    ///
    /// # Errors
    /// When the call does not wait.
    pub async fn decide(&self, call: CallId, decision: Decision) -> Result<(), SessionError> {
        self.submit(CommandKind::Decide { call, decision }).await
    }

    /// Decides on the tool call of this `agent.tool_use` event.
    ///
    /// # Errors
    /// As for [`Session::decide`]; [`SessionError::NoSuchCall`] when the event is not a tool call of this session.
    pub async fn decide_event(&self, event: &EventId, decision: Decision) -> Result<(), SessionError> {
        self.decide(self.call_of_event(event)?, decision).await
    }

    /// Provides the result of a tool call that waits for it. Returns when the result is recorded.
    ///
    /// The turn continues when all calls of the response have their results. The same result may be provided again.
    ///
    /// # Errors
    /// When the call does not wait for a result, or already has a different one
    /// ([`Rejection::AnsweredDifferently`](conjure_conversation::Rejection::AnsweredDifferently)).
    pub async fn provide_result(
        &self,
        call: CallId,
        content: Vec<ResultContent>,
        is_error: bool,
    ) -> Result<(), SessionError> {
        self.submit(CommandKind::ProvideResult { call, content, is_error }).await
    }

    /// Provides the result of the tool call of this `agent.custom_tool_use` or `agent.tool_use` event.
    ///
    /// # Errors
    /// As for [`Session::provide_result`]; [`SessionError::NoSuchCall`] when the event is not a tool call of this session.
    pub async fn provide_result_event(
        &self,
        event: &EventId,
        content: Vec<ResultContent>,
        is_error: bool,
    ) -> Result<(), SessionError> {
        self.provide_result(self.call_of_event(event)?, content, is_error).await
    }

    /// Answers the questions of a tool call that waits for input. Returns when the answers are recorded.
    ///
    /// The tool runs again with the answers. A question without an answer counts as cancelled. The same answers may be
    /// given again.
    ///
    /// # Errors
    /// When the call does not wait for input in this round, was answered differently, or does not ask one of these
    /// questions ([`Rejection::UnknownQuestion`](conjure_conversation::Rejection::UnknownQuestion)).
    pub async fn provide_input(
        &self,
        call: CallId,
        round: u32,
        answers: InputAnswers,
    ) -> Result<(), SessionError> {
        self.submit(CommandKind::ProvideInput { call, round, answers }).await
    }

    /// Answers the questions of this `agent.input_request` event.
    ///
    /// # Errors
    /// As for [`Session::provide_input`]; [`SessionError::NoSuchCall`] when the event is not an input request of this session.
    pub async fn provide_input_event(
        &self,
        event: &EventId,
        answers: InputAnswers,
    ) -> Result<(), SessionError> {
        let Some((call, round)) = event.input_in(self.id()) else {
            return Err(SessionError::NoSuchCall { event: event.to_string() });
        };
        self.provide_input(call.clone(), round, answers).await
    }

    /// The model's id of the tool call of this event. It is part of the event's id, so nothing is read from the journal.
    ///
    /// # Errors
    /// [`SessionError::NoSuchCall`] when the event is not a tool call of this session.
    pub fn call_of_event(&self, event: &EventId) -> Result<CallId, SessionError> {
        let call = event.call_in(self.id()).cloned();
        call.ok_or_else(|| SessionError::NoSuchCall { event: event.to_string() })
    }

    /// Changes the session's settings. Returns when the change is recorded. A revived session keeps the change.
    ///
    /// The title, the metadata and the limits may change at any time; a running turn keeps its limits. The instructions
    /// and the tools may change only between two turns. Such a change ends the session's sandbox, as passivation does;
    /// the workspace stays.
    ///
    /// # Errors
    /// [`Rejection::TurnRunning`](conjure_conversation::Rejection::TurnRunning) if the change concerns the instructions or
    /// the tools, and a turn runs or waits for an action.
    pub async fn update(&self, change: ProfileChange) -> Result<(), SessionError> {
        let (needs_restart, change) = (change.changes_requests(), Box::new(change));
        self.submit(CommandKind::UpdateProfile { change }).await?;
        if needs_restart { self.attach().await } else { Ok(()) }
    }

    /// Uses the model of this name from the next turn on. Returns when the change is recorded. A revived session keeps
    /// the change.
    ///
    /// - If the new model belongs to another service, that service gets the former responses as text, tool calls and
    ///   results. Signatures and encrypted reasoning of the former service stay recorded, but are not sent.
    /// - The container in which the former service ran tools is kept only if the new model's service runs hosted skills.
    /// - The sandbox, the workspace and the active skills do not change.
    ///
    /// # Errors
    /// [`Rejection::TurnRunning`](conjure_conversation::Rejection::TurnRunning) while a turn runs or waits for a person;
    /// [`Rejection::NotHosting`](conjure_conversation::Rejection::NotHosting) and [`SessionError::ModelRefused`] if the
    /// session cannot have this model. Then it keeps its current one.
    pub async fn set_model(&self, name: impl Into<String> + Send) -> Result<(), SessionError> {
        let model = name.into();
        self.request(|reply| SessionRequest::SetModel { model, reply }).await
    }

    /// Subscribes to the session's events, from the event with this sequence number on.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn subscribe(&self, from_seq: u64) -> Result<Subscription, SessionError> {
        self.request(|reply| SessionRequest::Subscribe { from_seq, reply }).await
    }

    /// Lists all files that are in the session's workspace now, including those that no turn produced.
    ///
    /// # Errors
    /// When the session has no workspace, or when it cannot be listed.
    pub async fn list_files(&self) -> Result<Listing, SessionError> {
        self.request(|reply| SessionRequest::ListFiles { reply }).await
    }

    /// The files that the session's turns created or changed, in its workspace and at the service that runs its hosted
    /// skills. Sizes, types and digests are those at the end of the turn. Once the end of a turn is reported, its files
    /// are listed here, unless listing them failed. Turns that ran no tools have no files.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn files(&self) -> Result<Vec<SessionFile>, SessionError> {
        self.request(|reply| SessionRequest::Files { reply }).await
    }

    /// Opens a produced file in its current form. The stream is valid while the session is live; a broken stream ends
    /// with an error.
    ///
    /// # Errors
    /// [`SessionError::Output`]: the session has produced no such file, or it was removed, or it is no regular file any
    /// more.
    pub async fn open_file(&self, file: &SessionFile) -> Result<OutputContent, SessionError> {
        let file = Box::new(file.clone());
        self.request(|reply| SessionRequest::OpenFile { file, reply }).await
    }

    /// Makes a produced file the source of an artifact for another session of the same tenant. Copies its current bytes
    /// into the tenant's store.
    ///
    /// # Errors
    /// As for [`Session::open_file`]; [`SessionError::Artifact`] when the file cannot be stored,
    /// [`SessionError::Quota`] when it does not fit in the tenant's disk quota.
    pub async fn store_file(&self, file: &SessionFile) -> Result<RegistrationSource, SessionError> {
        let file = Box::new(file.clone());
        self.request(|reply| SessionRequest::StoreFile { file, reply }).await
    }

    /// The executor of the session's tools. It gives access to the files in the sandbox, tells which boundaries it
    /// enforces, and copies files to the host. It is valid while the session is live.
    ///
    /// # Errors
    /// When the session has no executor, or cannot be started.
    pub async fn executor(&self) -> Result<Arc<dyn Executor>, SessionError> {
        self.request(|reply| SessionRequest::Executor { reply }).await
    }

    /// The session's current state.
    ///
    /// # Errors
    /// When the session cannot be started.
    pub async fn snapshot(&self) -> Result<SessionSnapshot, SessionError> {
        self.request(|reply| SessionRequest::Snapshot { reply }).await
    }

    /// Passivates the session when its turn is over. The next message revives it, also a message that waited meanwhile.
    ///
    /// # Errors
    /// When the session did not answer. A shutdown of the runtime passivates the session, too, and is not an error here.
    pub async fn close(&self) -> Result<(), SessionError> {
        match self.request(|reply| SessionRequest::Close { reply }).await {
            Err(SessionError::ShuttingDown) => Ok(()),
            answer => answer,
        }
    }

    /// Redacts these secrets as well, from now on: in events for all subscribers, in tool results, in the audit log and
    /// in snapshots. This holds while the session is live or has a handle in this process. What was sent before is not
    /// changed.
    pub fn add_secrets(&self, secrets: &Redactor) {
        self.entry.add_secrets(secrets);
    }

    /// Allows a session in quarantine to be started again.
    pub fn clear_quarantine(&self) {
        self.entry.revival.reset_failures();
    }

    /// Kills the session's actor, even while it awaits something. Its supervisor restarts it, and it continues from the
    /// recorded events.
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

    pub(crate) async fn submit(&self, command: CommandKind) -> Result<(), SessionError> {
        self.request(|reply| SessionRequest::Submit { command, reply }).await
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
                // The actor was passivated or failed before it handled the request, so it is sent again.
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
