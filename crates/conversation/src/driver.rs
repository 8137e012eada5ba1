//! The one driver: it asks the machine what is next, does it, and records it, until the turn ends.
//!
//! It starts no tasks and keeps no state of its own: dropping its future at any await drops the model call and
//! the tools with it, and what it has recorded is enough to go on. Intent is recorded before effect and outcome
//! after it, each call's as it ends.

mod compacting;
mod preparing;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use conjure_base::{Deadline, TurnId};
use futures_util::future::{Either, select};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field};

use crate::command::{CommandKind, InterruptCause, Rejection, StartedCall};
use crate::compose::Composer;
use crate::conversation::{Conversation, SubmitError};
use crate::event::TurnStop;
use crate::inbox::Post;
use crate::ledger::LedgerError;
use crate::machine::{Step, next};
use crate::model::{
    ApiErrorKind, CallEffects, Model, ModelError, ModelErrorKind, ModelEvent, Request, Response,
};
use crate::preparation::Preparation;
use crate::rejected::refused_block;
use crate::runner::{Authorization, CallContext, ToolRunner};
use crate::schedule::{Batch, CANCEL_GRACE, authorize, batches, traits};
use crate::state::{Approval, CallStatus};
use crate::summary::Compaction;
use crate::tool::ToolCall;

/// How long a ledger may take to record a turn's end, after its deadline or cancellation and the tools' grace.
const LEDGER_PATIENCE: Duration = Duration::from_secs(10);

const CLIENT_CRASHED: &str = "the model's client has crashed";

/// What a turn is driven over.
#[derive(Clone, Copy)]
pub struct Rim<'a> {
    /// Who answers.
    pub model: &'a dyn Model,
    /// Who says what the model is told beside the messages.
    pub composer: &'a dyn Composer,
    /// Who runs the tools.
    pub tools: &'a dyn ToolRunner,
}

/// How a turn may be ended and added to from outside.
pub struct TurnOptions<'a> {
    /// Interrupts the turn: the model call is dropped, tools have the grace to end. A turn that waits for a person goes on
    /// waiting; to end it, submit [`CommandKind::Interrupt`].
    pub cancel: CancellationToken,
    /// When the turn must have ended; the same happens as by cancellation.
    pub deadline: Deadline,
    /// How long cancelled tools may take to end what they started.
    pub grace: Duration,
    /// How the history is compacted when it has grown long; none: never. It happens before a model call, and takes of the turn's time,
    /// tokens and money; it is none of its model calls ([`crate::Limits::model_calls`]).
    pub compaction: Option<Compaction>,
    /// What is done before each model call, within the turn's time.
    pub preparation: &'a dyn Preparation,
    /// What reaches the turn while it runs. What it has not taken from the stream when it ends was not recorded; a
    /// post that is dropped tells its sender so.
    pub inbox: BoxStream<'a, Post>,
}

impl Default for TurnOptions<'_> {
    fn default() -> Self {
        Self {
            cancel: CancellationToken::new(),
            deadline: Deadline::NEVER,
            grace: CANCEL_GRACE,
            compaction: None,
            preparation: &(),
            inbox: stream::pending().boxed(),
        }
    }
}

/// How driving a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnOutcome {
    /// The turn is over; [`crate::State::last_turn`] has its usage too.
    Finished(TurnStop),
    /// These calls wait for a person. Submit [`CommandKind::Decide`] for each, now or after a restart, and
    /// drive on. None of the answer's calls has run.
    RequiresAction(Vec<Approval>),
}

/// Why a turn could not be driven on. The session is loaded anew before its next command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// No turn is running: submit [`CommandKind::StartTurn`] first.
    #[error("no turn is running; start one first")]
    NoTurn,
    /// The ledger did not record.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The machine refused what followed from its own state.
    #[error("the conversation refused its driver: {0}")]
    Rejected(Rejection),
}

impl From<SubmitError> for DriveError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Ledger(error) => Self::Ledger(error),
            SubmitError::Rejected(rejection) => Self::Rejected(rejection),
        }
    }
}

