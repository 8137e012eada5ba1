//! Running the calls of one answer: shared neighbours together, exclusive calls as barriers, panics contained,
//! a bounded wait for tools that were cancelled.
//!
//! There are no tasks in here: whoever drops a batch drops the tools in it.

use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use conjure_base::{Clock, SystemClock};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::event::ToolOutcome;
use crate::runner::{Access, Authorization, CallContext, CallTraits, ToolRunner};
use crate::standing::Standing;
use crate::tool::{ToolCall, ToolEnding, ToolResult};

/// How long cancelled tools may take to end what they started, before they are dropped.
pub const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// Runs the calls of one answer and returns their results in call order (specification 5.10). Each is
/// authorised first; there is nobody to ask here, so a call that asks is denied. After the context's deadline or
/// cancellation nothing is authorised or started any more, and tools have [`CANCEL_GRACE`] to end; what did not run or
/// end by then is a result that says so.
///
/// Must be polled within a Tokio runtime whose time driver is enabled.
pub async fn execute_tool_calls(
    runner: &dyn ToolRunner,
    calls: &[ToolCall],
    mut context: CallContext,
) -> Vec<ToolResult> {
    let mut results: Vec<Option<ToolResult>> = Vec::with_capacity(calls.len());
    let mut allowed: Vec<(usize, &ToolCall, CallTraits)> = Vec::new();
    let mut over = Box::pin(over(&context, &SystemClock));
    for (place, call) in calls.iter().enumerate() {
        // The end comes first: a check that never answers must not keep the calls from ending.
        let Either::Right((authorization, _)) =
            select(&mut over, Box::pin(authorize(runner, call, &context.standing))).await
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
    let access: Vec<Access> = allowed.iter().map(|(_, _, traits)| traits.access).collect();
    for range in batches(&access) {
        if context.cancel.is_cancelled() || SystemClock.remaining(context.deadline).is_zero() {
            break;
        }
        let calls: Vec<(usize, &ToolCall)> =
            allowed[range].iter().map(|(place, call, _)| (*place, *call)).collect();
        let mut batch = Batch::start(runner, &calls, &context, &SystemClock, CANCEL_GRACE);
        while let Some((place, result, _)) = batch.next().await {
            if let Some(active) = &result.active_skills {
                context.standing.activate(active);
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
fn over(context: &CallContext, clock: &dyn Clock) -> impl Future<Output = ()> + Send + 'static {
    let (cancelled, deadline) =
        (context.cancel.clone().cancelled_owned(), clock.sleep_until(context.deadline));
    async move {
        select(std::pin::pin!(cancelled), deadline).await;
    }
}

/// The runs of calls that may be started together: neighbours that are shared, and exclusive calls alone.
pub(crate) fn batches(access: &[Access]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (place, this) in access.iter().enumerate() {
        let joins = *this == Access::Shared && place > 0 && access[place - 1] == Access::Shared;
        match ranges.last_mut() {
            Some(last) if joins => last.end = place + 1,
            _ => ranges.push(place..place + 1),
        }
    }
    ranges
}

/// Whether a call may run. A policy that panics denies.
pub(crate) async fn authorize(
    runner: &dyn ToolRunner,
    call: &ToolCall,
    standing: &Standing,
) -> Authorization {
    AssertUnwindSafe(async { runner.authorize(call, standing).await }).catch_unwind().await.unwrap_or_else(
        |_| Authorization::Deny { reason: "the check whether this call may run has crashed".to_owned() },
    )
}

/// What a call is like. Where that panics, the most careful assumption stands.
pub(crate) fn traits(runner: &dyn ToolRunner, call: &ToolCall) -> CallTraits {
    std::panic::catch_unwind(AssertUnwindSafe(|| runner.traits(call)))
        .unwrap_or(CallTraits { access: Access::Exclusive, idempotent: false })
}

/// Calls that run together.
pub(crate) struct Batch<'a> {
    running: FuturesUnordered<BoxFuture<'a, (usize, ToolResult)>>,
    /// The calls without a result yet, and their places.
    open: Vec<(usize, &'a ToolCall)>,
    /// A token of the batch's own, so that the deadline can cancel the tools without cancelling the host.
    cancel: CancellationToken,
    clock: &'a dyn Clock,
    grace: Duration,
    end: End,
}

/// How far the end of a batch is, other than by its results.
enum End {
    /// Waits for the cancellation or the deadline, whichever comes first.
    Watching(BoxFuture<'static, ()>),
    /// The tools know that they are cancelled; waits for the end of their grace.
    Grace(BoxFuture<'static, ()>),
    /// The grace is over, the tools are dropped.
    Over,
}

impl<'a> Batch<'a> {
    /// Prepares `calls`, each under its place. They run while [`Batch::next`] is awaited.
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
        let ended = over(&context, clock);
        Self { running, open: calls.to_vec(), cancel, clock, grace, end: End::Watching(ended.boxed()) }
    }

    /// The next result, with its call's place, in the order in which the calls end. Dropping the future loses
    /// nothing: the batch can be asked again.
    pub(crate) async fn next(&mut self) -> Option<(usize, ToolResult, ToolOutcome)> {
        while !self.open.is_empty() {
            let (End::Watching(end) | End::Grace(end)) = &mut self.end else {
                let (place, call) = self.open.remove(0);
                let text = "cancelled: the call did not end in time and was dropped; it may have done a part";
                return Some((place, ToolResult::error(&call.id, text), ToolOutcome::Cancelled));
            };
            match select(self.running.next(), end).await {
                Either::Left((Some((place, result)), _)) => {
                    self.open.retain(|(open, _)| *open != place);
                    return Some((place, result, ToolOutcome::Finished));
                }
                // All futures have ended, so no call is open; the loop ends.
                Either::Left((None, _)) => self.open.clear(),
                Either::Right(_) => self.escalate(),
            }
        }
        None
    }

    /// From running to cancelled, from cancelled to dropped.
    fn escalate(&mut self) {
        if let End::Watching(_) = self.end {
            self.cancel.cancel();
            self.end = End::Grace(self.clock.sleep_until(self.clock.deadline(self.grace)));
        } else {
            self.running.clear();
            self.end = End::Over;
        }
    }
}

/// What went wrong with a call, for its span.
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

/// Runs one call; a panic is its result.
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
        ToolResult::error(&call.id, text).ended(ToolEnding::Crashed)
    });
    if let Some(error) = error_type(&result) {
        span.record("error.type", error);
    }
    // Whatever the tool says, its result answers its own call.
    result.tool_use_id = call.id.clone();
    (place, result)
}
