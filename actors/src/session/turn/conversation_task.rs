//! The task that owns the conversation while it changes.
//!
//! The actor moves the conversation to the task. The task executes one command, drives the turn that is due, takes
//! messages from its inbox, and returns the conversation. If the task crashes, only this copy of the conversation is
//! lost: the actor fails, and its next incarnation loads the recorded events.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock as _, Deadline, SystemClock};
use conjure_conversation::{
    Block, CommandKind, Conversation, DriveError, EventLogError, InboxMessage, InterruptCause, Limits,
    ModelErrorKind, Rejection, SessionState, Step, SubmitError, TurnOptions, TurnServices, TurnStop, next,
    run_turn,
};
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::artifact_upload::ArtifactUploadHook;
use super::compaction_threshold::compaction_for;
use super::pre_call_hooks::PreCallHooks;
use super::running_task::changes_requests;
use super::turn_outputs::{RecordTrigger, record_outputs};
use super::workspace_copy_out::TurnEndHold;
use super::workspace_copy_out::copy_out;
use crate::artifacts::{ArtifactServices, have_expired};
use crate::session::error::{ReplyTo, SessionError};
use crate::session::lifecycle::session_entry::SessionEntry;
use crate::session::log::session_projection::TurnActivity;
use crate::session::spec::SessionComponents;
use crate::session::turn_handle::Accepted;
use crate::tenants::{ReserveError, estimate};

/// The command that a task executes.
pub(crate) enum TaskCommand {
    Start {
        input: Vec<Block>,
        limits: Limits,
        reply: ReplyTo<Accepted>,
    },
    StartQueued {
        /// The limits for queued messages that have none of their own.
        limits: Limits,
    },
    Queue {
        input: Vec<Block>,
        limits: Option<Limits>,
        reply: ReplyTo<Accepted>,
    },
    Steer {
        input: Vec<Block>,
        reply: ReplyTo<u64>,
    },
    /// Submits this command: a decision, a result or an input for a tool call, or a change of the settings, the queue or the artifacts.
    Submit {
        command: CommandKind,
        reply: ReplyTo<()>,
    },
    Interrupt {
        replies: Vec<ReplyTo<()>>,
    },
    SetModel {
        model: String,
        reply: ReplyTo<()>,
    },
    /// Only recovers the conversation and drives its turn.
    Resume,
}

pub(crate) struct ConversationTask {
    pub(crate) command: TaskCommand,
    pub(crate) conversation: Box<Conversation>,
    pub(crate) inbox: mpsc::Receiver<InboxMessage>,
    pub(crate) cancel: CancellationToken,
    pub(crate) components: Arc<SessionComponents>,
    pub(crate) entry: Arc<SessionEntry>,
    pub(crate) grace: Duration,
    /// Whether queued messages must wait: the tenant's budget has no room, or the user must first decide
    /// ([`needs_user_decision`]).
    pub(crate) hold_queue: bool,
    pub(crate) model_change: ModelChange,
    /// Whether the session's components must be built again because its settings changed.
    pub(crate) must_restart: bool,
}

/// Whether the session's model is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelChange {
    Known,
    /// It is unknown, because the journal failed while it recorded a change.
    Unknown,
}

/// The result of a task, with the session's current components.
pub(crate) struct FinishedTask {
    pub(crate) outcome: TaskOutcome,
    pub(crate) components: Arc<SessionComponents>,
    /// Whether the session's components must be built again.
    pub(crate) must_restart: bool,
}

/// How a task ended.
pub(crate) enum TaskOutcome {
    Done(Box<Conversation>),
    /// Queued messages must wait for the tenant's budget or for a decision of the user.
    QueueHeld(Box<Conversation>),
    /// The journal failed. The conversation is loaded again before its next command.
    JournalFailed(Box<Conversation>, EventLogError),
    /// The state machine or the driver panicked. This copy of the conversation is lost.
    Crashed(String),
}

impl TaskOutcome {
    /// Whether it is certain that no turn runs.
    pub(crate) fn has_no_turn(&self) -> bool {
        matches!(self, Self::Done(conversation) | Self::QueueHeld(conversation) if conversation.state().turn().is_none())
    }
}

