//! One turn, from its recovery to its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_base::{Deadline, lock};
use futures_util::future::{Either, select};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::composer::Composer;
use crate::driver::batch_cancellation::CANCEL_GRACE;
use crate::driver::conversation::{Conversation, SubmitError};
use crate::driver::inbox::InboxMessage;
use crate::events::event_log::EventLogError;
use crate::events::turn_stop::TurnStop;
use crate::machine::command::{CommandKind, InterruptCause, Rejection};
use crate::machine::{Step, next};
use crate::model::Model;
use crate::state::open_call::PendingAction;
use crate::state::session_state::SessionState;
use crate::summary::Compaction;
use crate::tools::tool_runner::ToolRunner;

/// How long an event log may take to record a turn's end. The time counts after the deadline or the cancellation, and after the
/// tools' grace period.
const EVENT_LOG_TIMEOUT: Duration = Duration::from_secs(10);

/// A hook that runs before each model call.
pub trait PreCallHook: Send + Sync {
    /// Returns the work for this state as a stream of commands; `None` when the model may be called.
    ///
    /// The driver submits the commands in their order, and skips those that the state machine rejects. When the stream has ended, the
    /// driver asks again, so an implementation must not return the same work forever. Dropping the stream cancels the work.
    fn before_model_call(&self, state: &SessionState) -> Option<BoxStream<'static, CommandKind>>;
}

/// Does nothing.
impl PreCallHook for () {
    fn before_model_call(&self, _: &SessionState) -> Option<BoxStream<'static, CommandKind>> {
        None
    }
}

/// The model, composer and tool runner of a turn.
#[derive(Clone, Copy)]
pub struct TurnServices<'a> {
    /// Answers the requests.
    pub model: &'a dyn Model,
    /// Composes the system prompt and the tools of each request.
    pub composer: &'a dyn Composer,
    /// Runs the tools.
    pub tools: &'a dyn ToolRunner,
}

/// How a turn may be ended and changed from outside.
pub struct TurnOptions<'a> {
    /// Interrupts the turn: the model call is dropped, and tools have the grace period to end. A turn that waits for an action from
    /// outside keeps waiting; to end it, submit [`CommandKind::Interrupt`].
    pub cancel: CancellationToken,
    /// When the turn must have ended. It has the same effect as the cancellation.
    pub deadline: Deadline,
    /// The grace period: how long cancelled tools may take to clean up.
    pub grace: Duration,
    /// How a long history is compacted; `None`: never. A compaction runs before a model call. It uses the turn's time, tokens and
    /// money. It does not count as one of the turn's model calls ([`crate::Limits::model_calls`]).
    pub compaction: Option<Compaction>,
    /// Runs before each model call, within the turn's time.
    pub pre_call_hook: &'a dyn PreCallHook,
    /// Messages into the running turn. A message that the turn has not taken from the stream when it ends was not recorded. A dropped
    /// message reports that to its sender.
    pub inbox: BoxStream<'a, InboxMessage>,
}

impl Default for TurnOptions<'_> {
    fn default() -> Self {
        Self {
            cancel: CancellationToken::new(),
            deadline: Deadline::NEVER,
            grace: CANCEL_GRACE,
            compaction: None,
            pre_call_hook: &(),
            inbox: stream::pending().boxed(),
        }
    }
}

/// How driving a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnOutcome {
    /// The turn has ended; [`crate::SessionState::last_turn`] has its usage too.
    Finished(TurnStop),
    /// These calls wait for an approval, or for their result from outside. Submit [`CommandKind::Decide`] or
    /// [`CommandKind::ProvideResult`] for each, in any order, now or after a restart, and call [`run_turn`] again. The other calls of the
    /// response have run, unless one that waits is a barrier before them.
    RequiresAction(Vec<PendingAction>),
}

/// Why a turn could not continue. The conversation reloads its state before the next command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// No turn is running: submit [`CommandKind::StartTurn`] first.
    #[error("no turn is running; start one first")]
    NoTurn,
    /// The event log failed.
    #[error(transparent)]
    EventLog(#[from] EventLogError),
    /// The state machine rejected a command that follows from its own state. This is a defect.
    #[error("the conversation refused its driver: {0}")]
    Rejected(Rejection),
}

impl From<SubmitError> for DriveError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::EventLog(error) => Self::EventLog(error),
            SubmitError::Rejected(rejection) => Self::Rejected(rejection),
        }
    }
}

