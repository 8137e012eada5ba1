//! The stateless form of a conversation: messages in, messages out (specification 5.10, 11).

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, ContainerId, Deadline, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::command::CommandKind;
use crate::compose::Composer;
use crate::conversation::{Conversation, Observer};
use crate::driver::{DriveError, Rim, TurnOptions, TurnOutcome, run_turn};
use crate::ledger::MemoryLedger;
use crate::limits::Limits;
use crate::message::Message;
use crate::model::Model;
use crate::pairing::{self, PairingError};
use crate::runner::ToolRunner;
use crate::schedule::CANCEL_GRACE;
use crate::summary::Compaction;
use crate::usage::Usage;

/// How a loop is bounded and watched.
pub struct LoopOptions {
    /// What it may consume; 25 model calls by default.
    pub limits: Limits,
    /// Interrupts it.
    pub cancel: CancellationToken,
    /// When it must have ended.
    pub deadline: Deadline,
    /// How long cancelled tools may take to end what they started.
    pub grace: Duration,
    /// The container that the service's tools ran in, where `messages` come from an earlier loop
    /// ([`crate::State::container`] of its conversation).
    pub container: Option<ContainerId>,
    /// How the history is compacted when it has grown long; none: never.
    pub compaction: Option<Compaction>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            cancel: CancellationToken::new(),
            deadline: Deadline::NEVER,
            grace: CANCEL_GRACE,
            container: None,
            compaction: None,
            clock: Arc::new(SystemClock),
            observer: Arc::new(()),
        }
    }
}

/// What a loop came to.
#[derive(Debug)]
pub struct LoopOutcome {
    /// The history: what was given, and all that followed. Where the loop did not end with an answer, its last
    /// message may be the user's; append to that one, since roles alternate. While calls wait for a person
    /// they have no results yet.
    pub messages: Vec<Arc<Message>>,
    /// Why it ended.
    pub stop: TurnOutcome,
    /// What its model calls consumed.
    pub usage: Usage,
    /// The conversation itself, to go on with: decide on what waits and drive on, or start another turn.
    pub conversation: Conversation,
}

impl LoopOutcome {
    /// The text of the last answer.
    #[must_use]
    pub fn text(&self) -> String {
        self.conversation.state().last_text()
    }
}

/// Why a loop could not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The service would refuse the messages.
    #[error("the messages are not a valid request: {0}")]
    Messages(#[from] PairingError),
    /// It could not be driven.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Calls the model and runs its tools until it is done. `messages` are a whole request: they end with the
/// user's message, or with a paused answer to be resumed.
///
/// ```
/// # use conjure_conversation::*;
/// # use futures_util::future::BoxFuture;
/// # struct NoTools;
/// # impl ToolRunner for NoTools {
/// #     fn traits(&self, _: &ToolCall) -> CallTraits { CallTraits { access: Access::Shared, idempotent: true } }
/// #     fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a Standing) -> BoxFuture<'a, Authorization> {
/// #         Box::pin(async { Authorization::Allow })
/// #     }
/// #     fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolResult> {
/// #         Box::pin(async { ToolResult::error(&call.id, "unknown tool") })
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LoopError> {
/// let model = model_fn(|request: Request| async move {
///     let answer = r#"{"content":[{"type":"text","text":"Four."}],"stop_reason":"end_turn"}"#;
///     Ok(parse_response(answer).expect("an answer"))
/// });
/// let question = Message::user(vec![Block::text("What is two and two?")]);
/// let outcome =
///     run_loop(vec![question], &model, &Composition::default(), &NoTools, LoopOptions::default()).await?;
/// assert_eq!(outcome.text(), "Four.");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the messages are not valid. A model that fails is not an error here but a stop.
pub async fn run_loop(
    messages: Vec<Message>,
    model: &dyn Model,
    composer: &dyn Composer,
    tools: &dyn ToolRunner,
    options: LoopOptions,
) -> Result<LoopOutcome, LoopError> {
    pairing::check(&messages)?;
    let ledger = Arc::new(MemoryLedger::new());
    let mut conversation =
        Conversation::load(ledger, options.clock, options.observer).await.map_err(DriveError::from)?;
    let start = CommandKind::StartTurn { input: Vec::new(), limits: options.limits };
    for command in [CommandKind::Import { messages, container: options.container }, start] {
        conversation.submit(command).await.map_err(DriveError::from)?;
    }
    let turn = TurnOptions {
        cancel: options.cancel,
        deadline: options.deadline,
        grace: options.grace,
        compaction: options.compaction,
        ..TurnOptions::default()
    };
    let stop = run_turn(&mut conversation, Rim { model, composer, tools }, turn).await?;
    let state = conversation.state();
    Ok(LoopOutcome { messages: state.messages().to_vec(), stop, usage: *state.usage(), conversation })
}
