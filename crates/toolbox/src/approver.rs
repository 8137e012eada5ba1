//! [`Approver`]: decides whether a tool call may run, by policy or by asking a person.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use conjure_conversation::{Authorization, ToolCall};
use futures_util::future::BoxFuture;

use crate::tool::CallerIdentity;

/// Decides whether a call may run. It is called once for each valid call, before the call is recorded as started. A call with an
/// unknown tool or invalid input is never passed to it.
///
/// It should decide quickly. To let a person decide, it returns [`Authorization::Ask`]: the conversation then waits in a state that
/// survives a restart, and no future stays pending.
pub trait Approver: Send + Sync {
    /// Decides on a call. `caller` is `None` if the toolbox belongs to no session.
    fn review<'a>(
        &'a self,
        call: &'a ToolCall,
        caller: Option<&'a CallerIdentity>,
    ) -> BoxFuture<'a, Authorization>;

    /// Whether a person can be asked; `true` by default.
    ///
    /// If so, a script that its manifest declares destructive or interactive needs confirmation, even when [`Approver::review`]
    /// allows it. Otherwise it runs, and the log records that.
    fn can_ask(&self) -> bool {
        true
    }
}

/// Allows every call.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

/// Denies every call with the same reason.
#[derive(Debug, Clone)]
pub struct DenyAll {
    /// The reason for the model.
    pub reason: String,
}

impl Approver for AllowAll {
    fn review<'a>(&'a self, _: &'a ToolCall, _: Option<&'a CallerIdentity>) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Allow })
    }

    fn can_ask(&self) -> bool {
        false
    }
}

impl Approver for DenyAll {
    fn review<'a>(&'a self, _: &'a ToolCall, _: Option<&'a CallerIdentity>) -> BoxFuture<'a, Authorization> {
        Box::pin(async { Authorization::Deny { reason: self.reason.clone() } })
    }
}

impl<A: Approver + ?Sized> Approver for Arc<A> {
    fn review<'a>(
        &'a self,
        call: &'a ToolCall,
        caller: Option<&'a CallerIdentity>,
    ) -> BoxFuture<'a, Authorization> {
        (**self).review(call, caller)
    }

    fn can_ask(&self) -> bool {
        (**self).can_ask()
    }
}

/// Creates an approver from a function. Implement [`Approver`] to get the caller too.
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
    fn review<'a>(
        &'a self,
        call: &'a ToolCall,
        _: Option<&'a CallerIdentity>,
    ) -> BoxFuture<'a, Authorization> {
        Box::pin((self.0)(call.clone()))
    }
}

impl<F> fmt::Debug for ApproverFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("approver_fn(…)")
    }
}
