//! The actor of a session.
//!
//! While no task runs, the actor owns the conversation. To change it, the actor moves it to a task
//! ([`conversation_task`](crate::session::turn::conversation_task)). The task returns it in a message with the task's
//! number. Requests that arrive meanwhile go to the task's inbox, wait in the actor, or are handled at once.
//!
//! The actor awaits no journal, model or tool, except while it starts or stops. Acknowledged messages survive any end of
//! the actor: the next incarnation acquires a new lease and loads the recorded events.

mod file_requests;
mod start_from_journal;
mod task_control;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use conjure_base::{Clock, Deadline, SystemClock};
use conjure_conversation::{CommandKind, Conversation, Limits, Rejection, Step, next};
use tokio_util::sync::CancellationToken;

use super::error::SessionError;
use super::message::SessionRequest;
use super::spec::SessionComponents;
use crate::artifacts::{ContentPinning, LazyRegistry};
use crate::metrics::GaugeGuard;
use crate::session::event_redaction::{redact_answers, redact_content};
use crate::session::lifecycle::actor_message::{ActorMessage, ReturnChannel, ReturnableRequest};
use crate::session::lifecycle::session_entry::SessionEntry;
use crate::session::log::journal_retry::JournalRetry;
use crate::session::log::lease::LeaseLoss;
use crate::session::log::session_projection::TurnActivity;
use crate::session::turn::conversation_task::{TaskCommand, reply_all};
use crate::session::turn::running_task::{INBOX_CAPACITY, RunningTask, reject};
use crate::session::turn::workspace_copy_out::copy_out;
use crate::supervision::{Context, Failure, Flow, Job, Worker};

pub(crate) struct SessionActor {
    entry: Arc<SessionEntry>,
    components: Arc<SessionComponents>,
    /// Starts the registry that does the slow work for the session's artifacts.
    registry: LazyRegistry,
    /// Pins the contents of the session's artifacts, if the session may have artifacts.
    pinning: Option<Arc<ContentPinning>>,
    limits: Limits,
    owner: ConversationOwner,
    /// The time limit for copying files from the sandbox to the host when the actor stops.
    copy_out_deadline: Deadline,
    task_count: u64,
    retry: JournalRetry,
    /// Requests that wait for the task's end. Those that remain when the actor stops are returned to their senders.
    pending: VecDeque<ReturnableRequest>,
    /// Tasks that list, open or store files, or forward requests about artifacts.
    file_jobs: Vec<Job>,
    /// The timer for the deadline of a tool result that the turn waits for.
    result_timer: Option<Job>,
    /// Set if the files of the last turn were still unrecorded when the actor started.
    has_unrecorded_files: bool,
    _counted: GaugeGuard,
}

/// The current owner of the conversation.
enum ConversationOwner {
    Actor(Box<Conversation>),
    Task(RunningTask),
    /// No owner: the actor is about to stop.
    None,
}

impl SessionActor {
    /// Acquires the lease, loads the conversation and builds its components.
    pub(crate) async fn start(
        entry: Arc<SessionEntry>,
        context: Context<ActorMessage>,
    ) -> Result<Self, SessionError> {
        entry.revival.incarnation_started(context.address());
        match Self::try_start(&entry, &context).await {
            Ok(actor) => Ok(actor),
            Err(error) => {
                // Failures that are not the session's fault do not count.
                match &error {
                    SessionError::NotStarted { .. } => entry.revival.set_failure(error.to_string()),
                    _ => entry.revival.forgive_failure(),
                }
                Err(error)
            }
        }
    }

    fn is_draining(&self) -> bool {
        self.entry.services.draining.is_cancelled()
    }

