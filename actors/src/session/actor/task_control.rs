//! Moves the conversation to a task, takes it back, and starts work that needs no request of a caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conjure_base::{Clock as _, SystemClock, Timestamp};
use conjure_conversation::{EventLogError, Step, next};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{ConversationOwner, SessionActor};
use crate::session::error::SessionError;
use crate::session::lifecycle::actor_message::{ActorMessage, send_to_self};
use crate::session::log::lease::LeaseLoss;
use crate::session::log::session_projection::TurnActivity;
use crate::session::turn::conversation_task::{
    ConversationTask, FinishedTask, ModelChange, TaskCommand, TaskOutcome, needs_user_decision, reply_all,
};
use crate::session::turn::running_task::{DrivenTurn, INBOX_CAPACITY, RunningTask};
use crate::supervision::{Context, Failure, Flow};

/// Whether queued messages may start a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queued {
    MayStart,
    /// They wait until the user sends something ([`needs_user_decision`]).
    MustWait,
}

impl SessionActor {
    /// Starts a task that takes the conversation and executes this command.
    pub(super) fn spawn_task(&mut self, command: TaskCommand, context: &Context<ActorMessage>) {
        let conversation = match std::mem::replace(&mut self.owner, ConversationOwner::None) {
            ConversationOwner::Actor(conversation) => conversation,
            other => {
                self.owner = other;
                return;
            }
        };
        let is_start = matches!(command, TaskCommand::Start { .. } | TaskCommand::StartQueued { .. });
        let turn = if is_start || conversation.state().turn().is_some() {
            DrivenTurn::After(conversation.state().last_turn().map(|last| last.turn))
        } else {
            DrivenTurn::None
        };
        self.task_count += 1;
        self.entry.observer.set_turn_activity(TurnActivity::Active);
        let number = self.task_count;
        let (inbox, inbox_receiver) = mpsc::channel(INBOX_CAPACITY);
        let cancel = CancellationToken::new();
        let task = ConversationTask {
            command,
            conversation,
            inbox: inbox_receiver,
            cancel: cancel.clone(),
            components: Arc::clone(&self.components),
            entry: Arc::clone(&self.entry),
            grace: self.entry.services.options.grace,
            hold_queue: false,
            model_change: ModelChange::Known,
            must_restart: false,
        };
        let span = tracing::info_span!(
            "session",
            gen_ai.conversation.id = %self.entry.key.session,
            conjure.tenant = %self.entry.key.tenant,
            conjure.session = %self.entry.key.session,
            conjure.incarnation = context.incarnation(),
        );
        let (address, stopping) = (context.address().clone(), context.stopping().clone());
        let turn_ended = Arc::new(AtomicBool::new(false));
        let turn_ended_flag = Arc::clone(&turn_ended);
        let job = context.spawn(
            async move {
                let finished = task.run().await;
                turn_ended_flag.store(finished.outcome.has_no_turn(), Ordering::Release);
                let message = ActorMessage::TaskFinished { task: number, finished };
                send_to_self(&address, &stopping, message).await;
            }
            .instrument(span),
        );
        self.owner = ConversationOwner::Task(RunningTask {
            id: number,
            cancel,
            inbox,
            job,
            interrupts: Vec::new(),
            turn_ended,
            turn,
        });
    }