/// Drives the running turn until it ends or waits for an action from outside.
///
/// It first recovers what an earlier driver left unfinished. If the conversation uses the system clock, the future must be polled within
/// a Tokio runtime with its time driver enabled.
///
/// # Errors
/// When no turn is running, when the event log fails, or when it does not answer although the turn's time is up. A failed model call is
/// not an error here: it ends the turn.
pub async fn run_turn(
    conversation: &mut Conversation,
    services: TurnServices<'_>,
    options: TurnOptions<'_>,
) -> Result<TurnOutcome, DriveError> {
    if conversation.state().turn().is_none() {
        return Err(DriveError::NoTurn);
    }
    conversation.submit(CommandKind::Recover).await?;
    let state = conversation.state();
    let turn = match (state.turn(), state.last_turn()) {
        (Some(turn), _) => turn,
        // Only the end of the turn had not been recorded.
        (None, Some(last)) => return Ok(TurnOutcome::Finished(last.stop.clone())),
        (None, None) => return Err(DriveError::NoTurn),
    };
    let clock = conversation.clock();
    // The time limit includes what the turn used before a restart.
    let wall_clock = wall_clock(conversation, Duration::ZERO);
    let span = tracing::info_span!(
        "invoke_agent",
        gen_ai.operation.name = "invoke_agent",
        conjure.turn = turn.id().number(),
    );
    let (cancel, deadline, grace) = (options.cancel, options.deadline.min(wall_clock), options.grace);
    // All other waits end at the deadline; this bounds the wait for the event log too.
    let clock = Arc::clone(clock);
    let ends = Arc::new(Mutex::new(deadline));
    let (deadline_ref, cancelled) = (Arc::clone(&ends), cancel.clone());
    let hard_timeout = async move {
        loop {
            let end = *lock(&deadline_ref);
            if cancelled.is_cancelled() || clock.remaining(end).is_zero() {
                break;
            }
            select(Box::pin(cancelled.clone().cancelled_owned()), clock.sleep_until(end)).await;
        }
        clock.sleep_until(clock.deadline(grace.saturating_add(EVENT_LOG_TIMEOUT))).await;
    };
    let driver = TurnDriver {
        services,
        cancel,
        caller_deadline: options.deadline,
        deadline,
        shared_deadline: ends,
        grace,
        compaction: options.compaction,
        pre_call_hook: options.pre_call_hook,
        hook_time: Duration::ZERO,
        // An ended stream must not be polled again, nor end a wait.
        inbox: options.inbox.chain(stream::pending()).boxed(),
        conversation,
    };
    match select(Box::pin(driver.run().instrument(span)), Box::pin(hard_timeout)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => {
            let reason = "it did not answer although the turn's time was up".to_owned();
            Err(EventLogError::Failed { reason }.into())
        }
    }
}

/// When the running turn will reach its time limit if it works from now on. `besides` is time that the recorded events do not show.
fn wall_clock(conversation: &Conversation, besides: Duration) -> Deadline {
    let clock = conversation.clock();
    let Some(turn) = conversation.state().turn() else { return Deadline::NEVER };
    turn.limits().wall_clock.map_or(Deadline::NEVER, |limit| {
        let worked = turn.elapsed(clock.timestamp()).saturating_add(besides);
        clock.deadline(limit.saturating_sub(worked))
    })
}

pub(super) struct TurnDriver<'a> {
    pub(super) conversation: &'a mut Conversation,
    pub(super) services: TurnServices<'a>,
    pub(super) cancel: CancellationToken,
    /// The caller's deadline.
    pub(super) caller_deadline: Deadline,
    pub(super) deadline: Deadline,
    /// The same as `deadline`, shared with the future that waits for the event log.
    pub(super) shared_deadline: Arc<Mutex<Deadline>>,
    pub(super) grace: Duration,
    pub(super) compaction: Option<Compaction>,
    pub(super) pre_call_hook: &'a dyn PreCallHook,
    /// How long the pre-call hook has run. The recorded events do not show this time.
    pub(super) hook_time: Duration,
    pub(super) inbox: BoxStream<'a, InboxMessage>,
}

impl TurnDriver<'_> {
    pub(super) async fn run(mut self) -> Result<TurnOutcome, DriveError> {
        loop {
            let step = next(self.conversation.state());
            // Waiting for an action from outside is not work that could be interrupted. To end the turn then, submit a command.
            let is_waiting = step == Step::AwaitAction && !self.is_expired();
            if step != Step::Idle && self.is_cancelled_or_expired() && !is_waiting {
                self.interrupt().await?;
                continue;
            }
            match step {
                Step::Idle => {
                    let last = self.conversation.state().last_turn().ok_or(DriveError::NoTurn)?;
                    return Ok(TurnOutcome::Finished(last.stop.clone()));
                }
                Step::AwaitAction => {
                    return Ok(TurnOutcome::RequiresAction(self.conversation.state().pending_actions()));
                }
                Step::CallModel => match self.pre_call_hook.before_model_call(self.conversation.state()) {
                    Some(work) => self.run_pre_call_hook(work).await?,
                    None if self.compaction_is_due() => self.compact().await?,
                    None => self.call_model().await?,
                },
                Step::RunTools => self.run_tools().await?,
                Step::AwaitModel | Step::Recover => self.conversation.submit(CommandKind::Recover).await?,
            }
        }
    }

    /// Whether the turn was cancelled or its deadline has passed.
    pub(super) fn is_cancelled_or_expired(&self) -> bool {
        self.cancel.is_cancelled() || self.is_expired()
    }

    pub(super) fn is_expired(&self) -> bool {
        self.conversation.clock().remaining(self.deadline).is_zero()
    }

    /// Extends the time limit by the time that the approval of the calls took.
    pub(super) fn extend_deadline(&mut self) {
        let wall_clock = wall_clock(self.conversation, self.hook_time);
        self.deadline = self.caller_deadline.min(wall_clock);
        *lock(&self.shared_deadline) = self.deadline;
    }

    pub(super) async fn interrupt(&mut self) -> Result<(), DriveError> {
        let clock = self.conversation.clock();
        let cause = if self.cancel.is_cancelled() {
            InterruptCause::Cancelled
        } else if clock.remaining(self.caller_deadline).is_zero() {
            InterruptCause::Deadline
        } else {
            InterruptCause::WallClock
        };
        Ok(self.conversation.submit(CommandKind::Interrupt { cause }).await?)
    }

    /// Records a message from the inbox. A rejection is reported to the sender, and does not end the turn.
    pub(super) async fn accept_inbox(&mut self, message: Option<InboxMessage>) -> Result<(), DriveError> {
        let Some(message) = message else { return Ok(()) };
        Ok(message.submit(self.conversation).await?)
    }
}