/// Drives the running turn until it ends or waits for a person. What was under way when an earlier driver
/// ended is recovered first. Must be polled within a Tokio runtime whose time driver is enabled, when the
/// conversation's clock is the machine's.
///
/// # Errors
/// When no turn is running, or the ledger fails, or does not answer although the turn's time is up. A model that
/// fails is not an error here but the turn's end.
pub async fn run_turn(
    conversation: &mut Conversation,
    rim: Rim<'_>,
    options: TurnOptions<'_>,
) -> Result<TurnOutcome, DriveError> {
    if conversation.state().turn().is_none() {
        return Err(DriveError::NoTurn);
    }
    conversation.submit(CommandKind::Recover).await?;
    let state = conversation.state();
    let turn = match (state.turn(), state.last_turn()) {
        (Some(turn), _) => turn,
        // What was missing was its end.
        (None, Some(last)) => return Ok(TurnOutcome::Finished(last.stop.clone())),
        (None, None) => return Err(DriveError::NoTurn),
    };
    let clock = conversation.clock();
    // The wall clock's limit counts on from what the turn has used before a restart.
    let wall_clock = wall_clock(conversation, Duration::ZERO);
    let span = tracing::info_span!(
        "invoke_agent",
        gen_ai.operation.name = "invoke_agent",
        conjure.turn = turn.id().number(),
    );
    let (cancel, deadline, grace) = (options.cancel, options.deadline.earlier(wall_clock), options.grace);
    // Everything but the ledger is waited for no longer than until the end; this bounds that wait too.
    let clock = Arc::clone(clock);
    let ends = Arc::new(Mutex::new(deadline));
    let (put_off, cancelled) = (Arc::clone(&ends), cancel.clone());
    let patience = async move {
        loop {
            let end = *put_off.lock().unwrap_or_else(PoisonError::into_inner);
            if cancelled.is_cancelled() || clock.remaining(end).is_zero() {
                break;
            }
            select(Box::pin(cancelled.clone().cancelled_owned()), clock.sleep_until(end)).await;
        }
        clock.sleep_until(clock.deadline(grace.saturating_add(LEDGER_PATIENCE))).await;
    };
    let driver = Driver {
        rim,
        cancel,
        own_deadline: options.deadline,
        deadline,
        ends,
        grace,
        compaction: options.compaction,
        preparation: options.preparation,
        prepared_for: Duration::ZERO,
        // A stream that has ended must not be asked again, nor end a wait.
        inbox: options.inbox.chain(stream::pending()).boxed(),
        conversation,
    };
    match select(Box::pin(driver.run().instrument(span)), Box::pin(patience)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => {
            let reason = "it did not answer although the turn's time was up".to_owned();
            Err(LedgerError::Failed { reason }.into())
        }
    }
}

/// When the running turn will have worked for as long as it may, should it work from now on; `besides` what its record says it has done
/// other work for so long.
fn wall_clock(conversation: &Conversation, besides: Duration) -> Deadline {
    let clock = conversation.clock();
    let Some(turn) = conversation.state().turn() else { return Deadline::NEVER };
    turn.limits().wall_clock.map_or(Deadline::NEVER, |limit| {
        let worked = turn.elapsed(clock.timestamp()).saturating_add(besides);
        clock.deadline(limit.saturating_sub(worked))
    })
}

struct Driver<'a> {
    conversation: &'a mut Conversation,
    rim: Rim<'a>,
    cancel: CancellationToken,
    /// The host's deadline, and the earlier of it and the turn's limit of time.
    own_deadline: Deadline,
    deadline: Deadline,
    /// The latter, for whoever waits for the ledger.
    ends: Arc<Mutex<Deadline>>,
    grace: Duration,
    compaction: Option<Compaction>,
    preparation: &'a dyn Preparation,
    /// How long preparing model calls has taken, of which the record says nothing.
    prepared_for: Duration,
    inbox: BoxStream<'a, Post>,
}

/// What a model call came to.
enum Call {
    Answered(Box<Response>),
    Failed(ModelError),
    Interrupted,
}