    /// Handles a request of a handle.
    fn receive(&mut self, request: ReturnableRequest, context: &Context<ActorMessage>) -> Flow {
        let Some((mut message, back)) = request.take() else { return Flow::Continue };
        // Results and answers from callers are redacted once, before they are recorded.
        match &mut message {
            SessionRequest::Submit { command: CommandKind::ProvideResult { content, .. }, .. } => {
                redact_content(&self.entry.redactor(), content);
            }
            SessionRequest::Submit { command: CommandKind::ProvideInput { answers, .. }, .. } => {
                redact_answers(&self.entry.redactor(), answers);
            }
            _ => {}
        }
        match message {
            SessionRequest::Subscribe { from_seq, reply } => {
                reply.send(Ok(self.entry.subscription(from_seq)))
            }
            SessionRequest::Snapshot { reply } => reply.send(Ok(self.entry.snapshot())),
            SessionRequest::ListFiles { reply } => self.list(reply, context),
            SessionRequest::Files { reply } => reply.send(Ok(self.entry.observer.projection.files())),
            SessionRequest::OpenFile { file, reply } => self.open_file(*file, reply, context),
            SessionRequest::StoreFile { file, reply } => self.store_file(*file, reply, context),
            SessionRequest::ListArtifacts { reply } => {
                let artifacts = self.components.artifacts.as_ref();
                reply.send(Ok(artifacts
                    .map(|components| self.entry.artifacts(components))
                    .unwrap_or_default()));
            }
            SessionRequest::Artifacts(request) => self.forward_to_registry(request, context),
            SessionRequest::Executor { reply } => reply.send(self.executor()),
            message => return self.receive_for_conversation(message, back, context),
        }
        Flow::Continue
    }

    fn receive_for_conversation(
        &mut self,
        message: SessionRequest,
        back: ReturnChannel,
        context: &Context<ActorMessage>,
    ) -> Flow {
        if self.is_draining()
            && let SessionRequest::Send { reply, .. } = message
        {
            reply.send(Err(SessionError::Draining));
            return Flow::Continue;
        }
        match &mut self.owner {
            ConversationOwner::Task(task) => {
                if let Some((message, back)) = task.route(message, back, &self.entry) {
                    self.enqueue(message, back);
                }
                Flow::Continue
            }
            ConversationOwner::None => {
                drop(ReturnableRequest::requeue(message, back));
                Flow::Continue
            }
            ConversationOwner::Actor(conversation) => {
                let step = next(conversation.state());
                if !conversation.is_fresh() || !matches!(step, Step::Idle | Step::AwaitAction) {
                    // The journal failed, or a turn was interrupted. The task loads the recorded events and continues the turn first.
                    self.spawn_task(TaskCommand::Resume, context);
                    return self.receive_for_conversation(message, back, context);
                }
                let (has_turn, has_queue) =
                    (step == Step::AwaitAction, conversation.state().queue().len() > 0);
                self.execute(message, has_turn, has_queue, context)
            }
        }
    }

    /// Executes a command while the actor owns the conversation.
    fn execute(
        &mut self,
        message: SessionRequest,
        has_turn: bool,
        has_queue: bool,
        context: &Context<ActorMessage>,
    ) -> Flow {
        let command = match message {
            SessionRequest::Send { input, limits, reply } if has_turn || has_queue => {
                TaskCommand::Queue { input, limits, reply }
            }
            SessionRequest::Send { input, limits, reply } => {
                let limits = limits.unwrap_or_else(|| self.limits.clone());
                TaskCommand::Start { input, limits, reply }
            }
            SessionRequest::Steer { input, reply } if has_turn => TaskCommand::Steer { input, reply },
            SessionRequest::Steer { reply, .. } => {
                reply.send(Err(SessionError::NotRunning));
                return Flow::Continue;
            }
            SessionRequest::Interrupt { reply } if has_turn => {
                TaskCommand::Interrupt { replies: vec![reply] }
            }
            SessionRequest::Interrupt { reply } => {
                reply.send(Ok(()));
                return Flow::Continue;
            }
            SessionRequest::Submit { command, reply } => TaskCommand::Submit { command, reply },
            SessionRequest::SetModel { reply, .. } if has_turn => {
                reply.send(Err(Rejection::TurnRunning.into()));
                return Flow::Continue;
            }
            SessionRequest::SetModel { model, reply } => TaskCommand::SetModel { model, reply },
            SessionRequest::Close { reply } => {
                self.entry.revival.reset_failures();
                reply.send(Ok(()));
                return Flow::Stop;
            }
            SessionRequest::Subscribe { .. }
            | SessionRequest::ListFiles { .. }
            | SessionRequest::Files { .. }
            | SessionRequest::OpenFile { .. }
            | SessionRequest::StoreFile { .. }
            | SessionRequest::ListArtifacts { .. }
            | SessionRequest::Artifacts(_)
            | SessionRequest::Executor { .. }
            | SessionRequest::Snapshot { .. } => {
                return Flow::Continue;
            }
        };
        self.spawn_task(command, context);
        Flow::Continue
    }