/// Whether queued messages wait for the user, because it is unknown what the model's service did in the last turn.
/// They start after the user sends another message, or removes one from the queue.
pub(crate) fn needs_user_decision(state: &SessionState) -> bool {
    let stop = state.last_turn().map(|last| &last.stop);
    state.turn().is_none()
        && matches!(stop, Some(TurnStop::ModelFailed(error)) if error.kind == ModelErrorKind::OutcomeUnknown)
}

const fn changes_artifacts(command: &CommandKind) -> bool {
    matches!(
        command,
        CommandKind::RegisterArtifact { .. }
            | CommandKind::UnregisterArtifact { .. }
            | CommandKind::ClearArtifacts
            | CommandKind::FetchArtifact { .. }
    )
}

impl ConversationTask {
    pub(crate) async fn run(mut self) -> FinishedTask {
        let result = AssertUnwindSafe(self.run_command()).catch_unwind().await;
        let (components, must_restart) = (Arc::clone(&self.components), self.must_restart);
        FinishedTask { outcome: self.outcome(result), components, must_restart }
    }

    fn outcome(self, result: std::thread::Result<Result<(), EventLogError>>) -> TaskOutcome {
        match result {
            Ok(Ok(())) if self.hold_queue => TaskOutcome::QueueHeld(self.conversation),
            Ok(Ok(())) => TaskOutcome::Done(self.conversation),
            // The components must fit the recorded model. The next incarnation reads it and builds them again.
            Ok(Err(EventLogError::Failed { reason })) if self.model_change == ModelChange::Unknown => {
                TaskOutcome::Crashed(format!(
                    "it is unknown whether the session's model was changed: {reason}"
                ))
            }
            Ok(Err(error)) => TaskOutcome::JournalFailed(self.conversation, error),
            Err(_) => TaskOutcome::Crashed("the conversation task panicked".to_owned()),
        }
    }

    async fn run_command(&mut self) -> Result<(), EventLogError> {
        let command = std::mem::replace(&mut self.command, TaskCommand::Resume);
        let mut has_user_input = matches!(
            command,
            TaskCommand::Queue { .. } | TaskCommand::Submit { command: CommandKind::Unqueue { .. }, .. }
        );
        let mut result = match self.execute(command).await {
            Ok(()) => self.drive().await,
            failed => failed,
        };
        // Messages that came too late for the turn are queued, or returned to their senders.
        self.inbox.close();
        while let Some(message) = self.inbox.recv().await {
            // The sender may have seen the end of the turn, so the message counts as the user's decision.
            has_user_input = true;
            match &result {
                Ok(()) => result = message.submit(&mut self.conversation).await,
                Err(error) => message.fail(error.clone()),
            }
        }
        self.hold_queue |= !has_user_input && needs_user_decision(self.conversation.state());
        result
    }

    /// Drives a running turn until it ends or waits for an approval, a result or an input. Then records its files.
    async fn drive(&mut self) -> Result<(), EventLogError> {
        let state = self.conversation.state();
        match next(state) {
            Step::AwaitAction => return Ok(()),
            Step::Idle => return self.retry_record_outputs().await,
            _ => {}
        }
        self.entry.observer.observe(state, self.conversation.seq(), TurnActivity::Active);
        let (uploads, artifacts) = (self.components.uploads.as_ref(), self.components.artifacts.as_ref());
        let upload = uploads.zip(artifacts).map(|(uploads, artifacts)| {
            ArtifactUploadHook::new(&self.entry.key, uploads, &artifacts.resolver, &self.cancel)
        });
        let hook = PreCallHooks { upload, session_hook: self.components.pre_call_hook.clone() };
        let inbox = &mut self.inbox;
        let options = TurnOptions {
            cancel: self.cancel.clone(),
            deadline: Deadline::NEVER,
            grace: self.grace,
            compaction: compaction_for(
                self.entry.services.options.compaction.as_ref(),
                &*self.components.model,
                state.input_tokens(),
                self.components.summarizer.as_ref(),
            ),
            pre_call_hook: &hook,
            inbox: stream::poll_fn(|cx| inbox.poll_recv(cx)).boxed(),
        };
        let services = TurnServices {
            model: &*self.components.model,
            composer: &*self.components.composer,
            tools: &*self.components.tools,
        };
        let has_files = self.components.executor.is_some() || !self.components.outputs.is_empty();
        let _end = has_files.then(|| TurnEndHold::new(&self.entry));
        let driven = run_turn(&mut self.conversation, services, options).await;
        copy_out(&self.entry.key, self.components.executor.as_deref(), &self.cancel).await;
        match driven {
            Ok(_) | Err(DriveError::NoTurn) => {
                let trigger = RecordTrigger::TurnEnded(&self.cancel);
                let (entry, outputs) = (&self.entry, &self.components.outputs);
                record_outputs(&mut self.conversation, entry, outputs, trigger).await
            }
            Err(DriveError::EventLog(error)) => Err(error),
            Err(other) => Err(EventLogError::Failed { reason: other.to_string() }),
        }
    }

