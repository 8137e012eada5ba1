//! Who allows a tool call: a policy of the host, or a person whom the policy wants asked.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use conjure_conversation::{Authorization, ToolCall};
use futures_util::future::BoxFuture;

use crate::tool::Caller;

/// Decides whether a call may run. Called once for each call that could run at all, before it is recorded as
/// started; a call with an unknown tool or bad input is never shown to it.
///
/// It answers soon, by rule. To let a person decide it answers [`Authorization::Ask`]: the conversation then
/// waits in a state that survives a restart, and no future is kept waiting here.
pub trait Approver: Send + Sync {
    /// Whether this call may run. `caller`: for whom it is made; `None` where the toolbox belongs to no session.
    fn review<'a>(&'a self, call: &'a ToolCall, caller: Option<&'a Caller>) -> BoxFuture<'a, Authorization>;

    /// Whether there is a person who can be asked. Then calls of scripts whose skill's manifest calls them destructive or interactive
    /// are asked for, even where [`Approver::review`] allows them; else they run, and that is logged. There is one, unless this says
    /// otherwise.
    fn can_ask(&self) -> bool {
        true
    }
}

/// Allows every call.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

/// Denies every call, for the same reason, which the model is told.
#[derive(Debug, Clone)]
pub struct DenyAll {
    /// Why, as the model is told.
    pub reason: String,
}

impl Approver for AllowAll {
    fn review<'a>(&'a self, _: &'a ToolCall, _: Option<&'a Caller>) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Allow })
    }

    fn can_ask(&self) -> bool {
        false
    }
}

impl Approver for DenyAll {
    fn review<'a>(&'a self, _: &'a ToolCall, _: Option<&'a Caller>) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Deny { reason: self.reason.clone() } })
    }
}

impl<A: Approver + ?Sized> Approver for Arc<A> {
    fn review<'a>(&'a self, call: &'a ToolCall, caller: Option<&'a Caller>) -> BoxFuture<'a, Authorization> {
        (**self).review(call, caller)
    }

    fn can_ask(&self) -> bool {
        (**self).can_ask()
    }
}

/// An approver of a function, which is the same for all sessions; implement [`Approver`] to know for whom a call is made.
///
/// ```
/// use conjure_conversation::{Authorization, ToolCall};
/// use conjure_toolbox::approver_fn;
///
/// let approver = approver_fn(|call: ToolCall| async move {
///     match call.name.as_str() {
///         "view" => Authorization::Allow,
///         name => Authorization::Ask { reason: format!("the model wants to run `{name}`") },
///     }
/// });
/// # let _ = approver;
/// ```
pub fn approver_fn<F, R>(function: F) -> impl Approver
where
    F: Fn(ToolCall) -> R + Send + Sync,
    R: Future<Output = Authorization> + Send + 'static,
{
    ApproverFn(function)
}

struct ApproverFn<F>(F);

impl<F, R> Approver for ApproverFn<F>
where
    F: Fn(ToolCall) -> R + Send + Sync,
    R: Future<Output = Authorization> + Send + 'static,
{
    fn review<'a>(&'a self, call: &'a ToolCall, _: Option<&'a Caller>) -> BoxFuture<'a, Authorization> {
        Box::pin((self.0)(call.clone()))
    }
}

impl<F> fmt::Debug for ApproverFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("approver_fn(…)")
    }
}
