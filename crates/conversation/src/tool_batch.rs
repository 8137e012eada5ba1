//! Runs the tool calls of one response: shared neighbours run concurrently, exclusive calls are barriers.
//!
//! Panics become results, and the wait for cancelled tools is bounded. There are no tasks: dropping a batch drops its tools.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::event::CallOutcome;
use crate::session_view::SessionView;
use crate::tool::{ToolCall, ToolEnding, ToolResult};
use crate::tool_runner::{Authorization, CallConcurrency, CallContext, CallTraits, ToolRunner};

/// How long cancelled tools may take to clean up before they are dropped.
pub const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Runs the calls of one response and returns their results in call order (specification 5.10).
///
/// Each call is authorised first. There is no approver here, so a call that needs an approval is denied. After the context's deadline or
/// cancellation no call is authorised or started any more, and running tools have [`CANCEL_GRACE`] to end. A call that did not run or
/// end by then gets a result that says so.
///
/// Must be polled within a Tokio runtime whose time driver is enabled.
pub async fn execute_tool_calls(
    runner: &dyn ToolRunner,
    calls: &[ToolCall],
    mut context: CallContext,
) -> Vec<ToolResult> {
    let mut results: Vec<Option<ToolResult>> = Vec::with_capacity(calls.len());
    let mut allowed: Vec<(usize, &ToolCall, CallTraits)> = Vec::new();
    let mut over = Box::pin(cancelled_or_expired(&context, &SystemClock));
    for (place, call) in calls.iter().enumerate() {
        // The deadline comes first: an authorization that never returns must not keep the calls from ending.
        let Either::Right((authorization, _)) =
            select(&mut over, Box::pin(authorize(runner, call, &context.view))).await
        else {
            break;
        };
        results.push(match authorization {
            Authorization::Allow => {
                allowed.push((place, call, traits(runner, call)));
                None
            }
            Authorization::Deny { reason } | Authorization::Ask { reason } => {
                Some(ToolResult::error(&call.id, format!("denied: {reason}")))
            }
        });
    }
    results.resize(calls.len(), None);
    let access: Vec<CallConcurrency> = allowed.iter().map(|(_, _, traits)| traits.concurrency).collect();
    for range in batches(&access) {
        if context.cancel.is_cancelled() || SystemClock.remaining(context.deadline).is_zero() {
            break;
        }
        let calls: Vec<(usize, &ToolCall)> =
            allowed[range].iter().map(|(place, call, _)| (*place, *call)).collect();
        let mut batch = ToolBatch::start(runner, &calls, &context, &SystemClock, CANCEL_GRACE);
        while let Some((place, result, _)) = batch.next().await {
            if let Some(active) = &result.active_skills {
                context.view.set_active_skills(active);
            }
            results[place] = Some(result);
        }
    }
    let not_run = |call: &ToolCall| {
        ToolResult::error(&call.id, "not run: the calls were cancelled or their deadline passed")
    };
    calls.iter().zip(results).map(|(call, result)| result.unwrap_or_else(|| not_run(call))).collect()
}

/// Waits for the cancellation or the deadline, whichever comes first.
fn cancelled_or_expired(
    context: &CallContext,
    clock: &dyn Clock,
) -> impl Future<Output = ()> + Send + 'static {
    let (cancelled, deadline) =
        (context.cancel.clone().cancelled_owned(), clock.sleep_until(context.deadline));
    async move {
        select(std::pin::pin!(cancelled), deadline).await;
    }
}

/// The ranges of calls that may start together: neighbours that are shared, or one exclusive call.
pub(crate) fn batches(access: &[CallConcurrency]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (place, this) in access.iter().enumerate() {
        let joins =
            *this == CallConcurrency::Shared && place > 0 && access[place - 1] == CallConcurrency::Shared;
        match ranges.last_mut() {
            Some(last) if joins => last.end = place + 1,
            _ => ranges.push(place..place + 1),
        }
    }
    ranges
}

/// Authorises a call. A policy that panics denies it.
pub(crate) async fn authorize(runner: &dyn ToolRunner, call: &ToolCall, view: &SessionView) -> Authorization {
    AssertUnwindSafe(async { runner.authorize(call, view).await }).catch_unwind().await.unwrap_or_else(|_| {
        Authorization::Deny { reason: "the check whether this call may run has crashed".to_owned() }
    })
}

/// The traits of a call. If the runner panics, the call counts as exclusive and not idempotent.
pub(crate) fn traits(runner: &dyn ToolRunner, call: &ToolCall) -> CallTraits {
    std::panic::catch_unwind(AssertUnwindSafe(|| runner.traits(call)))
        .unwrap_or(CallTraits { concurrency: CallConcurrency::Exclusive, idempotent: false })
}