impl Driver<'_> {
    async fn run(mut self) -> Result<TurnOutcome, DriveError> {
        loop {
            let step = next(self.conversation.state());
            // A wait for a person is no work that could be broken off: whoever wants the turn ended says so by a command.
            let is_waiting = step == Step::AwaitApproval && !self.time_is_up();
            if step != Step::Idle && self.is_over() && !is_waiting {
                self.interrupt().await?;
                continue;
            }
            match step {
                Step::Idle => {
                    let last = self.conversation.state().last_turn().ok_or(DriveError::NoTurn)?;
                    return Ok(TurnOutcome::Finished(last.stop.clone()));
                }
                Step::AwaitApproval => {
                    return Ok(TurnOutcome::RequiresAction(self.conversation.state().approvals()));
                }
                Step::CallModel => match self.preparation.begin(self.conversation.state()) {
                    Some(work) => self.make_ready(work).await?,
                    None if self.compaction_is_due() => self.compact().await?,
                    None => self.call_model().await?,
                },
                Step::RunTools => self.run_tools().await?,
                Step::AwaitModel | Step::Recover => self.conversation.submit(CommandKind::Recover).await?,
            }
        }
    }

    /// Whether the turn was cancelled or its time is up.
    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.time_is_up()
    }

    fn time_is_up(&self) -> bool {
        self.conversation.clock().remaining(self.deadline).is_zero()
    }

    /// The limit of time counts on: who decided on the calls may have taken long.
    fn put_off(&mut self) {
        let wall_clock = wall_clock(self.conversation, self.prepared_for);
        self.deadline = self.own_deadline.earlier(wall_clock);
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = self.deadline;
    }

    async fn interrupt(&mut self) -> Result<(), DriveError> {
        let clock = self.conversation.clock();
        let cause = if self.cancel.is_cancelled() {
            InterruptCause::Cancelled
        } else if clock.remaining(self.own_deadline).is_zero() {
            InterruptCause::Deadline
        } else {
            InterruptCause::WallClock
        };
        Ok(self.conversation.submit(CommandKind::Interrupt { cause }).await?)
    }

    async fn call_model(&mut self) -> Result<(), DriveError> {
        let Some(turn) = self.conversation.state().turn() else { return Ok(()) };
        let (turn, call) = (turn.id(), turn.model_calls().saturating_add(1));
        let prepared = self.prepare(turn, call);
        let effects = prepared.as_ref().map_or(CallEffects::None, |(_, effects)| *effects);
        self.conversation.submit(CommandKind::StartModelCall { effects }).await?;
        if next(self.conversation.state()) != Step::AwaitModel {
            // A limit has ended the turn instead.
            return Ok(());
        }
        let request = match prepared {
            Ok((request, _)) => request,
            Err(error) => {
                return Ok(self
                    .conversation
                    .submit(CommandKind::FailModelCall { turn, call, error })
                    .await?);
            }
        };
        let span = tracing::info_span!(
            "chat",
            gen_ai.operation.name = "chat",
            gen_ai.response.model = field::Empty,
            gen_ai.response.id = field::Empty,
            gen_ai.response.finish_reasons = field::Empty,
            gen_ai.usage.input_tokens = field::Empty,
            gen_ai.usage.output_tokens = field::Empty,
            error.type = field::Empty,
        );
        match self.listen(request).instrument(span.clone()).await? {
            Call::Interrupted => self.interrupt().await,
            Call::Answered(response) => {
                record_answer(&span, &response);
                Ok(self.conversation.submit(CommandKind::AcceptAnswer { turn, call, response }).await?)
            }
            Call::Failed(error) => {
                span.record("error.type", field::debug(&error.kind));
                if matches!(
                    error.kind,
                    ModelErrorKind::Api(ApiErrorKind::InvalidRequest | ApiErrorKind::NotFound)
                ) && let Some((message, block)) =
                    refused_block(&error.message, self.conversation.state().messages())
                {
                    let error = error.clone();
                    let reject = CommandKind::RejectBlock { turn, call, error, message, block };
                    match self.conversation.submit(reject).await {
                        // The block cannot be replaced, or not again: then the call has just failed.
                        Err(SubmitError::Rejected(_)) => {}
                        other => return Ok(other?),
                    }
                }
                Ok(self.conversation.submit(CommandKind::FailModelCall { turn, call, error }).await?)
            }
        }
    }

    /// What the next call sends, and what it may do: it is recorded before it is sent.
    fn prepare(&self, turn: TurnId, call: u32) -> Result<(Request, CallEffects), ModelError> {
        let Rim { composer, model, .. } = self.rim;
        let state = self.conversation.state();
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| composer.compose(state.standing())));
        let composition = composed.map_err(|_| crashed("what composes the request has crashed"))?;
        let request = Request {
            turn,
            call,
            instructions: composition.instructions,
            tools: composition.tools,
            messages: state.messages().to_vec(),
            container: state.container().cloned(),
            hosted: state.profile().map(|profile| profile.hosted.as_slice().into()).unwrap_or_default(),
        };
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| model.effects(&request)));
        let effects = asked.map_err(|_| crashed(CLIENT_CRASHED))?;
        Ok((request, effects))
    }

    /// Follows one model call to its end. Dropping its stream abandons it.
    async fn listen(&mut self, request: Request) -> Result<Call, DriveError> {
        let client_crashed = || Call::Failed(crashed(CLIENT_CRASHED));
        let model = self.rim.model;
        let started = std::panic::catch_unwind(AssertUnwindSafe(|| model.stream(request)));
        let Ok(mut answer) = started else { return Ok(client_crashed()) };
        let cancelled = self.cancel.clone().cancelled_owned();
        let mut over = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
        loop {
            let heard = AssertUnwindSafe(answer.next()).catch_unwind();
            // The end comes first: a model that never stops talking must not keep a turn from ending.
            let event = match select(&mut over, select(heard, self.inbox.next())).await {
                Either::Left(_) => return Ok(Call::Interrupted),
                Either::Right((Either::Right((post, _)), _)) => {
                    self.take_in(post).await?;
                    continue;
                }
                Either::Right((Either::Left((event, _)), _)) => event,
            };
            match event {
                Err(_panic) => return Ok(client_crashed()),
                Ok(Some(Ok(ModelEvent::Finished(response)))) => return Ok(Call::Answered(response)),
                Ok(Some(Ok(preview))) => self.conversation.observer().preview(&preview),
                Ok(Some(Err(error))) => return Ok(Call::Failed(error)),
                Ok(None) => {
                    let message = "the stream ended before the answer was complete";
                    return Ok(Call::Failed(ModelError::new(ModelErrorKind::Truncated, message)));
                }
            }
        }
    }

    /// Records what the user adds. What the machine refuses is told to whoever sent it, and does not end the turn.
    async fn take_in(&mut self, post: Option<Post>) -> Result<(), DriveError> {
        let Some(post) = post else { return Ok(()) };
        Ok(post.submit(self.conversation).await?)
    }

    /// Runs the open calls. All are authorised before the first runs: when one must be asked for, nothing of
    /// the answer has happened yet, and a later call never runs ahead of one that it may build on.
    async fn run_tools(&mut self) -> Result<(), DriveError> {
        let Some(calls) = self.authorize_all().await? else { return Ok(()) };
        self.put_off();
        if next(self.conversation.state()) != Step::RunTools {
            return Ok(());
        }
        let tools = self.rim.tools;
        let traits: Vec<_> = calls.iter().map(|call| traits(tools, call)).collect();
        let access: Vec<_> = traits.iter().map(|traits| traits.access).collect();
        for range in batches(&access) {
            if self.is_over() {
                return Ok(());
            }
            let started = range
                .clone()
                .map(|place| StartedCall {
                    call: calls[place].id.clone(),
                    idempotent: traits[place].idempotent,
                })
                .collect();
            self.conversation.submit(CommandKind::StartTools { calls: started }).await?;
            let batch: Vec<(usize, &ToolCall)> = range.map(|place| (place, &calls[place])).collect();
            self.run_batch(&batch).await?;
        }
        Ok(())
    }

    /// The calls that may run, in order; none when the turn was interrupted meanwhile.
    async fn authorize_all(&mut self) -> Result<Option<Vec<ToolCall>>, DriveError> {
        let open = self.conversation.state().open_calls().to_vec();
        let standing = self.conversation.state().standing().clone();
        let mut allowed = Vec::with_capacity(open.len());
        for open in open {
            match open.status {
                CallStatus::New => {}
                CallStatus::Approved => {
                    allowed.push(open.call);
                    continue;
                }
                _ => continue,
            }
            let cancelled = self.cancel.clone().cancelled_owned();
            let over = select(Box::pin(cancelled), self.conversation.clock().sleep_until(self.deadline));
            let asked = Box::pin(authorize(self.rim.tools, &open.call, &standing));
            let authorization = match select(asked, over).await {
                Either::Left((authorization, _)) => authorization,
                Either::Right(_) => return Ok(None),
            };
            let call = open.call.id.clone();
            match authorization {
                Authorization::Allow => allowed.push(open.call),
                Authorization::Deny { reason } => {
                    self.conversation.submit(CommandKind::DenyTool { call, reason }).await?;
                }
                Authorization::Ask { reason } => {
                    self.conversation.submit(CommandKind::RequestApproval { call, reason }).await?;
                }
            }
        }
        Ok(Some(allowed))
    }

    async fn run_batch(&mut self, calls: &[(usize, &ToolCall)]) -> Result<(), DriveError> {
        let standing = self.conversation.state().standing().clone();
        let context = CallContext { deadline: self.deadline, cancel: self.cancel.clone(), standing };
        let clock = Arc::clone(self.conversation.clock());
        let mut batch = Batch::start(self.rim.tools, calls, &context, &*clock, self.grace);
        loop {
            let ended = match select(Box::pin(batch.next()), self.inbox.next()).await {
                Either::Left((ended, _)) => Either::Left(ended),
                Either::Right((post, _)) => Either::Right(post),
            };
            match ended {
                Either::Left(None) => return Ok(()),
                Either::Left(Some((_, result, outcome))) => {
                    self.conversation.submit(CommandKind::FinishTool { result, outcome }).await?;
                }
                Either::Right(post) => self.take_in(post).await?,
            }
        }
    }
}

/// What of the host's panicked while a call was prepared or made.
fn crashed(what: &str) -> ModelError {
    ModelError::new(ModelErrorKind::Protocol, what)
}

fn record_answer(span: &Span, response: &Response) {
    if let Some(model) = &response.model {
        span.record("gen_ai.response.model", model.as_str());
    }
    if let Some(id) = &response.id {
        span.record("gen_ai.response.id", id.as_str());
    }
    span.record("gen_ai.response.finish_reasons", field::display(&response.stop_reason));
    span.record("gen_ai.usage.input_tokens", response.usage.total_input());
    span.record("gen_ai.usage.output_tokens", response.usage.output_tokens);
}