    /// Records the files of the last turn, if that failed after the turn.
    async fn retry_record_outputs(&mut self) -> Result<(), EventLogError> {
        let (entry, outputs) = (&self.entry, &self.components.outputs);
        record_outputs(&mut self.conversation, entry, outputs, RecordTrigger::Retry).await
    }

    /// Records what must be recorded before the session is used again: the files of the last turn, and the removal of
    /// expired artifacts.
    async fn record_due_changes(&mut self) -> Result<(), EventLogError> {
        self.retry_record_outputs().await?;
        let options = self.components.artifacts.as_ref().map(ArtifactServices::options);
        if options
            .is_some_and(|options| have_expired(self.conversation.state(), options, SystemClock.timestamp()))
        {
            tracing::info!(session = %self.entry.key, "the session's artifacts have expired");
            self.submit(CommandKind::ClearArtifacts).await.map(drop)?;
        }
        Ok(())
    }

    async fn execute(&mut self, command: TaskCommand) -> Result<(), EventLogError> {
        let comes_after_due_changes = match &command {
            TaskCommand::Start { .. } | TaskCommand::StartQueued { .. } => true,
            TaskCommand::Submit { command, .. } => changes_artifacts(command),
            _ => false,
        };
        if comes_after_due_changes && let Err(error) = self.record_due_changes().await {
            match command {
                TaskCommand::Start { reply, .. } => reply.send(Err(error.clone().into())),
                TaskCommand::Submit { reply, .. } => reply.send(Err(error.clone().into())),
                _ => {}
            }
            return Err(error);
        }
        match command {
            TaskCommand::Resume => self.submit(CommandKind::Recover).await.map(drop),
            TaskCommand::StartQueued { limits } => {
                let first = self.conversation.state().queue().next();
                let input = first.map(|queued| queued.input.clone()).unwrap_or_default();
                match self.check_budget(&input).await {
                    Ok(()) => {
                        let submitted = self.submit(CommandKind::StartQueued { limits }).await;
                        self.notify_turn_start();
                        submitted.map(drop)
                    }
                    Err(error) => {
                        tracing::info!(session = %self.entry.key, %error, "the tenant's budget could not be reserved; queued messages wait");
                        self.hold_queue = true;
                        Ok(())
                    }
                }
            }
            TaskCommand::Start { input, limits, reply } => {
                if let Err(error) = self.check_budget(&input).await {
                    reply.send(Err(error));
                    return Ok(());
                }
                let submitted = self.submit(CommandKind::StartTurn { input, limits }).await;
                self.notify_turn_start();
                let turn = self.conversation.state().turn().map(|turn| turn.id());
                let accepted = turn.map(|turn| Accepted::Started { turn, seq: self.last_seq() });
                self.send_reply(reply, submitted, accepted.ok_or(SessionError::Lost))
            }
            TaskCommand::Queue { input, limits, reply } => {
                let most = self.entry.account.limits().queued_messages;
                if self.conversation.state().queue().len() >= most {
                    reply.send(Err(self.entry.rejection_error(Rejection::QueueFull { limit: most })));
                    return Ok(());
                }
                let submitted = self.submit(CommandKind::Queue { input, limits }).await;
                let id = self.conversation.state().queue().last().map(|queued| queued.id);
                let accepted = id.map(|id| Accepted::Queued { id, seq: self.last_seq() });
                self.send_reply(reply, submitted, accepted.ok_or(SessionError::Lost))
            }
            TaskCommand::Steer { input, reply } => {
                let submitted = self.submit(CommandKind::Steer { input }).await;
                self.send_reply(reply, submitted, Ok(self.last_seq()))
            }
            TaskCommand::SetModel { model, reply } => self.set_model(model, reply).await,
            TaskCommand::Submit { command, reply } => {
                let changes_requests = changes_requests(&command);
                let submitted = self.submit(command).await;
                self.must_restart |= changes_requests && !matches!(submitted, Ok(Err(_)));
                self.send_reply(reply, submitted, Ok(()))
            }
            TaskCommand::Interrupt { replies } => {
                let cause = InterruptCause::Cancelled;
                let (result, ended) = match self.submit(CommandKind::Interrupt { cause }).await {
                    // `NoTurn`: the turn ended before the interruption.
                    Ok(Ok(()) | Err(Rejection::NoTurn)) => (Ok(()), Ok(())),
                    Ok(Err(rejection)) => (Err(rejection.into()), Ok(())),
                    Err(error) => (Err(error.clone().into()), Err(error)),
                };
                reply_all(replies, &result);
                ended
            }
        }
    }