/// Calls that run concurrently.
pub(crate) struct ToolBatch<'a> {
    running: FuturesUnordered<BoxFuture<'a, (usize, ToolResult)>>,
    /// The calls without a result yet, and their positions.
    open: Vec<(usize, &'a ToolCall)>,
    /// A child token, so that the deadline can cancel the tools without cancelling the caller.
    cancel: CancellationToken,
    clock: &'a dyn Clock,
    grace: Duration,
    phase: BatchPhase,
}

/// The phase of a batch.
enum BatchPhase {
    /// The tools are running; waits for the cancellation or the deadline.
    Running(BoxFuture<'static, ()>),
    /// The tools are cancelled; waits for the end of the grace period.
    Grace(BoxFuture<'static, ()>),
    /// The grace period is over, the tools are dropped.
    Dropped,
}

impl<'a> ToolBatch<'a> {
    /// Prepares `calls` with their positions. They run while [`ToolBatch::next`] is awaited.
    pub(crate) fn start(
        runner: &'a dyn ToolRunner,
        calls: &[(usize, &'a ToolCall)],
        context: &CallContext,
        clock: &'a dyn Clock,
        grace: Duration,
    ) -> Self {
        let cancel = context.cancel.child_token();
        let context = CallContext { cancel: cancel.clone(), ..context.clone() };
        let running = calls
            .iter()
            .map(|(place, call)| run_one(runner, *place, call, context.clone()).boxed())
            .collect();
        let ended = cancelled_or_expired(&context, clock);
        Self {
            running,
            open: calls.to_vec(),
            cancel,
            clock,
            grace,
            phase: BatchPhase::Running(ended.boxed()),
        }
    }

    /// The next result with its call's position, in the order in which the calls end. It is cancel safe.
    pub(crate) async fn next(&mut self) -> Option<(usize, ToolResult, CallOutcome)> {
        while !self.open.is_empty() {
            let (BatchPhase::Running(end) | BatchPhase::Grace(end)) = &mut self.phase else {
                let (place, call) = self.open.remove(0);
                let text = "cancelled: the call did not end in time and was dropped; it may have done a part";
                return Some((place, ToolResult::error(&call.id, text), CallOutcome::Cancelled));
            };
            match select(self.running.next(), end).await {
                Either::Left((Some((place, result)), _)) => {
                    self.open.retain(|(open, _)| *open != place);
                    return Some((place, result, CallOutcome::Finished));
                }
                // All futures have ended, so no call is open; the loop ends.
                Either::Left((None, _)) => self.open.clear(),
                Either::Right(_) => self.escalate(),
            }
        }
        None
    }

    /// Moves to the next phase: cancels running tools, then drops cancelled ones.
    fn escalate(&mut self) {
        if let BatchPhase::Running(_) = self.phase {
            self.cancel.cancel();
            self.phase = BatchPhase::Grace(self.clock.sleep_until(self.clock.deadline(self.grace)));
        } else {
            self.running.clear();
            self.phase = BatchPhase::Dropped;
        }
    }
}

/// The `error.type` of a call's span.
const fn error_type(result: &ToolResult) -> Option<&'static str> {
    match result.ending {
        ToolEnding::Returned if result.is_error => Some("tool_error"),
        ToolEnding::Returned => None,
        ToolEnding::Rejected => Some("rejected"),
        ToolEnding::TimedOut => Some("timed_out"),
        ToolEnding::Cancelled => Some("cancelled"),
        ToolEnding::Lost => Some("lost"),
        ToolEnding::Crashed => Some("panic"),
    }
}

/// Runs one call. A panic becomes its result.
async fn run_one(
    runner: &dyn ToolRunner,
    place: usize,
    call: &ToolCall,
    context: CallContext,
) -> (usize, ToolResult) {
    let span = tracing::info_span!(
        "execute_tool",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name,
        gen_ai.tool.call.id = call.id.as_str(),
        // For a tool that runs a program to record.
        process.exit.code = tracing::field::Empty,
        error.type = tracing::field::Empty,
    );
    let run = AssertUnwindSafe(async { runner.run(call, context).await }).catch_unwind();
    let mut result = run.instrument(span.clone()).await.unwrap_or_else(|_| {
        let text = "the tool crashed; what it did until then is not known";
        ToolResult::error(&call.id, text).with_ending(ToolEnding::Crashed)
    });
    if let Some(error) = error_type(&result) {
        span.record("error.type", error);
    }
    // The result always answers its own call, whatever the tool returned.
    result.tool_use_id = call.id.clone();
    (place, result)
}