    /// Takes the conversation back, or handles the crash of its task.
    pub(super) fn task_finished(
        &mut self,
        id: u64,
        finished: FinishedTask,
        context: &Context<ActorMessage>,
    ) -> Result<Flow, Failure> {
        let replies = match std::mem::replace(&mut self.owner, ConversationOwner::None) {
            ConversationOwner::Task(task) if task.id == id => task.interrupts,
            other => {
                tracing::debug!(session = %self.entry.key, task = id, "a stale conversation task is ignored");
                self.owner = other;
                return Ok(Flow::Continue);
            }
        };
        let FinishedTask { outcome, components, must_restart } = finished;
        self.components = components;
        let hold_queue = matches!(outcome, TaskOutcome::QueueHeld(_));
        let conversation = match outcome {
            TaskOutcome::Done(conversation) | TaskOutcome::QueueHeld(conversation) => {
                self.retry.reset();
                self.entry.revival.reset_failures();
                conversation
            }
            TaskOutcome::JournalFailed(_, EventLogError::Fenced { reason }) => {
                reply_all(replies, &Err(SessionError::TakenOver { reason: reason.clone() }));
                return Ok(self.stop_on_lease_loss(&LeaseLoss::TakenOver(reason)));
            }
            TaskOutcome::JournalFailed(conversation, error) => {
                tracing::warn!(session = %self.entry.key, %error, "the journal failed; the session is loaded again");
                self.entry.observer.observe(conversation.state(), conversation.seq(), TurnActivity::Idle);
                self.owner = ConversationOwner::Actor(conversation);
                self.retry.schedule(context);
                self.entry.observer.set_turn_activity(TurnActivity::Idle);
                let error = SessionError::from(error);
                reply_all(replies, &Err(error.clone()));
                self.reject_pending(&error);
                return Ok(Flow::Continue);
            }
            TaskOutcome::Crashed(reason) => {
                // The waiting callers get an error, because their requests are lost.
                self.entry.revival.set_failure(reason.clone());
                return Err(reason.into());
            }
        };
        let has_turn = conversation.state().turn().is_some();
        if let Some(profile) = conversation.state().profile() {
            self.limits = profile.limits.clone();
        }
        self.entry.observer.observe(conversation.state(), conversation.seq(), TurnActivity::Idle);
        self.owner = ConversationOwner::Actor(conversation);
        self.update_pins(context);
        if has_turn && !replies.is_empty() {
            // The turn waits for a person. Either the task did not drive it, or it began to wait before the interruption.
            self.spawn_task(TaskCommand::Interrupt { replies }, context);
            return Ok(Flow::Continue);
        }
        reply_all(replies, &Ok(()));
        if must_restart {
            // The next incarnation builds its components from the changed settings.
            return Ok(Flow::Stop);
        }
        while let ConversationOwner::Actor(_) = self.owner
            && let Some(request) = self.pending.pop_front()
        {
            if self.receive(request, context) == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        // Messages that wait for the budget are tried again when the budget changes, or with the next message. Messages
        // that wait for the user's decision are tried again after the decision.
        if !hold_queue {
            self.resume(Queued::MayStart, context);
        }
        if let ConversationOwner::Actor(_) = self.owner {
            self.entry.observer.set_turn_activity(TurnActivity::Idle);
        }
        Ok(Flow::Continue)
    }

    /// Continues work that needs no message of the user, such as an interrupted turn.
    pub(super) fn continue_turn(&mut self, context: &Context<ActorMessage>) -> Flow {
        let needs_decision = matches!(&self.owner, ConversationOwner::Actor(conversation)
            if conversation.is_fresh() && needs_user_decision(conversation.state()));
        self.resume(if needs_decision { Queued::MustWait } else { Queued::MayStart }, context);
        Flow::Continue
    }

    /// Schedules a message to the actor for the deadline of a tool result that the turn waits for. The timer does not
    /// keep the session from being passivated: a revived session checks the deadline itself.
    fn wake_at(&mut self, deadline: Timestamp, context: &Context<ActorMessage>) {
        let end = SystemClock.deadline(deadline.duration_since(SystemClock.timestamp()));
        let (address, stopping) = (context.address().clone(), context.stopping().clone());
        let wait = async move {
            SystemClock.sleep_until(end).await;
            send_to_self(&address, &stopping, ActorMessage::ContinueWork).await;
        };
        self.result_timer = Some(context.spawn_background(wait));
    }

    /// Drives an interrupted turn, or starts a queued one.
    fn resume(&mut self, queued: Queued, context: &Context<ActorMessage>) {
        let ConversationOwner::Actor(conversation) = &self.owner else { return };
        match next(conversation.state()) {
            _ if !conversation.is_fresh() => self.spawn_task(TaskCommand::Resume, context),
            Step::AwaitAction => match conversation.state().result_deadline() {
                Some(deadline) if deadline <= SystemClock.timestamp() => {
                    self.spawn_task(TaskCommand::Resume, context);
                }
                Some(deadline) => self.wake_at(deadline, context),
                None => {}
            },
            Step::Idle => {
                let may_start = queued == Queued::MayStart && conversation.state().queue().len() > 0;
                if may_start && !self.is_draining() {
                    self.spawn_task(TaskCommand::StartQueued { limits: self.limits.clone() }, context);
                } else if std::mem::take(&mut self.has_unrecorded_files) {
                    self.spawn_task(TaskCommand::Resume, context);
                }
            }
            _ => self.spawn_task(TaskCommand::Resume, context),
        }
    }
}
