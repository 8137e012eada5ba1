//! The stateless loop: messages in, messages out (specification 5.10, 11).

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{Clock, ContainerId, Deadline, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::composer::Composer;
use crate::content::message::Message;
use crate::content::pairing::{self, PairingError};
use crate::driver::batch_cancellation::CANCEL_GRACE;
use crate::driver::conversation::{Conversation, ConversationObserver};
use crate::driver::{DriveError, TurnOptions, TurnOutcome, TurnServices, run_turn};
use crate::events::event_log::MemoryEventLog;
use crate::machine::command::CommandKind;
use crate::model::Model;
use crate::model::Usage;
use crate::state::limits::Limits;
use crate::summary::Compaction;
use crate::tools::tool_runner::ToolRunner;

/// Options of a loop.
pub struct LoopOptions {
    /// Its limits; 25 model calls by default.
    pub limits: Limits,
    /// Interrupts the loop when it is cancelled.
    pub cancel: CancellationToken,
    /// The time by which the loop must have ended.
    pub deadline: Deadline,
    /// How long cancelled tools may take to clean up.
    pub grace: Duration,
    /// The container that the service's tools ran in, if `messages` come from an earlier loop
    /// ([`crate::SessionState::container`] of its conversation).
    pub container: Option<ContainerId>,
    /// How a long history is compacted; `None`: never.
    pub compaction: Option<Compaction>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The observer of the loop's events.
    pub observer: Arc<dyn ConversationObserver>,
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

/// The result of a loop.
#[derive(Debug)]
pub struct LoopOutcome {
    /// The history: the given messages and all that followed. If the loop did not end with a response, the last message may be the
    /// user's; append to that one, since roles alternate. Calls that wait for an approval have no results yet.
    pub messages: Vec<Arc<Message>>,
    /// Why it ended.
    pub stop: TurnOutcome,
    /// The usage of its model calls.
    pub usage: Usage,
    /// The conversation itself. Use it to decide on approvals and continue, or to start another turn.
    pub conversation: Conversation,
}

impl LoopOutcome {
    /// The text of the last response.
    #[must_use]
    pub fn text(&self) -> String {
        self.conversation.state().last_text()
    }
}

/// Why a loop could not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoopError {
    /// The messages are not a valid request.
    #[error("the messages are not a valid request: {0}")]
    Messages(#[from] PairingError),
    /// The turn could not be driven.
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Calls the model and runs its tools until the turn ends. `messages` must end with a user message, or with a paused response to resume.
///
/// ```
/// # use conjure_conversation::*;
/// # use futures_util::future::BoxFuture;
/// # struct NoTools;
/// # impl ToolRunner for NoTools {
/// #     fn traits(&self, _: &ToolCall) -> CallTraits { CallTraits { concurrency: CallConcurrency::Shared, idempotent: true } }
/// #     fn authorize<'a>(&'a self, _: &'a ToolCall, _: &'a SessionView) -> BoxFuture<'a, Authorization> {
/// #         Box::pin(async { Authorization::Allow })
/// #     }
/// #     fn run<'a>(&'a self, call: &'a ToolCall, _: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
/// #         Box::pin(async { ToolResult::error(&call.id, "unknown tool").into() })
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LoopError> {
/// let model = model_fn(|request: Request| async move {
///     let response = r#"{"content":[{"type":"text","text":"Four."}],"stop_reason":"end_turn"}"#;
///     Ok(parse_response(response).expect("a response"))
/// });
/// let question = Message::user(vec![Block::text("What is two and two?")]);
/// let outcome =
///     run_loop(vec![question], &model, &PromptPrefix::default(), &NoTools, LoopOptions::default()).await?;
/// assert_eq!(outcome.text(), "Four.");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When the messages are not valid. A failed model call is not an error here: it ends the turn.
pub async fn run_loop(
    messages: Vec<Message>,
    model: &dyn Model,
    composer: &dyn Composer,
    tools: &dyn ToolRunner,
    options: LoopOptions,
) -> Result<LoopOutcome, LoopError> {
    pairing::check(&messages)?;
    let event_log = Arc::new(MemoryEventLog::new());
    let mut conversation =
        Conversation::load(event_log, options.clock, options.observer).await.map_err(DriveError::from)?;
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
    let stop = run_turn(&mut conversation, TurnServices { model, composer, tools }, turn).await?;
    let state = conversation.state();
    Ok(LoopOutcome { messages: state.messages().to_vec(), stop, usage: *state.usage(), conversation })
}
