//! The port for tools: how the driver authorises and runs tool calls.

use std::sync::Arc;
use std::time::Duration;

use conjure_base::{CallId, Deadline};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::events::call_outcome::ResultFrom;
use crate::session::session_view::SessionView;
use crate::tools::input_request::{InputRequest, ProvidedInput};
use crate::tools::tool::{ToolCall, ToolResult};
use crate::tools::tool_progress::ProgressSink;

/// Whether a call may run concurrently with others of the same response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallConcurrency {
    /// It runs concurrently with neighbours that are shared too.
    Shared,
    /// It runs alone: it waits for all calls before it, and all calls after it wait for it.
    Exclusive,
}

/// What the driver must know about a call before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTraits {
    /// Whether it may run concurrently with others.
    pub concurrency: CallConcurrency,
    /// Whether the call can be repeated without a further effect. Only such a call is run again after a crash.
    pub idempotent: bool,
}

/// The decision of the policy on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// It may run.
    Allow,
    /// It may not run; the model reads the reason.
    Deny {
        /// The reason.
        reason: String,
    },
    /// It needs an approval. The turn waits for it, also across a restart.
    Ask {
        /// The question to the person.
        reason: String,
    },
}

/// A result that is provided from outside of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedResult {
    /// Who provides it.
    pub from: ResultFrom,
    /// How long the call waits for it before it ends with an error; `None`: without a limit.
    pub timeout: Option<Duration>,
}

/// The context of a running call.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The time by which the turn must have ended. A tool may have its own, earlier deadline.
    pub deadline: Deadline,
    /// Cancelled when the turn is. A tool then cleans up and returns soon, or it is dropped.
    pub cancel: CancellationToken,
    /// The session's view at the start of the call.
    pub view: SessionView,
    /// The answers to the questions with which the call's last run ended; `None` in its first run.
    pub provided_input: Option<ProvidedInput>,
    /// Receives the progress reports of the tool.
    pub progress: ProgressSink,
}

/// How a run of a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolRunOutcome {
    /// With its result.
    Ended(ToolResult),
    /// With questions to a person. The call runs again when they are answered.
    InputRequired(Box<InputRequest>),
}

impl ToolRunOutcome {
    /// The result where no person can be asked: questions become an error.
    #[must_use]
    pub fn without_input(self, call: &CallId) -> ToolResult {
        match self {
            Self::Ended(result) => result,
            Self::InputRequired(_) => {
                let reason =
                    "the tool asks for input in the middle of the call, and nobody can be asked here";
                ToolResult::error(call, reason)
            }
        }
    }
}

impl From<ToolResult> for ToolRunOutcome {
    fn from(result: ToolResult) -> Self {
        Self::Ended(result)
    }
}

/// No deadline, and an empty view.
impl Default for CallContext {
    fn default() -> Self {
        Self {
            deadline: Deadline::NEVER,
            cancel: CancellationToken::new(),
            view: SessionView::default(),
            provided_input: None,
            progress: ProgressSink::default(),
        }
    }
}

/// Runs the model's tool calls. `conjure-toolbox` implements it.
///
/// The driver schedules the calls, records the intent before each and the outcome after it, and catches panics. The runner does the work
/// and gives each call its own deadline.
pub trait ToolRunner: Send + Sync {
    /// The traits of this call. Unknown tools and bad inputs are [`CallConcurrency::Shared`]: they only produce an error.
    fn traits(&self, call: &ToolCall) -> CallTraits;

    /// Decides whether this call may run for this view of the session.
    fn authorize<'a>(&'a self, call: &'a ToolCall, view: &'a SessionView) -> BoxFuture<'a, Authorization>;

    /// Returns who provides the result of this call, if the runner does not run it. Once such a call is authorised, the driver
    /// records it as waiting, and nothing runs for it. Its traits do not matter.
    fn awaits(&self, _call: &ToolCall) -> Option<AwaitedResult> {
        None
    }

    /// Runs one call. Every failure is a result with `is_error`. The result is final: truncated and redacted.
    ///
    /// A run that needs a person's input ends with its questions. They are recorded and survive a restart. The call runs again with
    /// the answers ([`CallContext::provided_input`]).
    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolRunOutcome>;

    /// Runs one call where no person can be asked: questions become an error.
    fn run_without_input<'a>(
        &'a self,
        call: &'a ToolCall,
        context: CallContext,
    ) -> BoxFuture<'a, ToolResult> {
        let run = self.run(call, context);
        Box::pin(async move { run.await.without_input(&call.id) })
    }
}

impl<R: ToolRunner + ?Sized> ToolRunner for Arc<R> {
    fn traits(&self, call: &ToolCall) -> CallTraits {
        (**self).traits(call)
    }

    fn authorize<'a>(&'a self, call: &'a ToolCall, view: &'a SessionView) -> BoxFuture<'a, Authorization> {
        (**self).authorize(call, view)
    }

    fn awaits(&self, call: &ToolCall) -> Option<AwaitedResult> {
        (**self).awaits(call)
    }

    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolRunOutcome> {
        (**self).run(call, context)
    }
}
