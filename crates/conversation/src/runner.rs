//! Tools at the rim: what the driver asks of whoever runs them.

use std::sync::Arc;

use conjure_base::Deadline;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::standing::Standing;
use crate::tool::{ToolCall, ToolResult};

/// Whether a call may run beside others of the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It runs together with its neighbours that are shared too.
    Shared,
    /// A barrier: it starts when all calls before it have ended, and those after it wait for it.
    Exclusive,
}

/// What the driver must know of a call before it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTraits {
    /// Whether it may run beside others.
    pub access: Access,
    /// Whether running it twice does what running it once does. Only such a call is run again after a crash.
    pub idempotent: bool,
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authorization {
    /// It may.
    Allow,
    /// It may not; the model is told why.
    Deny {
        /// Why.
        reason: String,
    },
    /// A person must decide. The turn waits; the wait survives a restart.
    Ask {
        /// What the person is asked.
        reason: String,
    },
}

/// What a running call is given.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// When the whole turn must have ended. A tool has its own, earlier deadline besides.
    pub deadline: Deadline,
    /// Cancelled when the turn is: a tool then ends what it started and returns soon. One that does not is
    /// dropped.
    pub cancel: CancellationToken,
    /// Where the session stands when the call begins.
    pub standing: Standing,
}

/// No deadline, no session.
impl Default for CallContext {
    fn default() -> Self {
        Self { deadline: Deadline::NEVER, cancel: CancellationToken::new(), standing: Standing::default() }
    }
}

/// Runs the model's tool calls. Implemented by `conjure-toolbox`.
///
/// The driver schedules (order, barriers), records (intent before effect, outcome after) and contains panics;
/// the runner does the work and gives each call its own deadline.
pub trait ToolRunner: Send + Sync {
    /// What the driver must know of this call. Unknown tools and bad input are [`Access::Shared`]: they only
    /// produce an error.
    fn traits(&self, call: &ToolCall) -> CallTraits;

    /// Whether this call may run, where the session stands so.
    fn authorize<'a>(&'a self, call: &'a ToolCall, standing: &'a Standing) -> BoxFuture<'a, Authorization>;

    /// Runs one call. Every failure is a result with `is_error`; the result is final (cut and redacted).
    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolResult>;
}

impl<R: ToolRunner + ?Sized> ToolRunner for Arc<R> {
    fn traits(&self, call: &ToolCall) -> CallTraits {
        (**self).traits(call)
    }

    fn authorize<'a>(&'a self, call: &'a ToolCall, standing: &'a Standing) -> BoxFuture<'a, Authorization> {
        (**self).authorize(call, standing)
    }

    fn run<'a>(&'a self, call: &'a ToolCall, context: CallContext) -> BoxFuture<'a, ToolResult> {
        (**self).run(call, context)
    }
}