    /// Notifies the output stores that a turn starts, if one does.
    fn notify_turn_start(&self) {
        let Some(turn) = self.conversation.state().turn() else { return };
        for store in &self.components.outputs {
            // If a store panics, it only lists the turn's files less exactly.
            let _ = std::panic::catch_unwind(AssertUnwindSafe(|| store.record_turn_start(turn.id())));
        }
    }

    /// Checks that the tenant's budget has room for a turn that starts with this input.
    async fn check_budget(&self, input: &[Block]) -> Result<(), SessionError> {
        let account = &self.entry.account;
        if account.limits().budget.allowances().is_empty() {
            return Ok(());
        }
        let composer = &self.components.composer;
        // If the composer panics, the turn itself reports that later. The estimate then leaves out the composed part.
        let composed =
            std::panic::catch_unwind(AssertUnwindSafe(|| composer.compose(self.conversation.state().view())))
                .unwrap_or_default();
        let bytes = estimate(&composed, self.conversation.state().messages(), input);
        match account.check(self.entry.key.session, bytes).await {
            // `TimedOut`: other sessions hold reservations. They may release them before the model call, which waits for that.
            Ok(()) | Err(ReserveError::TimedOut) => Ok(()),
            Err(ReserveError::QuotaExceeded(exceeded)) => Err(exceeded.into()),
            Err(ReserveError::Journal(error)) => Err(SessionError::Journal { reason: error.to_string() }),
        }
    }

    fn last_seq(&self) -> u64 {
        self.conversation.seq().saturating_sub(1)
    }

    /// Submits a command. A rejected command is a value; only a failure of the event log ends the task.
    pub(crate) async fn submit(&mut self, kind: CommandKind) -> Result<Result<(), Rejection>, EventLogError> {
        match self.conversation.submit(kind).await {
            Ok(()) => Ok(Ok(())),
            Err(SubmitError::Rejected(rejection)) => Ok(Err(rejection)),
            Err(SubmitError::EventLog(error)) => Err(error),
            Err(other) => Err(EventLogError::Failed { reason: other.to_string() }),
        }
    }

    pub(crate) fn send_reply<T: Send + 'static>(
        &self,
        reply: ReplyTo<T>,
        submitted: Result<Result<(), Rejection>, EventLogError>,
        value: Result<T, SessionError>,
    ) -> Result<(), EventLogError> {
        match submitted {
            Ok(Ok(())) => reply.send(value),
            Ok(Err(rejection)) => reply.send(Err(self.entry.rejection_error(rejection))),
            Err(error) => {
                reply.send(Err(error.clone().into()));
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Sends the same result to all waiting callers.
pub(crate) fn reply_all(replies: Vec<ReplyTo<()>>, result: &Result<(), SessionError>) {
    for reply in replies {
        reply.send(result.clone());
    }
}