    /// Keeps a request until the task returns the conversation.
    fn enqueue(&mut self, message: SessionRequest, back: ReturnChannel) {
        if self.pending.len() < INBOX_CAPACITY {
            self.pending.push_back(ReturnableRequest::requeue(message, back));
            return;
        }
        reject(message, SessionError::overloaded("the queue of requests that wait for the running turn"));
    }

    /// Returns all waiting requests to their senders, which send them to the next incarnation. A waiting request to
    /// close succeeds.
    fn return_pending(&mut self) {
        for request in self.pending.drain(..) {
            match request.take() {
                Some((SessionRequest::Close { reply }, _)) => reply.send(Ok(())),
                Some((message, back)) => drop(ReturnableRequest::requeue(message, back)),
                None => {}
            }
        }
    }

    /// Fails all waiting requests with the error of the task that they waited for. Otherwise their senders would wait
    /// until the next attempt to use the journal.
    fn reject_pending(&mut self, error: &SessionError) {
        for (message, _) in self.pending.drain(..).filter_map(ReturnableRequest::take) {
            reject(message, error.clone());
        }
    }

    /// Stops the actor, because another process has the session or may have it soon. The actor writes nothing more.
    fn stop_on_lease_loss(&mut self, why: &LeaseLoss) -> Flow {
        tracing::warn!(session = %self.entry.key, %why, "the session's lease was lost; its actor stops");
        self.owner = ConversationOwner::None;
        // Another process uses the workspace, or may use it soon. The sandbox must be gone before that.
        self.copy_out_deadline = match why {
            LeaseLoss::TakenOver(_) => SystemClock.deadline(Duration::ZERO),
            LeaseLoss::Expired { until, .. } => SystemClock.deadline(SystemClock.remaining(*until) / 2),
        };
        self.entry.revival.reset_failures();
        self.entry.observer.hub.close_failed(why.to_string());
        Flow::Stop
    }
}

impl Worker for SessionActor {
    type Message = ActorMessage;

    async fn handle(
        &mut self,
        message: ActorMessage,
        context: &Context<ActorMessage>,
    ) -> Result<Flow, Failure> {
        match message {
            ActorMessage::Request(request) => Ok(self.receive(request, context)),
            ActorMessage::ContinueWork => Ok(self.continue_turn(context)),
            ActorMessage::Retry => {
                self.retry.start();
                Ok(self.continue_turn(context))
            }
            ActorMessage::TaskFinished { task, finished } => self.task_finished(task, finished, context),
            ActorMessage::LeaseLost(end) => Ok(self.stop_on_lease_loss(&end)),
        }
    }

    /// Interrupts the running turn and waits until its end is recorded. The lease is released after the sandbox has
    /// stopped.
    async fn stop(&mut self, _: &Context<ActorMessage>) -> Result<(), Failure> {
        self.return_pending();
        if let ConversationOwner::Task(task) = std::mem::replace(&mut self.owner, ConversationOwner::None) {
            task.cancel.cancel();
            task.job.wait().await;
            // The actor does not handle the task's last message any more. If the turn's end may be unrecorded, the replies
            // are dropped. The callers that interrupted the turn then get `SessionError::Lost`: the outcome is unknown.
            if task.turn_ended.load(Ordering::Acquire) {
                reply_all(task.interrupts, &Ok(()));
            }
        }
        self.owner = ConversationOwner::None;
        self.entry.revival.reset_failures();
        // Commands in the background may have written files since the last copy, and the sandbox ends next.
        let hurry = CancellationToken::new();
        hurry.cancel();
        tokio::select! {
            biased;
            () = SystemClock.sleep_until(self.copy_out_deadline) => {}
            () = copy_out(&self.entry.key, self.components.executor.as_deref(), &hurry) => {}
        }
        Ok(())
    }
}

impl Drop for SessionActor {
    fn drop(&mut self) {
        self.entry.observer.set_turn_activity(TurnActivity::Idle);
    }
}
